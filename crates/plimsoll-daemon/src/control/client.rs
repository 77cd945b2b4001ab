//! Client of a daemon.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::{PeerCredentials, SendTimeout};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike as _};
use plimsoll_engine::runtime::RuntimeFolder;
use thiserror::Error;

use super::handles;
use super::protocol::{Answer, Envelope, OPERATORS, REQUEST_BYTES_MAX, Request, VERSION};

pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const TOO_LONG: &str = "cannot connect (allowed: a path of at most 107 bytes)";
/// Interval of checks of the daemon's process, while an answer is awaited.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of checks in a row that find the daemon stopped, after which the client gives up. One
/// is not enough: a debugger may stop it for a moment.
const STOPPED_LOOKS: u32 = 2;

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("the daemon at {path}: {failure}: {source}", path = path.display())]
    Failed {
        path: PathBuf,
        /// The failed operation.
        failure: &'static str,
        source: io::Error,
    },
    #[error("{path}: permission denied; allowed: root and members of group `{OPERATORS}`, and everybody in a cgroup subtree that is delegated to them", path = path.display())]
    Denied { path: PathBuf },
    #[error("the daemon at {path} has ended the connection; it may be restarting: try again", path = path.display())]
    Ended {
        path: PathBuf,
        /// The daemon has not read the whole request, so it has done nothing.
        is_unread: bool,
    },
    #[error("the daemon at {path} has not answered after {} s", after.as_secs(), path = path.display())]
    TooLate { path: PathBuf, after: Duration },
    #[error("the daemon at {path}, process {pid}, is stopped; `kill -CONT {pid}` continues it", path = path.display())]
    Stopped { path: PathBuf, pid: i32 },
    #[error("the request is longer than {REQUEST_BYTES_MAX} bytes")]
    TooLong,
    #[error("the daemon at {path} gave an answer that this plimsoll cannot read ({problem}); the two may be of different versions: restart the daemon", path = path.display())]
    OtherLanguage { path: PathBuf, problem: String },
}

pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    answer_within: Duration,
}

impl Client {
    /// Connects. `None`: no daemon listens there.
    ///
    /// # Errors
    /// When a daemon may listen, but does not accept the connection of this user, or of anybody.
    pub fn connect(path: &Path) -> Result<Option<Self>, ClientError> {
        Self::connect_within(path, ANSWER_WITHIN)
    }

