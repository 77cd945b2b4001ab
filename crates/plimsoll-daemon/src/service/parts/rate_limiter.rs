//! Rate limiter by name, for work that any user may cause.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Admits one run per name and interval. Later causes within the interval are put off, and
/// lead to one run at its end.
#[derive(Debug)]
pub(super) struct RateLimiter {
    interval: Duration,
    /// Names that ran within the interval.
    done: BTreeMap<String, Done>,
}

#[derive(Debug)]
struct Done {
    at: Instant,
    /// A cause was put off since.
    is_owed: bool,
}

impl RateLimiter {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            done: BTreeMap::new(),
        }
    }

    /// Whether a name runs now; if not, it falls due later.
    pub fn admits(&mut self, name: &str, now: Instant) -> bool {
        match self.done.get_mut(name) {
            Some(done) if now < done.at + self.interval => {
                done.is_owed = true;
                false
            }
            Some(done) => {
                *done = Done::at(now);
                true
            }
            None => {
                self.done.insert(name.to_owned(), Done::at(now));
                true
            }
        }
    }

    /// When the next name falls due.
    pub fn due(&self) -> Option<Instant> {
        let owed = self.done.values().filter(|done| done.is_owed);
        owed.map(|done| done.at + self.interval).min()
    }

    /// Names that were put off and run now.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        let interval = self.interval;
        self.done.retain(|name, done| {
            if now < done.at + interval {
                return true;
            }
            let is_owed = done.is_owed;
            if is_owed {
                due.push(name.clone());
                *done = Done::at(now);
            }
            is_owed
        });
        due
    }

    /// Drops a name that is no longer used.
    pub fn forget(&mut self, name: &str) {
        self.done.remove(name);
    }
}

impl Done {
    fn at(at: Instant) -> Self {
        Self { at, is_owed: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn the_first_cause_runs_at_once_and_the_last_is_never_lost() {
        let start = os::now();
        let mut limiter = RateLimiter::new(INTERVAL);
        let mut done = Vec::new();
        // Caused every millisecond of a second, and once more half-way.
        for ms in 0..1_000 {
            let now = start + Duration::from_millis(ms);
            done.extend(limiter.take_due(now).iter().map(|_| ms));
            if limiter.admits("a", now) {
                done.push(ms);
            }
        }
        assert_eq!(done, (0..1_000).step_by(100).collect::<Vec<_>>());
        let end = start + Duration::from_millis(1_000);
        assert_eq!(limiter.due(), Some(end), "the last cause was put off");
        assert_eq!(limiter.take_due(end), ["a"]);
        assert_eq!(limiter.due(), None);
        assert_eq!(limiter.take_due(end + INTERVAL), [""; 0]);
        assert!(limiter.done.is_empty(), "idle names are dropped");
    }

    #[test]
    fn names_are_limited_separately_and_begin_anew_after_forget() {
        let now = os::now();
        let mut limiter = RateLimiter::new(INTERVAL);
        assert!(limiter.admits("a", now) && limiter.admits("b", now));
        assert!(!limiter.admits("a", now));
        limiter.forget("a");
        assert_eq!(limiter.due(), None);
        assert!(limiter.admits("a", now) && !limiter.admits("b", now));
        assert_eq!(limiter.take_due(now + INTERVAL), ["b"]);
    }
}
