//! The socket: accepts clients, waits for their requests, and answers.
//!
//! One thread serves all clients. No client delays another: only the [`Handler`] blocks, every
//! client has deadlines, and the memory of all their answers is limited.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, listen};
use thiserror::Error;

use super::clock::Clock;
use super::connection::{Connection, Doing, Ended};
use super::handler::Handler;
use super::peer::{Operators, Peer};
use super::protocol::Answer;

/// The thread that answers clients; a panic in answering one ends there.
pub const THREAD: &str = "control";
/// Maximum number of clients; more wait until they are accepted.
pub const CLIENTS_MAX: usize = 64;
/// Of these, clients of users that are not operators; more are answered [`Answer::Busy`].
pub const USER_CLIENTS_MAX: usize = 48;
/// Clients that wait to be accepted.
const WAITING_CLIENTS_MAX: i32 = 1024;
/// Clients that are accepted before the present ones are served: clients may connect faster than
/// they can be answered [`Answer::Busy`].
const ACCEPTED_AT_ONCE: usize = 64;
/// Maximum memory of unread answers of operators, beside one answer.
const OPERATORS_UNSENT_BYTES_MAX: usize = 12 << 20;
/// The same for other users, whose unread answers so delay no operator.
const USERS_UNSENT_BYTES_MAX: usize = 8 << 20;
/// Time that a client may be idle while others wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time within which a client has to read its whole answer while others wait.
const READ_WHILE_OTHERS_WAIT: Duration = Duration::from_secs(5);
/// Interval of attempts to accept without room, or after an error such as no file descriptor.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Failure to listen.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Another daemon listens.
    #[error("{path}: another daemon listens there", path = path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("{path}: cannot listen: {source}", path = path.display())]
    CannotListen {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A thread that serves a socket.
pub struct Server {
    path: PathBuf,
    /// The socket's device and inode, to leave the socket of a later daemon alone.
    identity: (u64, u64),
    /// Closed to stop the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to listen at `path`, for all users. The socket of a daemon that has ended is
    /// replaced in one step.
    ///
    /// # Errors
    /// When another daemon listens there, or the folder is not writable.
    pub fn bind(path: &Path, handler: Arc<dyn Handler>) -> Result<Self, ServerError> {
        Self::bind_with_clock(path, handler, Clock::default())
    }

    /// Does the same as [`Server::bind`], with deadlines by a clock.
    ///
    /// # Errors
    /// When another daemon listens there, or the folder is not writable.
    pub fn bind_with_clock(
        path: &Path,
        handler: Arc<dyn Handler>,
        clock: Clock,
    ) -> Result<Self, ServerError> {
        if UnixStream::connect(path).is_ok() {
            return Err(ServerError::Taken { path: path.into() });
        }
        let failed = |source| ServerError::CannotListen {
            path: path.into(),
            source,
        };
        let (listener, identity) = make_socket(path).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let service = Service {
            clock,
            listener,
            stopped,
            handler,
            operators: Operators::default(),
            clients: Vec::new(),
            accept_after: None,
        };
        let thread = std::thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || service.run())
            .map_err(failed)?;
        Ok(Self {
            path: path.into(),
            identity,
            stop: Some(stop),
            thread: Some(thread),
        })
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
            // It may be gone already.
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

/// Makes a socket that all users may connect to. It is ready before it gets its name.
fn make_socket(path: &Path) -> io::Result<(UnixListener, (u64, u64))> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary)?;
    listener.set_nonblocking(true)?;
    listen(&listener, Backlog::new(WAITING_CLIENTS_MAX)?)?;
    fs::set_permissions(&temporary, Permissions::from_mode(0o666))?;
    let identity = identity(&temporary)?;
    fs::rename(&temporary, path)?;
    Ok((listener, identity))
}

