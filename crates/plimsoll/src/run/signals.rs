//! Signals while a command runs: passed on to it.

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

/// Passed on to the command.
const FORWARDED: [i32; 9] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGWINCH,
];
/// Those that mean "end".
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// How often signals are looked for while waiting for something else too.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What a wait brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    /// Nothing that matters.
    Nothing,
    /// Somebody wants an end.
    Ending,
}

/// The signals of this process, held back from their default effect.
pub struct Signals {
    signals: SignalsInfo<WithOrigin>,
}

impl Signals {
    /// From here on signals wait to be handled. Those that this process was
    /// told to ignore (by `nohup`, say) stay ignored, for the command too.
    pub fn register() -> Result<Self> {
        let heard = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
        let signals = SignalsInfo::<WithOrigin>::new(heard.chain([SIGCHLD]));
        let signals = signals.map_err(CommandError::io("cannot handle signals"))?;
        Ok(Self { signals })
    }

    /// Waits for the command to end; passes on what arrives meanwhile.
    pub fn until_child_ends(&mut self, child: &mut Child) -> Result<ExitStatus> {
        let failed = |error| CommandError::io("cannot wait for the command")(error);
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        loop {
            let arrived: Vec<Origin> = self.signals.wait().collect();
            // First what has arrived: the command may end of it.
            arrived.iter().for_each(|origin| forward(origin, child));
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(status);
            }
        }
    }

    /// A signal that means "end" and has arrived by now.
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

/// Passes a signal on, unless the terminal sent it: then the command has it
/// already, as a member of the same process group. The end of a terminal is
/// told to the leader of the session alone.
fn forward(origin: &Origin, child: &Child) {
    let for_leader_alone = origin.signal == SIGHUP && getsid(None) == Ok(getpid());
    let has_it_already = origin.cause == Cause::Kernel && !for_leader_alone;
    if origin.signal == SIGCHLD || has_it_already {
        return;
    }
    // A pid fits, and the child has not been waited for: it is its own.
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
