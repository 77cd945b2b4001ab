//! Forwarding of signals to the command.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{getpid, getsid};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use super::child::Child;
use crate::caller::is_ignored;
use crate::error::{CommandError, Result};

/// Signals that are forwarded to the command.
const FORWARDED: [i32; 9] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH,
];
/// Signals that request an end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// No signal that requests an end.
    Nothing,
    /// A signal requests an end.
    Ending,
}

/// Queue of this process's signals, which have no default effect.
pub struct Signals {
    signals: SignalDelivery<UnixStream, WithOrigin>,
}

impl Signals {
    /// Queues signals from here on, also those that the caller has blocked: the command has to
    /// get them, and the end of the command has to be heard of. Signals that are ignored (such as
    /// by `nohup`) stay ignored, also by the command.
    pub fn register() -> Result<Self> {
        let heard = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
        let heard: Vec<i32> = heard.chain([SIGCHLD]).collect();
        let failed = |error| CommandError::io("cannot handle signals")(error);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        let signals = SignalDelivery::with_pipe(read, write, WithOrigin::default(), &heard);
        let signals = signals.map_err(failed)?;
        let set: SigSet = heard
            .into_iter()
            .flat_map(|signal| Signal::try_from(signal).ok())
            .collect();
        set.thread_unblock().map_err(|error| failed(error.into()))?;
        Ok(Self { signals })
    }

    /// Waits for the command to end; forwards signals meanwhile.
    pub fn until_child_ends(&mut self, child: &mut Child) -> Result<ExitStatus> {
        let failed = |error| CommandError::io("cannot wait for the command")(error);
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        loop {
            self.poll(None, None);
            let arrived: Vec<Origin> = self.signals.pending().collect();
            // Forwards signals first, because the command may end by them.
            arrived.iter().for_each(|origin| forward(origin, child));
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
        }
    }

    /// Returns a queued signal that requests an end.
    pub fn ending_now(&mut self) -> Option<i32> {
        let mut arrived = self.signals.pending().map(|origin| origin.signal);
        arrived.find(|signal| ENDING.contains(signal))
    }

    /// Waits for a signal that requests an end, or for an exceptional condition of a file, for at
    /// most `time`.
    pub fn wait(&mut self, event: Option<BorrowedFd<'_>>, time: Duration) -> Arrived {
        let end = Instant::now() + time;
        loop {
            if self.ending_now().is_some() {
                return Arrived::Ending;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.poll(event, Some(left)) {
                return Arrived::Nothing;
            }
        }
    }

    /// Waits until a signal is queued, or a file has an exceptional condition; `None`: for any
    /// time. Returns whether the file has.
    fn poll(&self, event: Option<BorrowedFd<'_>>, time: Option<Duration>) -> bool {
        let queue = self.signals.get_read().as_fd();
        let mut files = vec![PollFd::new(queue, PollFlags::POLLIN)];
        files.extend(event.map(|event| PollFd::new(event, PollFlags::POLLPRI)));
        // Rounded up: a wait that ends early would begin again.
        let ms = time.map(|time| PollTimeout::try_from(time.as_millis() + 1));
        let time = ms.map_or(PollTimeout::NONE, |ms| ms.unwrap_or(PollTimeout::MAX));
        // A signal that interrupts the wait is queued.
        let _ = poll(&mut files, time);
        files.get(1).is_some_and(|event| event.any() == Some(true))
    }
}

/// Forwards a signal unless the terminal sent it: the command, as a member of the same process
/// group, has then got it already. Only the session leader gets the SIGHUP of a terminal.
fn forward(origin: &Origin, child: &Child) {
    let for_leader_alone = origin.signal == SIGHUP && getsid(None) == Ok(getpid());
    let has_it_already = origin.cause == Cause::Kernel && !for_leader_alone;
    if origin.signal == SIGCHLD || has_it_already {
        return;
    }
    // The pid is not reused before the child is waited for.
    if let Ok(signal) = Signal::try_from(origin.signal) {
        let _ = kill(child.pid(), signal);
    }
}
