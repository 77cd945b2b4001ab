//! Ending a workload early, by a signal or a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::LoadError;

/// A flag that ends workloads early. Clones share the flag; once set it stays
/// set.
///
/// Waiters sleep until it is set instead of polling, because periodic wake-ups
/// would disturb the measured work: the kernel changes the CPU share of a group
/// in which a task wakes up.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Number of the last signal.
    signal: Mutex<Option<u8>>,
    /// Told when the flag is set.
    is_set: Condvar,
}

impl Stop {
    /// A flag that SIGINT and SIGTERM set, from now on and for the lifetime of
    /// the process.
    ///
    /// # Errors
    /// If the signal handlers or their thread can't be installed.
    pub fn on_signals() -> Result<Self, LoadError> {
        let failed = |e| LoadError::io("installing signal handlers", e);
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let stop = Self::default();
        let told = stop.clone();
        let thread = thread::Builder::new().name("load-signals".to_owned());
        let told_of_each = move || signals.forever().for_each(|signal| told.set(signal));
        thread.spawn(told_of_each).map_err(failed)?;
        Ok(stop)
    }

    pub(crate) fn set(&self, signal: i32) {
        *self.lock() = u8::try_from(signal).ok();
        self.shared.is_set.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Option<u8>> {
        let signal = self.shared.signal.lock();
        signal.unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the body of a thread. If that panics, the flag ends the others.
    pub(crate) fn set_by_panic<T>(&self, body: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panicked| {
            self.set(SIGTERM);
            resume_unwind(panicked)
        })
    }

    #[must_use]
    pub fn is_set(&self) -> bool {
        self.signal().is_some()
    }

    /// Number of the signal that set the flag.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        *self.lock()
    }

    /// Sleeps for `at_most`, or until the flag is set. Returns whether it is set.
    #[must_use]
    pub fn wait(&self, at_most: Duration) -> bool {
        let unset = |signal: &mut Option<u8>| signal.is_none();
        let waited = self
            .shared
            .is_set
            .wait_timeout_while(self.lock(), at_most, unset);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_stored_and_wakes_all_waiters() {
        let stop = Stop::on_signals().unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let stop = stop.clone();
                thread::spawn(move || stop.wait(Duration::from_secs(3600)))
            })
            .collect();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
        assert_eq!(stop.signal(), Some(15));
    }
}