/// Serves one client alone until it is gone or takes too long.
///
/// # Errors
/// When the socket cannot be used at all.
pub fn serve(stream: UnixStream, peer: Peer, handler: &dyn Handler) -> io::Result<()> {
    let mut client = Connection::new(stream, peer, Clock::default())?;
    loop {
        let now = client.now();
        let left = match client.has_request() {
            true => Duration::ZERO,
            false => client.deadline().saturating_duration_since(now),
        };
        let mut files = [PollFd::new(client.stream().as_fd(), events(&client))];
        poll_unless_interrupted(&mut files, timeout(left))?;
        let is_ready = files[0].any().unwrap_or(false);
        if turn(&mut client, is_ready, true, handler).is_err() {
            return Ok(());
        }
    }
}

/// The events to wait for.
fn events(client: &Connection) -> PollFlags {
    match client.doing() {
        Doing::Answering => PollFlags::POLLOUT,
        // The client waits for the server.
        _ if client.has_request() => PollFlags::empty(),
        Doing::Idle | Doing::Asking => PollFlags::POLLIN,
    }
}

/// A time to wait, rounded up.
fn timeout(time: Duration) -> PollTimeout {
    let ms = time.as_micros().div_ceil(1000);
    i32::try_from(ms)
        .ok()
        .and_then(|ms| PollTimeout::try_from(ms).ok())
        .unwrap_or(PollTimeout::MAX)
}

