//! The socket: accepts clients, waits for their requests, and answers.
//!
//! One thread serves all clients. No client delays another: only the [`Handler`] blocks, every
//! client has deadlines, and the memory of all their answers is limited.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::unistd::{Group, geteuid};
use thiserror::Error;

use super::connection::{Connection, Disconnected, Doing};
use super::handler::Handler;
use super::protocol::OPERATORS;

/// Name of the thread that answers clients; a panic in it does not end the daemon.
pub const THREAD: &str = "control";
/// Maximum number of clients; more wait until they are accepted.
pub const CLIENTS_MAX: usize = 64;
const WAITING_CLIENTS_MAX: i32 = 1024;
/// Maximum memory of unread answers, beside one answer.
const UNSENT_BYTES_MAX: usize = 12 << 20;
/// Time that a client may be idle while others wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time within which a client has to read its whole answer while others wait.
const READ_WHILE_OTHERS_WAIT: Duration = Duration::from_secs(5);
/// Interval of attempts to accept without room, or after an error such as no file descriptor.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Error)]
pub enum ServerError {
    #[error("{path}: another daemon listens there", path = path.display())]
    Taken { path: PathBuf },
    #[error("{path}: cannot listen: {source}", path = path.display())]
    CannotListen { path: PathBuf, source: io::Error },
}

/// A thread that serves a socket.
pub struct Server {
    path: PathBuf,
    /// The socket's device and inode, to leave the socket of a later daemon alone.
    identity: (u64, u64),
    problem: Option<String>,
    /// Closed to stop the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to listen at `path`, for this user and, if that is root, for the members of group
    /// [`OPERATORS`]. The socket of a daemon that has ended is replaced in one step.
    ///
    /// # Errors
    /// When another daemon listens there, or the folder is not writable.
    pub fn bind(path: &Path, handler: Arc<dyn Handler>) -> Result<Self, ServerError> {
        if UnixStream::connect(path).is_ok() {
            return Err(ServerError::Taken { path: path.into() });
        }
        let failed = |source| ServerError::CannotListen {
            path: path.into(),
            source,
        };
        let (listener, identity, problem) = make_socket(path).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let clients = Clients {
            listener,
            stopped,
            handler,
            clients: Vec::new(),
            accept_after: None,
        };
        let thread = std::thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || clients.run())
            .map_err(failed)?;
        Ok(Self {
            path: path.into(),
            identity,
            problem,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The reason why operators cannot connect, if they cannot.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Removes the socket, disconnects all clients and ends the thread, once the present request
    /// is answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // The file may be gone already.
            let _ = fs::remove_file(&self.path);
        }
        drop(self.stop.take());
        // After a panic the thread has ended, too.
        let _ = thread.join();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Makes a socket. It is ready, and nobody else may connect to it, before it gets its name.
fn make_socket(path: &Path) -> io::Result<(UnixListener, (u64, u64), Option<String>)> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(&temporary)?)?;
    let problem = restrict(&temporary)?;
    // Until now every attempt to connect was refused.
    listen(&socket, Backlog::new(WAITING_CLIENTS_MAX)?)?;
    let identity = identity(&temporary)?;
    fs::rename(&temporary, path)?;
    Ok((UnixListener::from(socket), identity, problem))
}

