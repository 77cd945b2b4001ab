//! Knobs in the extended attributes of cgroups, as they were read last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_engine::knobs::Knobs;

use super::rate_limiter::RateLimiter;
use crate::attributes::Attributes;

/// The attributes of one cgroup are read this often: any user may own a cgroup and write to
/// them in a loop.
const INTERVAL: Duration = Duration::from_millis(100);
/// Refused attributes that are logged of one cgroup; its owner may write any number.
const REFUSED_MAX: usize = 4;

/// Knobs of attributes by the path of their cgroup.
pub(in crate::service) struct CgroupAttributes {
    knobs: BTreeMap<String, Knobs>,
    /// Refused attributes that were logged.
    refused: BTreeMap<String, Vec<String>>,
    limiter: RateLimiter,
    nr_reads: u64,
}

impl CgroupAttributes {
    pub fn new() -> Self {
        Self {
            knobs: BTreeMap::new(),
            refused: BTreeMap::new(),
            limiter: RateLimiter::new(INTERVAL),
            nr_reads: 0,
        }
    }

    pub fn of(&self, path: &str) -> Option<&Knobs> {
        self.knobs.get(path)
    }

    /// Keeps the attributes of a cgroup. Returns the refused ones that are to be logged: a line each,
    /// once for each change.
    pub fn keep(&mut self, path: &str, read: Attributes) -> Vec<String> {
        self.nr_reads += 1;
        if read.knobs.is_empty() {
            self.knobs.remove(path);
        } else {
            self.knobs.insert(path.to_owned(), read.knobs);
        }
        let mut refused = read.refused;
        refused.truncate(REFUSED_MAX);
        let before = if refused.is_empty() {
            self.refused.remove(path)
        } else {
            self.refused.insert(path.to_owned(), refused.clone())
        };
        let before = before.unwrap_or_default();
        refused.retain(|line| !before.contains(line));
        refused
    }

    /// Whether changed attributes are to be read now; if not, they fall due later.
    pub fn admits(&mut self, path: &str, now: Instant) -> bool {
        self.limiter.admits(path, now)
    }

    /// Cgroups whose attributes were put off and are to be read now.
    pub fn take_due(&mut self, now: Instant) -> Vec<String> {
        self.limiter.take_due(now)
    }

    pub fn due(&self) -> Option<Instant> {
        self.limiter.due()
    }

    pub fn forget(&mut self, path: &str) {
        self.knobs.remove(path);
        self.refused.remove(path);
        self.limiter.forget(path);
    }

    /// Cgroups with knobs in attributes.
    pub fn len(&self) -> usize {
        self.knobs.len()
    }

    pub fn nr_reads(&self) -> u64 {
        self.nr_reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_attribute_is_logged_once_for_each_change() {
        let read = |lines: &[&str]| Attributes {
            knobs: Knobs::default(),
            refused: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        let mut attributes = CgroupAttributes::new();
        assert_eq!(attributes.keep("/a", read(&["x"])), ["x"]);
        assert_eq!(attributes.keep("/b", read(&["x"])), ["x"]);
        assert_eq!(attributes.keep("/a", read(&["x", "y"])), ["y"]);
        assert_eq!(attributes.keep("/a", read(&["x", "y"])), [""; 0]);
        assert_eq!(attributes.keep("/a", read(&[])), [""; 0]);
        assert_eq!(attributes.keep("/a", read(&["x"])), ["x"]);
        let flood = read(&["1", "2", "3", "4", "5", "6"]);
        assert_eq!(attributes.keep("/c", flood).len(), REFUSED_MAX);
    }
}
