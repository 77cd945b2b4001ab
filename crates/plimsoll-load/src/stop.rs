//! Ending a workload early, by call or by signal.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::LoadError;

/// Value of [`Stop::set`]; no signal has this number.
const BY_CALL: usize = usize::MAX;
/// Interval at which waits check the flag if no socket could be opened to wake
/// them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends workloads early. Clones share the flag; once set it stays
/// set.
///
/// Waiters sleep until it is set instead of polling, because periodic wake-ups
/// would disturb the measured work: the kernel changes the CPU share of a group
/// in which a task wakes up.
#[derive(Debug, Clone)]
pub struct Stop {
    reason: Arc<AtomicUsize>,
    /// Socket pair that becomes readable when the flag is set and stays so, to
    /// wake all waiters. `None` if the process has no free file descriptor.
    wakeup: Option<Arc<(UnixStream, UnixStream)>>,
}

impl Default for Stop {
    fn default() -> Self {
        let wakeup = UnixStream::pair().and_then(|(receiver, sender)| {
            sender.set_nonblocking(true)?;
            Ok(Arc::new((receiver, sender)))
        });
        Self {
            reason: Arc::default(),
            wakeup: wakeup.ok(),
        }
    }
}

impl Stop {
    /// A flag that only [`Stop::set`] sets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that SIGINT and SIGTERM set as well, from now on and for the
    /// lifetime of the process.
    ///
    /// # Errors
    /// If the signal handlers can't be installed.
    pub fn on_signals() -> Result<Self, LoadError> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            let value = signal.unsigned_abs() as usize;
            let failed = |e| LoadError::io(format!("installing the handler of signal {signal}"), e);
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.reason), value)
                .map_err(failed)?;
            if let Some(wakeup) = &stop.wakeup {
                let sender = wakeup.1.try_clone().map_err(failed)?;
                // Registered after the flag: handlers run in the order of their
                // registration.
                signal_hook::low_level::pipe::register(signal, sender).map_err(failed)?;
            }
        }
        Ok(stop)
    }

    pub fn set(&self) {
        // An earlier signal is kept, because it determines the exit code.
        let _ = self
            .reason
            .compare_exchange(0, BY_CALL, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(wakeup) = &self.wakeup {
            // If the socket is full, all waiters are awake already.
            let _ = (&wakeup.1).write(&[0]);
        }
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.reason.load(Ordering::Relaxed) != 0
    }

    /// Number of the signal that set the flag, if it was one.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.reason.load(Ordering::Relaxed))
            .ok()
            .filter(|&n| n != 0)
    }

    /// Sleeps for `at_most`, or until the flag is set. Returns whether it is set.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        while !self.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.sleep(left);
        }
        true
    }

    /// Sleeps for `at_most`, or until the socket becomes readable.
    fn sleep(&self, at_most: Duration) {
        let Some(wakeup) = &self.wakeup else {
            std::thread::sleep(at_most.min(LOOK_EVERY));
            return;
        };
        // Rounded up: a waiter that wakes too early would poll again at once.
        let at_most = at_most.saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let fd = PollFd::new(wakeup.0.as_fd(), PollFlags::POLLIN);
        // Another signal may interrupt the sleep; the caller repeats it.
        let _ = poll(&mut [fd], timeout);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_not_a_signal() {
        let stop = Stop::new();
        assert!(!stop.is_set() && !stop.wait(Duration::ZERO));
        stop.clone().set();
        assert!(stop.is_set() && stop.wait(Duration::from_secs(3600)));
        assert_eq!(stop.signal(), None);
    }

    #[test]
    fn call_wakes_all_waiters() {
        let stop = Stop::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || stop.wait(Duration::from_secs(3600)))
            })
            .collect();
        stop.set();
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
    }

    #[test]
    fn signal_is_stored() {
        let stop = Stop::on_signals().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(stop.wait(Duration::from_secs(60)));
        stop.set();
        assert_eq!(stop.signal(), Some(15));
    }
}
