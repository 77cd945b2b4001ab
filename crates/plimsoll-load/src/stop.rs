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

/// Set by [`Stop::set`]: no signal has this number.
const BY_CALL: usize = usize::MAX;
/// How often waits look at the flag where nothing wakes them.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends workloads early. Clones share the flag; once set it stays set.
///
/// Who waits for it sleeps until it is set: a thread that looked from time to
/// time would wake up beside the work that it waits for, and the kernel gives
/// a group in which somebody wakes up another share.
#[derive(Debug, Clone)]
pub struct Stop {
    reason: Arc<AtomicUsize>,
    /// What is written to the second can be read from the first, by all who
    /// wait, for ever. `None`: the process has no file left to open.
    bell: Option<Arc<(UnixStream, UnixStream)>>,
}

impl Default for Stop {
    fn default() -> Self {
        let bell = UnixStream::pair().and_then(|(ear, hand)| {
            hand.set_nonblocking(true)?;
            Ok(Arc::new((ear, hand)))
        });
        Self {
            reason: Arc::default(),
            bell: bell.ok(),
        }
    }
}

impl Stop {
    /// A flag that only [`Stop::set`] sets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A flag that SIGINT and SIGTERM set as well, from now on and for the rest of the process.
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
            if let Some(bell) = &stop.bell {
                let hand = bell.1.try_clone().map_err(failed)?;
                // Behind the flag: handlers run in the order in which they were installed.
                signal_hook::low_level::pipe::register(signal, hand).map_err(failed)?;
            }
        }
        Ok(stop)
    }

    /// Asks for an end.
    pub fn set(&self) {
        // A signal that came first keeps its place: it decides the exit code.
        let _ = self
            .reason
            .compare_exchange(0, BY_CALL, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(bell) = &self.bell {
            // One that is full has woken everybody.
            let _ = (&bell.1).write(&[0]);
        }
    }

    /// Whether an end was asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.reason.load(Ordering::Relaxed) != 0
    }

    /// The number of the signal that asked for the end, if it was one.
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

    /// Sleeps for `at_most`, or until something has rung.
    fn sleep(&self, at_most: Duration) {
        let Some(bell) = &self.bell else {
            std::thread::sleep(at_most.min(LOOK_EVERY));
            return;
        };
        // Never shorter than asked: who woke too early would look again at once.
        let at_most = at_most.saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        let ear = PollFd::new(bell.0.as_fd(), PollFlags::POLLIN);
        // A signal that is not one of ours ends it early, and it begins again.
        let _ = poll(&mut [ear], timeout);
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
    fn a_call_wakes_all_who_wait() {
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
    fn the_signal_is_remembered() {
        let stop = Stop::on_signals().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(stop.wait(Duration::from_secs(60)));
        stop.set();
        assert_eq!(stop.signal(), Some(15));
    }
}
