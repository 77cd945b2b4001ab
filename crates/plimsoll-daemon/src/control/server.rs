//! The socket: takes clients, waits for what they send, and answers.
//!
//! One thread and no more for all clients. None can hold up another: nothing
//! blocks but the [`Handler`], every client has deadlines, and what is kept
//! for all of them together is limited.

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

use super::connection::{Connection, Doing, Ended};
use super::peer::{Operators, Peer};
use super::protocol::{Answer, Request};

/// Clients that are served at a time; others wait until they are accepted.
pub const CLIENTS_MAX: usize = 64;
/// Of those, by users who are not operators; others are told to come back.
pub const USER_CLIENTS_MAX: usize = 48;
/// Clients that wait to be accepted.
const WAITING_CLIENTS_MAX: i32 = 1024;
/// So many are accepted before those that are there have their turn: others may
/// come faster than they can be told to come back.
const ACCEPTED_AT_ONCE: usize = 64;
/// No more than this and one answer is kept for operators who have not read it.
const OPERATORS_UNSENT_BYTES_MAX: usize = 12 << 20;
/// The same for all others: what they do not read holds up no operator.
const USERS_UNSENT_BYTES_MAX: usize = 8 << 20;
/// Where others wait, a client may do nothing for this long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where others wait, an answer has to be read to its end within this time.
const READ_WHILE_OTHERS_WAIT: Duration = Duration::from_secs(5);
/// Without room, and after an error of accepting, such as no file left.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What answers.
pub trait Handler: Send + Sync {
    /// Answers a request, having looked whether the peer may ask it. The
    /// other clients wait meanwhile.
    fn answer(&self, peer: &Peer, request: Request) -> Answer;

    /// A peer sent what is no request, and was told so.
    fn unreadable(&self, _peer: &Peer) {}
}

/// Why nobody listens.
#[derive(Debug, Error)]
pub enum ServerError {
    /// Somebody else does.
    #[error("{path}: another daemon listens there", path = path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The socket could not be made.
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
    /// The socket's device and inode: a later daemon's is left alone.
    identity: (u64, u64),
    /// Closed to stop the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to listen at `path`, for anybody. A socket that a dead daemon
    /// left there is replaced in one step.
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
        let (listener, identity) = make_socket(path).map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let service = Service {
            listener,
            stopped,
            handler,
            operators: Operators::default(),
            clients: Vec::new(),
            accept_after: None,
        };
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || service.run())
            .map_err(failed)?;
        Ok(Self {
            path: path.into(),
            identity,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Removes the socket, leaves all clients and ends the thread, once a
    /// request that is being answered is answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Gone already is as good.
            let _ = fs::remove_file(&self.path);
        }
        drop(self.stop.take());
        // If it panicked, it has ended all the same.
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

/// Makes a socket that anybody may connect to, whole before it has its name.
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
    let mut client = Connection::new(stream, peer)?;
    loop {
        let now = Instant::now();
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

/// What to wait for.
fn events(client: &Connection) -> PollFlags {
    match client.doing() {
        Doing::Answering => PollFlags::POLLOUT,
        // It waits for us.
        _ if client.has_request() => PollFlags::empty(),
        Doing::Idle | Doing::Asking => PollFlags::POLLIN,
    }
}

/// A time to wait, never shorter than it is.
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

/// Does for a client what can be done now: one request at most.
fn turn(
    client: &mut Connection,
    is_ready: bool,
    may_answer: bool,
    handler: &dyn Handler,
) -> Result<(), Ended> {
    if is_ready {
        // Nothing was waited for of one that waits: it can only be gone.
        if client.has_request() {
            return Err(Ended);
        }
        client.transmit()?;
        client.receive()?;
    } else if client.doing() == Doing::Asking && client.deadline() <= Instant::now() {
        // The rest may have come while another was answered.
        client.receive()?;
    }
    if may_answer {
        client.answer(handler);
    }
    client.transmit()?;
    // A request that is whole waits for us, not for its client.
    if client.has_request() {
        return Ok(());
    }
    client.check_deadline(Instant::now())
}

/// What the thread works with.
struct Service {
    listener: UnixListener,
    stopped: UnixStream,
    handler: Arc<dyn Handler>,
    operators: Operators,
    clients: Vec<Connection>,
    /// Nobody is accepted before.
    accept_after: Option<Instant>,
}

impl Service {
    fn run(mut self) {
        loop {
            let Ok(ready) = self.wait() else {
                // Nothing but a fault of ours can make waiting impossible.
                std::thread::sleep(LOOK_AGAIN);
                continue;
            };
            if ready.stopped {
                self.answer_the_last();
                return;
            }
            self.serve_all(&ready.clients);
            self.make_room();
            if ready.listener || self.accept_after.is_some_and(|at| at <= Instant::now()) {
                self.accept_some();
            }
        }
    }

    /// Those that have asked by now learn that nothing was done.
    fn answer_the_last(&mut self) {
        self.accept_some();
        for client in &mut self.clients {
            // One that has gone needs no answer.
            if client.receive().is_ok() {
                client.answer(&*self.handler);
                let _ = client.transmit();
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> io::Result<Ready> {
        let now = Instant::now();
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

    /// When something falls due that no client announces.
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

    /// Serves those that have something for us, or for whom we have something.
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

    /// Where others wait, those go that do nothing: until a request has come
    /// they cost a place, and later they cost memory.
    fn make_room(&mut self) {
        let now = Instant::now();
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

    /// Whether somebody waits to be accepted.
    fn is_awaited(&self) -> bool {
        let mut files = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut files, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Takes some of those that wait, while there is room.
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
                    self.accept_after = Some(Instant::now() + LOOK_AGAIN);
                    return;
                }
            }
        }
    }

    /// Takes one, unless users who are no operators have all that they may
    /// have: an operator always finds a place.
    fn take(&mut self, stream: UnixStream) {
        let peer = Peer::of(&stream, self.operators.gid());
        // One who cannot be told from others, or has gone, is not served.
        let Ok(mut client) = peer.and_then(|peer| Connection::new(stream, peer)) else {
            return;
        };
        if !client.peer().is_operator && !self.has_room_for_user() {
            client.end_with(&Answer::Busy);
            // It fits into the socket's buffer, or is lost with the client.
            let _ = client.transmit();
            return;
        }
        self.clients.push(client);
    }

    /// Whether another user's client may be served, if need be in place of one
    /// that does nothing.
    fn has_room_for_user(&mut self) -> bool {
        let now = Instant::now();
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

    /// What is kept for clients like this one.
    fn kept_for(&mut self, client: &Connection) -> &mut usize {
        match client.peer().is_operator {
            true => &mut self.operators,
            false => &mut self.users,
        }
    }

    /// Whether nothing more may be kept for clients like this one.
    fn is_too_much(&self, client: &Connection) -> bool {
        match client.peer().is_operator {
            true => self.operators > OPERATORS_UNSENT_BYTES_MAX,
            false => self.users > USERS_UNSENT_BYTES_MAX,
        }
    }
}

/// Has had its time, and nothing is outstanding.
fn is_resting(client: &Connection, now: Instant) -> bool {
    client.doing() == Doing::Idle && client.stalled_for(now) >= PATIENCE
}

/// What [`Service::wait`] found.
struct Ready {
    stopped: bool,
    listener: bool,
    clients: Vec<bool>,
}
