//! Signals and standard streams as the caller of this process has set them: the command of `run`
//! gets exactly these.

use std::sync::OnceLock;

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

static CALLER: OnceLock<Caller> = OnceLock::new();

/// Entry in the loader's list of functions to call before Rust's runtime starts, which ignores
/// SIGPIPE and opens closed standard streams.
// SAFETY: the loader calls each function of this section once, with arguments that this one does
// not take; nothing in it needs the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    Caller::get();
}

#[derive(Debug)]
pub struct Caller {
    /// Blocked signals.
    mask: SigSet,
    /// Ignored signals. All others have the default action, because a program has no handlers
    /// when it starts.
    ignored: SigSet,
    /// Whether standard input, output and error are closed.
    closed: [bool; 3],
}

impl Caller {
    /// The settings with which this process was started.
    pub fn get() -> &'static Self {
        CALLER.get_or_init(Self::look)
    }

    fn look() -> Self {
        // It fails only with invalid arguments.
        let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
        let ignored = Signal::iterator().filter(|signal| is_ignored(*signal as i32));
        Self {
            mask,
            ignored: ignored.collect(),
            closed: [0, 1, 2].map(|stream| {
                // SAFETY: takes integers only.
                unsafe { libc::fcntl(stream, libc::F_GETFD) == -1 }
            }),
        }
    }

    /// Returns whether the caller has ignored a signal.
    pub fn ignores(&self, number: i32) -> bool {
        match Signal::try_from(number) {
            Ok(signal) => self.ignored.contains(signal),
            // A real-time signal, which nothing here ignores.
            Err(_) => is_ignored(number),
        }
    }

    /// Gives this process the settings. Makes only system calls, for use between fork and exec.
    pub fn restore(&self) {
        for changed in Signal::iterator() {
            let action = match self.ignored.contains(changed) {
                true => SigHandler::SigIgn,
                false => SigHandler::SigDfl,
            };
            // SAFETY: no handler is installed. SIGKILL and SIGSTOP refuse, and need nothing.
            let _ = unsafe { signal(changed, action) };
        }
        for changed in (libc::SIGRTMIN()..=libc::SIGRTMAX()).filter(|it| !self.ignores(*it)) {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(changed, libc::SIG_DFL) };
        }
        for (stream, _) in (0..).zip(self.closed).filter(|(_, closed)| *closed) {
            // SAFETY: takes an integer only; nothing in this process uses the stream any more.
            unsafe { libc::close(stream) };
        }
        // Last, so that no signal meets a handler of this program. Cannot fail.
        let _ = self.mask.thread_set_mask();
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

pub fn stop_ignoring(signal: i32) {
    if is_ignored(signal) {
        // SAFETY: no handler is installed or lost.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Unblocks all signals, for the calling thread and those that it starts.
pub fn unblock_signals() {
    // Fails only with invalid arguments.
    let _ = SigSet::empty().thread_set_mask();
}
