//! Forwarding of signals to the command.

use std::fs::File;
use std::iter;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::unistd::{getpgrp, getpid, getsid};
use signal_hook::consts::{
    FORBIDDEN, SIGALRM, SIGBUS, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP,
    SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use super::child::Child;
use crate::caller::Caller;
use crate::error::{CommandError, Result};

/// Signals that are not forwarded: the default action of the first does not end a process, and
/// SIGBUS is, like those that cannot be handled, a fault of this process.
const KEPT: [i32; 6] = [SIGCHLD, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGBUS];
/// Signals of a terminal, which the kernel sends to all processes of the foreground.
const OF_TERMINAL: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGCONT, SIGWINCH];
/// Signals that request an end.
const ENDING: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM];

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
        // The C library keeps the first real-time signals for itself.
        let all = (1..=libc::SIGSYS).chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
        let no_handler = [&KEPT[..], FORBIDDEN].concat();
        let caller = Caller::get();
        let is_forwarded = |it: &i32| !no_handler.contains(it) && !caller.ignores(*it);
        let heard: Vec<i32> = all.filter(is_forwarded).chain([SIGCHLD]).collect();
        let failed = |error| CommandError::io("cannot handle signals")(error);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        let signals = SignalDelivery::with_pipe(read, write, WithOrigin::default(), &heard);
        let signals = signals.map_err(failed)?;
        let unblocked = set_of(&heard).thread_unblock();
        unblocked.map_err(|error| failed(error.into()))?;
        Ok(Self { signals })
    }

    /// Waits for the command to end; forwards signals meanwhile.
    pub fn until_child_ends(&mut self, child: &mut Child) -> Result<ExitStatus> {
        let failed = |error| CommandError::io("cannot wait for the command")(error);
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        loop {
            self.poll(&[], None);
            let arrived: Vec<Origin> = self.signals.pending().collect();
            // Forwards signals first, because the command may end by them.
            arrived.iter().for_each(|origin| forward(origin, child));
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
            // The shell, which waits for this process alone, takes its terminal back. A process can
            // always stop itself.
            if child.has_stopped().map_err(failed)? && is_in_foreground() {
                let _ = raise(Signal::SIGSTOP);
            }
        }
    }

    /// Returns a queued signal that requests an end.
    pub fn ending_now(&mut self) -> Option<i32> {
        let mut arrived = self.signals.pending().map(|origin| origin.signal);
        arrived.find(|signal| ENDING.contains(signal))
    }

    /// Waits for a signal that requests an end, or for the end of one of some processes, for at most
    /// `time`.
    pub fn wait(&mut self, processes: &[OwnedFd], time: Duration) -> Arrived {
        let end = Instant::now() + time;
        loop {
            if self.ending_now().is_some() {
                return Arrived::Ending;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.poll(processes, Some(left)) {
                return Arrived::Nothing;
            }
        }
    }

    /// Waits until a signal is queued, or a process ends; `None`: for any time. Returns whether one
    /// has ended.
    fn poll(&self, processes: &[OwnedFd], time: Option<Duration>) -> bool {
        let queue = self.signals.get_read().as_fd();
        let files = iter::once(queue).chain(processes.iter().map(OwnedFd::as_fd));
        let files = files.map(|file| PollFd::new(file, PollFlags::POLLIN));
        let mut files: Vec<PollFd<'_>> = files.collect();
        // Rounded up: a wait that ends early would begin again.
        let ms = time.map(|time| PollTimeout::try_from(time.as_millis() + 1));
        let time = ms.map_or(PollTimeout::NONE, |ms| ms.unwrap_or(PollTimeout::MAX));
        // A signal that interrupts the wait is queued.
        let _ = poll(&mut files, time);
        files[1..].iter().any(|process| process.any() == Some(true))
    }
}

/// Returns whether this process has its terminal.
fn is_in_foreground() -> bool {
    let terminal = File::open("/dev/tty");
    // SAFETY: the file is open during the call.
    let has_it = |it: File| unsafe { libc::tcgetpgrp(it.as_raw_fd()) } == getpgrp().as_raw();
    terminal.is_ok_and(has_it)
}

/// Forwards a signal unless the command has got it already, or this process has caused it.
fn forward(origin: &Origin, child: &Child) {
    let leads_session = getsid(None) == Ok(getpid());
    // As the kernel does for a write to a closed pipe, or beyond the limit of a file's size.
    let is_own = origin.process.is_some_and(|it| it.pid == getpid().as_raw());
    if origin.signal == SIGCHLD || is_own || is_doubled(origin.signal, origin.cause, leads_session)
    {
        return;
    }
    // SAFETY: takes integers only; the pid is not reused before the child is waited for. The
    // function of `nix` knows no real-time signals.
    unsafe { libc::kill(child.pid().as_raw(), origin.signal) };
}

/// Returns whether the terminal sent a signal: the command, as a member of the same process group,
/// has then got it already. Only the session leader gets the SIGHUP of a terminal. Other signals of
/// the kernel are for this process alone, such as that of an alarm that was set before `exec`.
fn is_doubled(signal: i32, cause: Cause, leads_session: bool) -> bool {
    let for_leader_alone = signal == SIGHUP && leads_session;
    cause == Cause::Kernel && OF_TERMINAL.contains(&signal) && !for_leader_alone
}

/// Set of any signals, real-time ones included, which the type of `nix` does not name.
fn set_of(signals: &[i32]) -> SigSet {
    let mut set = *SigSet::empty().as_ref();
    for signal in signals {
        // SAFETY: the set is valid, and lives until the call returns.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: as above.
    unsafe { SigSet::from_sigset_t_unchecked(set) }
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::siginfo::Sent;

    use super::*;

    #[test]
    fn only_signals_of_the_terminal_are_not_forwarded() {
        let sent = Cause::Sent(Sent::User);
        for (signal, cause, leads_session, expected) in [
            (SIGINT, Cause::Kernel, false, true),
            (SIGINT, sent, false, false),
            (SIGWINCH, Cause::Kernel, true, true),
            (SIGHUP, Cause::Kernel, false, true),
            (SIGHUP, Cause::Kernel, true, false),
            (SIGALRM, Cause::Kernel, false, false),
            (libc::SIGXCPU, Cause::Kernel, false, false),
            (libc::SIGIO, Cause::Unknown, false, false),
        ] {
            let found = is_doubled(signal, cause, leads_session);
            assert_eq!(found, expected, "{signal} {cause:?} {leads_session}");
        }
    }
}