    /// Connects as [`Client::connect`] does, with another time to wait for the connection and for
    /// each answer.
    pub fn connect_within(path: &Path, within: Duration) -> Result<Option<Self>, ClientError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock => ClientError::TooLate {
                path: path.into(),
                after: within,
            },
            _ => ClientError::Failed {
                path: path.into(),
                failure: match source.kind() {
                    io::ErrorKind::InvalidFilename => TOO_LONG,
                    _ => "cannot connect",
                },
                source,
            },
        };
        match open(path, within) {
            Ok(stream) => Ok(Some(Self {
                path: path.into(),
                stream: BufReader::new(stream),
                answer_within: within,
            })),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // In a folder of another user there is no daemon for this one.
                let is_of_host = path.parent() == Some(RuntimeFolder::of_this_host().path());
                let denied = ClientError::Denied { path: path.into() };
                if is_of_host { Err(denied) } else { Ok(None) }
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(failed(error)),
            },
        }
    }

    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.ask_about(request, None)
    }

    /// Sends a request with the handle of its process or cgroup, and waits for the answer. If the
    /// daemon has disconnected this client and still listens, the request is sent again, unless it
    /// may have been carried out: one that was not read was not, and repeating one that changes
    /// nothing does no harm.
    ///
    /// # Errors
    /// When no answer comes in time, or it cannot be parsed.
    pub fn ask_about(
        &mut self,
        request: &Request,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, ClientError> {
        let deadline = Instant::now() + self.answer_within;
        let may_repeat = request.changes_nothing();
        match self.ask_once(request, handle, deadline) {
            Err(ClientError::Ended { is_unread, .. }) if is_unread || may_repeat => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Another user may listen there now.
                let fresh = Self::connect_within(&self.path, left)?
                    .filter(|fresh| fresh.uid() == self.uid());
                self.stream = fresh.ok_or_else(|| self.ended(is_unread))?.stream;
                self.ask_once(request, handle, deadline)
            }
            other => other,
        }
    }

    fn too_late(&self) -> ClientError {
        ClientError::TooLate {
            path: self.path.clone(),
            after: self.answer_within,
        }
    }

    fn ended(&self, is_unread: bool) -> ClientError {
        ClientError::Ended {
            path: self.path.clone(),
            is_unread,
        }
    }

    /// Translates an error of the stream.
    fn failed(&self, failure: &'static str, source: io::Error) -> ClientError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.too_late(),
            // The kernel says so of a connection that was closed before all was read, or before
            // it was accepted (unix(7)).
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.ended(true),
            io::ErrorKind::UnexpectedEof => self.ended(false),
            _ => ClientError::Failed {
                path: self.path.clone(),
                failure,
                source,
            },
        }
    }

    fn ask_once(
        &mut self,
        request: &Request,
        handle: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let envelope = Envelope {
            version: VERSION,
            request: request.clone(),
        };
        let mut line = serde_json::to_vec(&envelope).map_err(|_| ClientError::TooLong)?;
        if line.len() > REQUEST_BYTES_MAX {
            return Err(ClientError::TooLong);
        }
        line.push(b'\n');
        let sent = self.limit(deadline).and_then(|()| {
            let sent = handles::send(self.stream.get_ref(), &line, handle)?;
            self.stream.get_mut().write_all(&line[sent..])
        });
        let is_cut = match sent {
            // The daemon may have answered before it closed the connection.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => true,
            other => other
                .map_err(|error| self.failed("cannot ask", error))
                .map(|()| false)?,
        };
        let answer = self.read_line(deadline).map_err(|error| match error {
            ClientError::Ended { path, is_unread } => ClientError::Ended {
                path,
                is_unread: is_unread || is_cut,
            },
            other => other,
        })?;
        serde_json::from_slice(&answer).map_err(|error| ClientError::OtherLanguage {
            path: self.path.clone(),
            problem: error.to_string(),
        })
    }

    /// Limits reads and writes to the deadline.
    fn limit(&self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Some(left.max(Duration::from_millis(1)));
        self.stream.get_ref().set_read_timeout(left)?;
        self.stream.get_ref().set_write_timeout(left)
    }

    fn read_line(&mut self, deadline: Instant) -> Result<Vec<u8>, ClientError> {
        let mut line = Vec::new();
        let mut stopped_looks = 0;
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(self.too_late());
            }
            let look = deadline.min(now + LOOK_EVERY);
            let read = self.limit(look).and_then(|()| self.stream.fill_buf());
            let (length, is_whole) = match read {
                Ok([]) => return Err(self.ended(false)),
                Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(end) => {
                        line.extend_from_slice(&bytes[..end]);
                        (end + 1, true)
                    }
                    None => {
                        line.extend_from_slice(bytes);
                        (bytes.len(), false)
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stopped_looks = self.count_if_stopped(stopped_looks)?;
                    continue;
                }
                Err(error) => return Err(self.failed("cannot read its answer", error)),
            };
            self.stream.consume(length);
            if is_whole {
                return Ok(line);
            }
        }
    }
}

impl Client {
    /// Returns the process that began to listen; `None`: it is not visible from here.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        let peer = getsockopt(self.stream.get_ref(), PeerCredentials).ok()?;
        (peer.pid() > 0).then_some(peer.pid())
    }

    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        let peer = getsockopt(self.stream.get_ref(), PeerCredentials).ok()?;
        Some(peer.uid())
    }

    /// Checks whether the daemon is stopped, and counts the checks at which it was.
    fn count_if_stopped(&self, looks: u32) -> Result<u32, ClientError> {
        match self.pid().filter(|pid| is_stopped(*pid)) {
            None => Ok(0),
            Some(_) if looks + 1 < STOPPED_LOOKS => Ok(looks + 1),
            Some(pid) => Err(ClientError::Stopped {
                path: self.path.clone(),
                pid,
            }),
        }
    }
}

/// Whether a process is stopped, by a signal or by a debugger.
fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state is behind the command's name, which may have brackets and blanks of its own.
    let state = stat.rsplit(") ").next().unwrap_or_default();
    state.starts_with(['T', 't'])
}

/// Connects; waits no longer than `within` for a place in the queue.
fn open(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let file = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let ms = i64::try_from(within.as_millis()).unwrap_or(i64::MAX).max(1);
    setsockopt(&file, SendTimeout, &TimeVal::milliseconds(ms))?;
    connect(file.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(file))
}
