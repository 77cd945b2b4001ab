//! One client: its received and unsent bytes, and its deadlines.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::handler::Handler;
use super::handles::{self, Received};
use super::protocol::{Answer, Envelope, REQUEST_BYTES_MAX, VERSION};

/// Time from the first byte of a request to its end.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(5);
/// Time within which a client has to read a part of its answer.
pub const READ_SOMETHING_WITHIN: Duration = Duration::from_secs(5);
/// Time within which a client has to read its whole answer.
pub const READ_ALL_WITHIN: Duration = Duration::from_secs(30);
/// Time within which an idle client has to send a request.
pub const ASK_WITHIN: Duration = Duration::from_secs(120);
/// Bytes that are read at once, so that no client delays the others.
const PIECE_BYTES: usize = 16 * 1024;

/// The version of a request alone; other fields are ignored.
#[derive(Deserialize)]
struct RequestVersion {
    version: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Nothing is outstanding on either side.
    Idle,
    /// A part of a request has been received.
    Asking,
    /// A part of an answer is not read yet.
    Answering,
}

pub struct Connection {
    handler: Arc<dyn Handler>,
    stream: UnixStream,
    received: Vec<u8>,
    /// Handle that came with the received bytes.
    handle: Option<OwnedFd>,
    unsent: Vec<u8>,
    sent: usize,
    /// Start of the present state.
    began: Instant,
    /// Time at which a byte was last sent or received.
    moved: Instant,
    /// The connection ends after the unsent bytes.
    is_last: bool,
}

/// The client is gone, or is disconnected.
#[derive(Debug, PartialEq, Eq)]
pub struct Disconnected;

impl Connection {
    pub fn new(stream: UnixStream, handler: Arc<dyn Handler>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let now = handler.now();
        Ok(Self {
            handler,
            stream,
            received: Vec::new(),
            handle: None,
            unsent: Vec::new(),
            sent: 0,
            began: now,
            moved: now,
            is_last: false,
        })
    }

    pub fn now(&self) -> Instant {
        self.handler.now()
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub fn doing(&self) -> Doing {
        if !self.unsent.is_empty() {
            Doing::Answering
        } else if self.received.is_empty() {
            Doing::Idle
        } else {
            Doing::Asking
        }
    }

    /// Returns the memory, not the length, of the unsent bytes.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.capacity()
    }

