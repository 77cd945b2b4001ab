//! How other threads reach the service.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::control::peer::Peer;
use crate::control::protocol::{Answer, Request};
use crate::control::server::Handler;
use crate::state::State;

/// Nobody waits longer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What is sent to the service.
pub(super) enum Message {
    /// A client's request.
    Ask {
        peer: Peer,
        request: Request,
        reply: SyncSender<Answer>,
    },
    /// For the metrics.
    State { reply: SyncSender<State> },
    /// Read the configuration again.
    Reload,
    /// Note or clear what somebody should look at.
    Problem {
        about: &'static str,
        problem: Option<String>,
    },
    /// What the enforcer reports.
    Reports(Vec<String>),
    /// Put everything back and end.
    Stop,
}

/// Where messages arrive.
pub(super) struct Inbox {
    receiver: Receiver<Message>,
    handle: Handle,
}

/// Sends messages to the service.
#[derive(Clone)]
pub struct Handle {
    sender: Sender<Message>,
    wake: Arc<EventFd>,
}

impl Inbox {
    /// # Errors
    /// When this process has too many open files.
    pub fn new() -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wake = Arc::new(EventFd::from_flags(flags)?);
        let handle = Handle { sender, wake };
        Ok(Self { receiver, handle })
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What has arrived.
    pub fn take(&self) -> Vec<Message> {
        // Before looking: what comes in between wakes again. Empty is fine.
        let _ = self.handle.wake.read();
        self.receiver.try_iter().collect()
    }
}

impl AsFd for Inbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.wake.as_fd()
    }
}

impl Handle {
    fn send(&self, message: Message) -> bool {
        let sent = self.sender.send(message).is_ok();
        // Only fails when it has been woken for ever.
        let _ = self.wake.write(1);
        sent
    }

    /// Reads the configuration again, some time soon.
    pub fn reload(&self) {
        self.send(Message::Reload);
    }

    /// Notes what is wrong about something beside the service, or that it is
    /// not wrong any more: told once, and in every state until then.
    pub fn note_problem(&self, about: &'static str, problem: Option<String>) {
        self.send(Message::Problem { about, problem });
    }

    /// Has lines of the enforcer logged.
    pub(super) fn report(&self, messages: Vec<String>) {
        self.send(Message::Reports(messages));
    }

    /// Ends the service.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    /// The state, for the metrics; `None`: the service is ending or too busy.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let (reply, answer) = sync_channel(1);
        if !self.send(Message::State { reply }) {
            return None;
        }
        answer.recv_timeout(ANSWER_MAX).ok()
    }
}

impl Handler for Handle {
    fn answer(&self, peer: &Peer, request: Request) -> Answer {
        let (reply, answer) = sync_channel(1);
        let asked = Message::Ask {
            peer: peer.clone(),
            request,
            reply,
        };
        if !self.send(asked) {
            return Answer::Ending;
        }
        answer
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|error| match error {
                // The service has ended before it came to this.
                RecvTimeoutError::Disconnected => Answer::Ending,
                RecvTimeoutError::Timeout => Answer::Refused(format!(
                    "the daemon has not answered within {} s: it is still at work on it, and \
                     `plimsoll show` will tell",
                    ANSWER_MAX.as_secs()
                )),
            })
    }
}
