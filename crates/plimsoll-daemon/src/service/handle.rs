//! Messages of other threads to the service.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::options::{Attached, TakeGuard};
use crate::control::handler::Handler;
use crate::control::protocol::{Answer, Request};
use crate::state::State;

/// Maximum time that a client waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

pub(super) enum Message {
    Ask {
        request: Request,
        handle: Option<OwnedFd>,
        reply: SyncSender<Answer>,
    },
    /// Request of the state, for the metrics.
    State {
        reply: SyncSender<State>,
    },
    Reload,
    /// Opens a problem for the operator; `None` closes it.
    Problem {
        about: &'static str,
        problem: Option<String>,
    },
    /// Result of [`Starter::attach_guard`](super::Starter::attach_guard).
    Guard(Attached),
    /// Lines of the enforcer for the log.
    Reports(Vec<String>),
    Stop {
        leaves_groups: bool,
    },
}

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

    pub fn next_within(&self, time: Duration) -> Option<Message> {
        self.receiver.recv_timeout(time).ok()
    }

    pub fn take(&self) -> Vec<Message> {
        // Before the queue is read: a message in between wakes the service again. The read
        // fails if nothing woke it, which is fine.
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
        // Fails only at the counter's maximum, and the service is awake then.
        let _ = self.wake.write(1);
        sent
    }

    pub fn reload(&self) {
        self.send(Message::Reload);
    }

    /// Opens or closes a problem outside the service. It is logged once, and part of every
    /// state until it is closed.
    pub fn note_problem(&self, about: &'static str, problem: Option<String>) {
        self.send(Message::Problem { about, problem });
    }

    pub(super) fn report(&self, messages: Vec<String>) {
        self.send(Message::Reports(messages));
    }

    /// Returns the function that hands the guard to the service.
    pub(super) fn take_guard(&self) -> TakeGuard {
        let handle = self.clone();
        Arc::new(move |attached| {
            handle.send(Message::Guard(attached));
        })
    }

    pub fn stop(&self) {
        self.send(Message::Stop {
            leaves_groups: false,
        });
    }

    /// Ends the service, which leaves all groups to the next owner.
    pub fn leave(&self) {
        self.send(Message::Stop {
            leaves_groups: true,
        });
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

impl Handle {
    /// Sends a request. The answer, if any, comes with a later turn of the service; `None`: the
    /// service has ended.
    pub fn ask(&self, request: Request, handle: Option<OwnedFd>) -> Option<Receiver<Answer>> {
        let (reply, answer) = sync_channel(1);
        let message = Message::Ask {
            request,
            handle,
            reply,
        };
        self.send(message).then_some(answer)
    }
}

impl Handler for Handle {
    fn answer(&self, request: Request, handle: Option<OwnedFd>) -> Answer {
        let Some(answer) = self.ask(request, handle) else {
            return Answer::Ending;
        };
        answer
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|error| match error {
                // The service has ended before it answered.
                RecvTimeoutError::Disconnected => Answer::Ending,
                RecvTimeoutError::Timeout => Answer::Refused(format!(
                    "the daemon has not answered within {} s and still works on the request; \
                     `plimsoll show` shows the result",
                    ANSWER_MAX.as_secs()
                )),
            })
    }
}
