//! How often something is done that anybody may cause.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Something that is done for each of many at most once in an interval: the
/// first time at once, and what comes sooner at the end of the interval.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// For whom it was done within the interval.
    done: BTreeMap<String, Done>,
}

#[derive(Debug)]
struct Done {
    at: Instant,
    /// It was caused again since.
    is_owed: bool,
}

impl Pace {
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            done: BTreeMap::new(),
        }
    }

    /// Whether it is to be done now; if not, it will be due.
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

    /// When something is due next.
    pub fn due(&self) -> Option<Instant> {
        let owed = self.done.values().filter(|done| done.is_owed);
        owed.map(|done| done.at + self.interval).min()
    }

    /// For whom it is to be done now, because it was put off.
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

    /// There is no such one any more.
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

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn the_first_is_done_at_once_and_the_last_is_never_lost() {
        let start = Instant::now();
        let mut pace = Pace::new(INTERVAL);
        let mut done = Vec::new();
        // Caused every millisecond of a second, and once more half-way.
        for ms in 0..1_000 {
            let now = start + Duration::from_millis(ms);
            done.extend(pace.take_due(now).iter().map(|_| ms));
            if pace.admits("a", now) {
                done.push(ms);
            }
        }
        assert_eq!(done, (0..1_000).step_by(100).collect::<Vec<_>>());
        let end = start + Duration::from_millis(1_000);
        assert_eq!(pace.due(), Some(end), "the last was put off");
        assert_eq!(pace.take_due(end), ["a"]);
        assert_eq!(pace.due(), None);
        assert_eq!(pace.take_due(end + INTERVAL), [""; 0]);
        assert!(pace.done.is_empty(), "nothing is kept of those that rest");
    }

    #[test]
    fn each_has_its_own_pace_and_another_of_the_same_name_begins_anew() {
        let now = Instant::now();
        let mut pace = Pace::new(INTERVAL);
        assert!(pace.admits("a", now) && pace.admits("b", now));
        assert!(!pace.admits("a", now));
        pace.forget("a");
        assert_eq!(pace.due(), None);
        assert!(pace.admits("a", now) && !pace.admits("b", now));
        assert_eq!(pace.take_due(now + INTERVAL), ["b"]);
    }
}