/// Waits. A signal ends that early, with nothing ready.
fn poll_unless_interrupted(files: &mut [PollFd], time: PollTimeout) -> io::Result<()> {
    match poll(files, time) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Serves a client without blocking: one request at most.
fn turn(
    client: &mut Connection,
    is_ready: bool,
    may_answer: bool,
    handler: &dyn Handler,
) -> Result<(), Ended> {
    if is_ready {
        // No event was requested of a client that waits, so it hung up.
        if client.has_request() {
            return Err(Ended);
        }
        client.transmit()?;
        client.receive()?;
    } else if client.doing() == Doing::Asking && client.deadline() <= client.now() {
        // The rest of the request may have arrived while another client was answered.
        client.receive()?;
    }
    if may_answer {
        client.answer(handler);
    }
    client.transmit()?;
    // A whole request waits for the server, so the client's deadline does not apply.
    if client.has_request() {
        return Ok(());
    }
    client.check_deadline(client.now())
}

/// State of the thread.
struct Service {
    clock: Clock,
    listener: UnixListener,
    stopped: UnixStream,
    handler: Arc<dyn Handler>,
    operators: Operators,
    clients: Vec<Connection>,
    /// No client is accepted before.
    accept_after: Option<Instant>,
}

impl Service {
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
            if ready.listener || self.accept_after.is_some_and(|at| at <= self.clock.now()) {
                self.accept_some();
            }
        }
    }

    /// Answers pending requests, so that their clients learn that nothing was done.
    fn answer_the_last(&mut self) {
        self.accept_some();
        for client in &mut self.clients {
            if client.receive().is_ok() {
                client.answer(&*self.handler);
                let _ = client.transmit();
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> io::Result<Ready> {
        let now = self.clock.now();
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
        let left = self.due(now).saturating_duration_since(now);
        poll_unless_interrupted(&mut files, timeout(self.clock.block_for(left)))?;
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

    /// When the next client has to be served without an event of its own.
    fn due(&self, now: Instant) -> Instant {
        let unsent = Unsent::of(&self.clients);
        let mut due = now + PATIENCE;
        for client in &self.clients {
            due = due.min(match (client.has_request(), unsent.is_too_much(client)) {
                (true, false) => now,
                (true, true) => continue,
                (false, _) => client.deadline(),
            });
        }
        let is_laden = self.clients.iter().any(|client| unsent.is_too_much(client));
        if self.is_full() || is_laden || self.accept_after.is_some() {
            due = due.min(now + LOOK_AGAIN);
        }
        due
    }

    /// Serves all clients with bytes to receive or to send.
    fn serve_all(&mut self, ready: &[bool]) {
        let mut ready = ready.iter();
        let mut unsent = Unsent::of(&self.clients);
        let handler = &*self.handler;
        self.clients.retain_mut(|client| {
            let is_ready = ready.next().is_some_and(|is_ready| *is_ready);
            let before = client.unsent_bytes();
            let may_answer = !unsent.is_too_much(client);
            let stays = turn(client, is_ready, may_answer, handler).is_ok();
            let kept = unsent.kept_for(client);
            *kept = *kept + client.unsent_bytes() - before;
            stays
        });
    }

    /// Disconnects idle clients while others wait: without a request they take a slot, and
    /// with an unread answer they take memory.
    fn make_room(&mut self) {
        let now = self.clock.now();
        let unsent = Unsent::of(&self.clients);
        self.clients.retain(|client| {
            client.doing() != Doing::Answering
                || !unsent.is_too_much(client)
                || (client.stalled_for(now) < PATIENCE
                    && client.answered_for(now) < READ_WHILE_OTHERS_WAIT)
        });
        if self.is_full() && self.is_awaited() {
            self.clients.retain(|client| !is_resting(client, now));
        }
    }

    /// Whether a client waits to be accepted.
    fn is_awaited(&self) -> bool {
        let mut files = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut files, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Accepts waiting clients, while there is room.
    fn accept_some(&mut self) {
        self.accept_after = None;
        for _ in 0..ACCEPTED_AT_ONCE {
            if self.is_full() {
                return;
            }
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.accept_after = Some(self.clock.now() + LOOK_AGAIN);
                    return;
                }
            }
        }
    }

    /// Takes a client, unless it is one of an ordinary user and these have all of their slots:
    /// an operator always finds a slot.
    fn take(&mut self, stream: UnixStream) {
        let peer = Peer::of(&stream, self.operators.gid());
        // A client without readable credentials, or that has gone, is not served.
        let Ok(mut client) =
            peer.and_then(|peer| Connection::new(stream, peer, self.clock.clone()))
        else {
            return;
        };
        if !client.peer().is_operator && !self.has_room_for_user() {
            client.end_with(&Answer::Busy);
            // The answer fits into the socket's buffer.
            let _ = client.transmit();
            return;
        }
        self.clients.push(client);
    }

    /// Whether another client of an ordinary user may be served, if need be in place of an idle
    /// one.
    fn has_room_for_user(&mut self) -> bool {
        let now = self.clock.now();
        let is_user = |client: &Connection| !client.peer().is_operator;
        if self.clients.iter().filter(|client| is_user(client)).count() < USER_CLIENTS_MAX {
            return true;
        }
        let resting = |client: &Connection| is_user(client) && is_resting(client, now);
        match self.clients.iter().position(resting) {
            Some(index) => {
                self.clients.swap_remove(index);
                true
            }
            None => false,
        }
    }
}

/// Bytes of answers that clients have not read yet.
#[derive(Debug, Default)]
struct Unsent {
    operators: usize,
    users: usize,
}

impl Unsent {
    fn of(clients: &[Connection]) -> Self {
        let mut unsent = Self::default();
        for client in clients {
            *unsent.kept_for(client) += client.unsent_bytes();
        }
        unsent
    }

    /// Unread bytes of clients of this kind.
    fn kept_for(&mut self, client: &Connection) -> &mut usize {
        match client.peer().is_operator {
            true => &mut self.operators,
            false => &mut self.users,
        }
    }

    /// Whether unread bytes of clients of this kind exceed their limit.
    fn is_too_much(&self, client: &Connection) -> bool {
        match client.peer().is_operator {
            true => self.operators > OPERATORS_UNSENT_BYTES_MAX,
            false => self.users > USERS_UNSENT_BYTES_MAX,
        }
    }
}

/// Whether a client has been idle for [`PATIENCE`].
fn is_resting(client: &Connection, now: Instant) -> bool {
    client.doing() == Doing::Idle && client.stalled_for(now) >= PATIENCE
}

/// Result of [`Service::wait`].
struct Ready {
    stopped: bool,
    listener: bool,
    clients: Vec<bool>,
}