    pub fn stalled_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.moved)
    }

    /// Returns the time since the answer was made, if the client is being answered.
    pub fn answered_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Whether a whole request waits for its answer.
    pub fn has_request(&self) -> bool {
        self.doing() == Doing::Asking && self.received.contains(&b'\n')
    }

    /// Returns the time at which the client is disconnected unless it makes progress.
    pub fn deadline(&self) -> Instant {
        match self.doing() {
            Doing::Idle => self.moved + ASK_WITHIN,
            Doing::Asking => self.began + WHOLE_WITHIN,
            Doing::Answering => {
                (self.moved + READ_SOMETHING_WITHIN).min(self.began + READ_ALL_WITHIN)
            }
        }
    }

    pub fn receive(&mut self) -> Result<(), Disconnected> {
        // Further requests stay in the socket until the client has read its answer.
        if self.is_last || self.doing() == Doing::Answering || self.has_request() {
            return Ok(());
        }
        let mut piece = [0; PIECE_BYTES];
        match handles::receive(&self.stream, &mut piece) {
            Ok(Received { length: 0, .. }) => Err(Disconnected),
            Ok(received) if received.is_cut => {
                self.refuse(
                    "the file that came with the request could not be received; the daemon may \
                     have too many open files",
                );
                Ok(())
            }
            Ok(Received { length, handle, .. }) => {
                let end = piece[..length].iter().position(|byte| *byte == b'\n');
                let is_alone = self.received.is_empty() && end.is_none_or(|end| end + 1 == length);
                if handle.is_some() && !is_alone {
                    // The file would go with the wrong request.
                    self.refuse("a request with a file is sent by itself, its file first");
                    return Ok(());
                }
                self.handle = handle.or(self.handle.take());
                self.moved = self.handler.now();
                if self.received.is_empty() {
                    self.began = self.moved;
                }
                self.received.extend_from_slice(&piece[..length]);
                Ok(())
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(_) => Err(Disconnected),
        }
    }

    /// Answers the next request if it is whole, and refuses one that is too long.
    pub fn answer(&mut self) {
        if self.doing() != Doing::Asking {
            return;
        }
        match self.received.iter().position(|byte| *byte == b'\n') {
            Some(end) if end <= REQUEST_BYTES_MAX => {
                let (line, handle) = (&self.received[..end], self.handle.take());
                let answer = answer_line(line, handle, &*self.handler);
                self.received.drain(..=end);
                self.send(&answer);
            }
            None if self.received.len() <= REQUEST_BYTES_MAX => {}
            _ => {
                self.handler.unreadable();
                self.refuse(&format!(
                    "the request is longer than {REQUEST_BYTES_MAX} bytes"
                ));
            }
        }
    }

    /// Refuses any request, and ends the connection.
    pub fn refuse(&mut self, why: &str) {
        self.received = Vec::new();
        self.is_last = true;
        self.send(&Answer::Refused(why.into()));
    }

    fn send(&mut self, answer: &Answer) {
        let text = serde_json::to_vec(answer).or_else(|error| {
            serde_json::to_vec(&Answer::Refused(format!("the answer is no JSON: {error}")))
        });
        // The second answer is plain text, which always serialises.
        self.unsent = text.unwrap_or_default();
        self.unsent.push(b'\n');
        self.sent = 0;
        self.began = self.handler.now();
        self.moved = self.began;
    }

    /// Sends as much as the client takes.
    ///
    /// # Errors
    /// When the client is gone, or has received its last answer.
    pub fn transmit(&mut self) -> Result<(), Disconnected> {
        while self.sent < self.unsent.len() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(Disconnected),
                Ok(length) => {
                    self.sent += length;
                    self.moved = self.handler.now();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Disconnected),
            }
        }
        if self.is_last {
            return Err(Disconnected);
        }
        if !self.unsent.is_empty() {
            // Frees megabytes that an idle client would hold.
            self.unsent = Vec::new();
            self.sent = 0;
            self.began = self.handler.now();
        }
        Ok(())
    }

    /// Disconnects a client that takes too long. One with an unfinished request is refused
    /// first.
    ///
    /// # Errors
    /// When it is disconnected.
    pub fn check_deadline(&mut self, now: Instant) -> Result<(), Disconnected> {
        if now < self.deadline() {
            return Ok(());
        }
        if self.doing() == Doing::Asking {
            let seconds = WHOLE_WITHIN.as_secs();
            self.refuse(&format!("the request is not whole after {seconds} s"));
            return self.transmit();
        }
        Err(Disconnected)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn answer_line(line: &[u8], handle: Option<OwnedFd>, handler: &dyn Handler) -> Answer {
    let refused = |why: String| {
        handler.unreadable();
        Answer::Refused(why)
    };
    let version = match serde_json::from_slice::<RequestVersion>(line) {
        Ok(stated) => stated.version,
        Err(error) => return refused(format!("not a request: {error}")),
    };
    if version != VERSION {
        return refused(format!(
            "the request is of version {version} and the daemon speaks version {VERSION}: \
             the command and the daemon are not of the same Plimsoll; restart the older one \
             (`kill {}` ends this daemon, and the next takes its groups over)",
            std::process::id()
        ));
    }
    let request = match serde_json::from_slice::<Envelope>(line) {
        Ok(envelope) => envelope.request,
        Err(error) => return refused(format!("not a request: {error}")),
    };
    // A panic at one request must not end the thread, which serves all clients.
    let answer = catch_unwind(AssertUnwindSafe(|| handler.answer(request, handle)));
    answer.unwrap_or_else(|_| {
        Answer::Refused("the daemon failed at this request; see its log".into())
    })
}
