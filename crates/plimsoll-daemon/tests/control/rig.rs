//! A server on a socket of its own, whose clock the test advances, and a handler that remembers.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os;
use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::handler::Handler;
use plimsoll_daemon::control::protocol::{Answer, Request};
use plimsoll_daemon::control::server::Server;
use plimsoll_daemon::state::{GroupState, State};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use tempfile::TempDir;

#[allow(dead_code)]
#[path = "../../../plimsoll/tests/common/wait.rs"]
pub mod wait;

pub const REQUEST: &[u8] = b"{\"version\":5,\"request\":\"reload\"}\n";

type Event = Box<dyn Fn(&Echo) + Send + Sync>;

static START: LazyLock<Instant> = LazyLock::new(os::now);

/// Answers with the request itself as text, or always the same. Its clock stands still unless a
/// test advances it.
#[derive(Default)]
pub struct Echo {
    always: Option<Answer>,
    /// Action while a request for debugging is answered.
    at_debug: Option<Event>,
    passed_ms: AtomicU64,
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

    pub fn at_debug(event: impl Fn(&Self) + Send + Sync + 'static) -> Self {
        Self {
            at_debug: Some(Box::new(event)),
            ..Self::default()
        }
    }

    pub fn advance(&self, time: Duration) {
        let time_ms = u64::try_from(time.as_millis()).unwrap();
        self.passed_ms.fetch_add(time_ms, Ordering::SeqCst);
    }

    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    pub fn unreadable(&self) -> usize {
        self.unreadable.load(Ordering::Relaxed)
    }
}

impl Handler for Echo {
    fn answer(&self, request: Request, _: Option<OwnedFd>) -> Answer {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if let (Some(event), Request::Debug) = (&self.at_debug, &request) {
            event(self);
        }
        let echo = || Answer::Text(format!("{request:?}"));
        self.always.clone().unwrap_or_else(echo)
    }

    fn unreadable(&self) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> Instant {
        *START + Duration::from_millis(self.passed_ms.load(Ordering::SeqCst))
    }
}

pub struct Rig {
    pub handler: Arc<Echo>,
    pub server: Server,
    pub path: PathBuf,
    _folder: TempDir,
}

impl Rig {
    pub fn new(handler: Echo) -> Self {
        let folder = tempfile::tempdir().unwrap();
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

    /// A well-behaved client, which waits for its answer however busy the machine is.
    pub fn client(&self) -> Client {
        let client = Client::connect_within(&self.path, Duration::from_secs(3600));
        client.unwrap().unwrap()
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.path).unwrap()
    }

    /// Advances the clock of the server's deadlines, which wakes nobody.
    pub fn advance(&self, time: Duration) {
        self.handler.advance(time);
    }

    /// Asks, and gets the answer. By then the server has served everything that its clients had
    /// sent before, because it serves them in the order in which they came.
    #[track_caller]
    pub fn is_answered(&self) {
        let answer = self.client().ask(&Request::Reload);
        assert!(answer.is_ok(), "{answer:?}");
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

pub fn state_of(groups: usize) -> State {
    let group = |number: usize| GroupState {
        name: format!("/tenants.slice/tenant-{number:05}.service"),
        group: "tenants".into(),
        cgroup: format!("/tenants.slice/tenant-{number:05}.service"),
        statistics: Some(Default::default()),
        ..GroupState::default()
    };
    State {
        groups: (0..groups).map(group).collect(),
        ..State::default()
    }
}

/// Whether the server has sent a client something, or has disconnected it.
pub fn has_heard(stream: &UnixStream) -> bool {
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let heard = rustix::net::recv(stream, &mut [0; 1][..], look);
    heard.err() != Some(Errno::AGAIN)
}
