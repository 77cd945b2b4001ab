//! Forwarding of signals to the command.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getsid};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::error::{CommandError, Result};

/// Signals that are forwarded to the command.
const FORWARDED: [i32; 9] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH,
];
/// Signals that request an end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// Interval at which signals are polled during other waits.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// No signal that requests an end.
    Nothing,
    /// A signal requests an end.
    Ending,
}

/// Queue of this process's signals, which have no default effect.
pub struct Signals {
    signals: SignalsInfo<WithOrigin>,
}

impl Signals {
    /// Queues signals from here on. Signals that are ignored (such as by `nohup`) stay ignored,
    /// also by the command.
    pub fn register() -> Result<Self> {
        let heard = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
        let signals = SignalsInfo::<WithOrigin>::new(heard.chain([SIGCHLD]));
        let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
        Ok(Self { signals })
    }

    /// Waits for the command to end; forwards signals meanwhile.
    pub fn until_child_ends(&mut self, child: &mut Child) -> Result<ExitStatus> {
        let failed = |error| CommandError::io("cannot wait for the command")(error);
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        loop {
            let arrived: Vec<Origin> = self.signals.wait().collect();
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

    /// Waits for at most `time`.
    pub fn wait(&mut self, time: Duration) -> Arrived {
        let end = Instant::now() + time;
        loop {
            if self.ending_now().is_some() {
                return Arrived::Ending;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Arrived::Nothing;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
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
    // The pid fits, and is not reused before the child is waited for.
    let pid = Pid::from_raw(child.id().cast_signed());
    if let Ok(signal) = Signal::try_from(origin.signal) {
        let _ = kill(pid, signal);
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only fills in the old one, for
    // which there is room.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed is a valid value of this plain struct, filled or not.
    let action = unsafe { action.assume_init() };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}
