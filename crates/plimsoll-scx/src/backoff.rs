//! Waits before a scheduler that was thrown out is loaded again.

use std::time::{Duration, Instant};

/// Wait after the first failure of a scheduler that was not healthy. Each further wait is twice as
/// long, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// Time after which a running scheduler counts as healthy: it is loaded again at once, because
/// limits may not hold until then.
const HEALTHY: Duration = Duration::from_secs(60);

/// Waits between attempts: 1, 2, 4 … 60 seconds, none after a minute of health.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Returns when to retry after a failure at `now`. `started`: when the failed scheduler began
    /// to run, if it did.
    pub fn after_failure(&mut self, started: Option<Instant>, now: Instant) -> Instant {
        if started.is_some_and(|started| now.saturating_duration_since(started) >= HEALTHY) {
            self.next = FIRST;
            return now;
        }
        let due = now + self.next;
        self.next = (self.next * 2).min(LONGEST);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    #[test]
    fn waits_double_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let now = os::now();
        let waits: Vec<u64> = (0..8)
            .map(|_| (backoff.after_failure(None, now) - now).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_healthy_scheduler_is_loaded_again_at_once() {
        let mut backoff = Backoff::default();
        let start = os::now();
        for _ in 0..5 {
            backoff.after_failure(Some(start), start + Duration::from_secs(59));
        }
        let end = start + HEALTHY;
        assert_eq!(backoff.after_failure(Some(start), end), end);
        assert_eq!(backoff.after_failure(None, end) - end, FIRST);
    }
}
