//! Ending a workload early, by call or by signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::error::LoadError;

/// Set by [`Stop::set`]: no signal has this number.
const BY_CALL: usize = usize::MAX;
/// How often waits look at the flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A flag that ends workloads early. Clones share the flag; once set it stays set.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicUsize>);

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
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.0), value).map_err(|e| {
                LoadError::io(format!("installing the handler of signal {signal}"), e)
            })?;
        }
        Ok(stop)
    }

    /// Asks for an end.
    pub fn set(&self) {
        // A signal that came first keeps its place: it decides the exit code.
        let _ = self
            .0
            .compare_exchange(0, BY_CALL, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether an end was asked for.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The number of the signal that asked for the end, if it was one.
    #[must_use]
    pub fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed))
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
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        true
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
    fn the_signal_is_remembered() {
        let stop = Stop::on_signals().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(stop.wait(Duration::from_secs(60)));
        stop.set();
        assert_eq!(stop.signal(), Some(15));
    }
}