/// Lets this user connect, and the members of the operators' group if the owner is root's. Returns
/// the reason why the members cannot connect although there is such a group.
fn restrict(path: &Path) -> io::Result<Option<String>> {
    let given = match geteuid().is_root() {
        true => give_to_operators(path),
        false => Ok(false),
    };
    let mode = if let Ok(true) = given { 0o660 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    let problem = |error| format!("group `{OPERATORS}` cannot have the control socket: {error}");
    Ok(given.err().map(problem))
}

/// Gives the socket to the operators' group; returns false if there is no such group.
fn give_to_operators(path: &Path) -> io::Result<bool> {
    match Group::from_name(OPERATORS) {
        Ok(Some(group)) => chown(path, None, Some(group.gid.as_raw())).map(|()| true),
        // Without a file of groups there is none.
        Ok(None) | Err(Errno::ENOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn events(client: &Connection) -> PollFlags {
    match client.doing() {
        Doing::Answering => PollFlags::POLLOUT,
        // The client waits for the server.
        _ if client.has_request() => PollFlags::empty(),
        Doing::Idle | Doing::Asking => PollFlags::POLLIN,
    }
}

/// A time to wait, rounded up; `None`: without end.
fn timeout(time: Option<Duration>) -> PollTimeout {
    let ms = time.map(|time| time.as_micros().div_ceil(1000));
    ms.map_or(PollTimeout::NONE, |ms| {
        PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
    })
}

/// Waits for an event. A signal ends the wait early, with nothing ready.
fn poll_unless_interrupted(files: &mut [PollFd], time: PollTimeout) -> io::Result<()> {
    match poll(files, time) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Serves a client without blocking: one request at most.
fn turn(client: &mut Connection, is_ready: bool, may_answer: bool) -> Result<(), Disconnected> {
    if is_ready {
        // No event was requested of a client that waits, so it hung up.
        if client.has_request() {
            return Err(Disconnected);
        }
        client.transmit()?;
        client.receive()?;
    } else if client.doing() == Doing::Asking && client.deadline() <= client.now() {
        // The rest of the request may have arrived while another client was answered.
        client.receive()?;
    }
    if may_answer {
        client.answer();
    }
    client.transmit()?;
    // A whole request waits for the server, so the client's deadline does not apply.
    if client.has_request() {
        return Ok(());
    }
    client.check_deadline(client.now())
}

struct Clients {
    listener: UnixListener,
    stopped: UnixStream,
    handler: Arc<dyn Handler>,
    clients: Vec<Connection>,
    /// Time before which no client is accepted.
    accept_after: Option<Instant>,
}

impl Clients {
    fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else {
                // Only a bug makes `poll` fail; do not spin on it.
                std::thread::sleep(LOOK_AGAIN);
                continue;
            };
            if ready.stopped {
                self.answer_the_last();
                return;
            }
            self.serve_all(&ready.clients);
            self.make_room();
            if ready.listener || self.accept_after.is_some_and(|at| at <= self.handler.now()) {
                self.accept_some();
            }
        }
    }

    /// Answers pending requests, so that their clients learn that nothing was done.
    fn answer_the_last(&mut self) {
        self.accept_some();
        for client in &mut self.clients {
            if client.receive().is_ok() {
                client.answer();
                let _ = client.transmit();
            }
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let now = self.handler.now();
        let hears = !self.is_full() && self.accept_after.is_none_or(|at| at <= now);
        let hear = if hears {
            PollFlags::POLLIN
        } else {
            PollFlags::empty()
        };
        let mut files = vec![
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), hear),
        ];
        let clients = self.clients.iter();
        files.extend(clients.map(|client| PollFd::new(client.stream().as_fd(), events(client))));
        let left = self.due(now).map(|due| due.saturating_duration_since(now));
        poll_unless_interrupted(&mut files, timeout(left))?;
        let is_ready = |file: &PollFd| file.any().unwrap_or(false);
        Ok(Ready {
            stopped: is_ready(&files[0]),
            listener: is_ready(&files[1]),
            clients: files[2..].iter().map(is_ready).collect(),
        })
    }

    fn is_full(&self) -> bool {
        self.clients.len() >= CLIENTS_MAX
    }

    /// Returns the time at which the next client has to be served without an event of its own;
    /// `None`: never.
    fn due(&self, now: Instant) -> Option<Instant> {
        let is_laden = self.is_laden();
        let of_client = |client: &Connection| match (client.has_request(), is_laden) {
            (true, false) => Some(now),
            (true, true) => None,
            (false, _) => Some(client.deadline()),
        };
        let looks_again = self.is_full() || is_laden || self.accept_after.is_some();
        let again = looks_again.then(|| now + LOOK_AGAIN);
        let of_clients = self.clients.iter().filter_map(of_client);
        of_clients.chain(again).min()
    }

    fn unsent_bytes(&self) -> usize {
        self.clients.iter().map(Connection::unsent_bytes).sum()
    }

    fn is_laden(&self) -> bool {
        self.unsent_bytes() > UNSENT_BYTES_MAX
    }

    /// Serves each client in turn, and drops those that are gone.
    fn serve_all(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let mut unsent = self.unsent_bytes();
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().is_some_and(|is_ready| *is_ready);
            let before = client.unsent_bytes();
            let may_answer = unsent <= UNSENT_BYTES_MAX;
            let stays = turn(client, is_ready, may_answer).is_ok();
            let after = if stays { client.unsent_bytes() } else { 0 };
            unsent = unsent + after - before;
            stays
        });
    }

    /// Disconnects idle clients while others wait: without a request they take a slot, and
    /// with an unread answer they take memory.
    fn make_room(&mut self) {
        let now = self.handler.now();
        if self.is_laden() {
            self.clients.retain(|client| {
                client.doing() != Doing::Answering
                    || (client.stalled_for(now) < PATIENCE
                        && client.answered_for(now) < READ_WHILE_OTHERS_WAIT)
            });
        }
        if self.is_full() && self.is_awaited() {
            let is_resting = |client: &Connection| {
                client.doing() == Doing::Idle && client.stalled_for(now) >= PATIENCE
            };
            self.clients.retain(|client| !is_resting(client));
        }
    }

    /// Whether a client waits to be accepted.
    fn is_awaited(&self) -> bool {
        let mut files = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut files, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn accept_some(&mut self) {
        self.accept_after = None;
        while !self.is_full() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A client that has gone is not served.
                    if let Ok(client) = Connection::new(stream, Arc::clone(&self.handler)) {
                        self.clients.push(client);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_after = Some(self.handler.now() + LOOK_AGAIN);
                    return;
                }
            }
        }
    }
}

struct Ready {
    stopped: bool,
    listener: bool,
    clients: Vec<bool>,
}
