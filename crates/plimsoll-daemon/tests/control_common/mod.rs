//! A server on a socket of its own, and a handler that remembers.

#![allow(dead_code)]

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::handler::Handler;
use plimsoll_daemon::control::peer::Peer;
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::control::server::Server;
use plimsoll_daemon::state::{Group, State};
use tempfile::TempDir;

/// Answers with the request itself as text, or always the same.
#[derive(Default)]
pub struct Echo {
    always: Option<Answer>,
    panics_at_debug: bool,
    takes: Duration,
    answered: AtomicUsize,
    unreadable: AtomicUsize,
}

impl Echo {
    pub fn answering(answer: Answer) -> Self {
        Self {
            always: Some(answer),
            ..Self::default()
        }
    }

    pub fn panicking_at_debug() -> Self {
        Self {
            panics_at_debug: true,
            ..Self::default()
        }
    }

    pub fn taking(time: Duration) -> Self {
        Self {
            takes: time,
            ..Self::default()
        }
    }

    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    pub fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }
}

impl Handler for Echo {
    fn answer(&self, _peer: &Peer, request: Request) -> Answer {
        self.answered.fetch_add(1, Ordering::Relaxed);
        assert!(
            !self.panics_at_debug || request != Request::Debug,
            "a fault of this test"
        );
        std::thread::sleep(self.takes);
        let echo = || Answer::Text(format!("{request:?}"));
        self.always.clone().unwrap_or_else(echo)
    }

    fn unreadable(&self, _peer: &Peer) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server and its socket.
pub struct Rig {
    pub handler: Arc<Echo>,
    pub server: Server,
    pub path: PathBuf,
    _folder: TempDir,
}

impl Rig {
    pub fn new(handler: Echo) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Users come too.
        let mode = Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let path = folder.path().join("control.sock");
        let handler = Arc::new(handler);
        let server = Server::bind(&path, handler.clone()).unwrap();
        Self {
            handler,
            server,
            path,
            _folder: folder,
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.path).unwrap().unwrap()
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    /// Sends bytes, and returns all that comes until the server hangs up.
    pub fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }
}

/// A state of so many groups.
pub fn state_of(groups: usize) -> State {
    let group = |number: usize| Group {
        name: format!("/tenants.slice/tenant-{number:05}.service"),
        group: "tenants".into(),
        cgroup: format!("/tenants.slice/tenant-{number:05}.service").into(),
        statistics: Some(Default::default()),
        ..Group::default()
    };
    State {
        groups: (0..groups).map(group).collect(),
        ..State::default()
    }
}

/// Waits, not for ever, until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Changes the user of this thread alone; a peer that it connects to sees that user. For root.
pub fn as_user(uid: u32) {
    use nix::libc::{SYS_setgroups, SYS_setresgid, SYS_setresuid, syscall};
    // SAFETY: an empty list of groups is not read; the others take numbers. The
    // system calls change this thread's credentials, no memory.
    let changed = unsafe {
        syscall(SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
            && syscall(SYS_setresgid, uid, uid, uid) == 0
            && syscall(SYS_setresuid, uid, uid, uid) == 0
    };
    assert!(changed, "{}", std::io::Error::last_os_error());
}
