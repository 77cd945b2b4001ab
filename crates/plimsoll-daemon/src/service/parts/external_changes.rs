//! Kernel files of groups that other processes wrote.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Delay of the audit of a group after a write: a group that other processes write to in a
/// loop is audited this often.
const AUDIT_INTERVAL: Duration = Duration::from_millis(500);

/// Groups with files that other processes wrote, or may have written.
#[derive(Debug, Default)]
pub(in crate::service) struct ExternalChanges {
    /// Groups that are to be audited, with the time of the audit.
    written: BTreeMap<String, Instant>,
}

impl ExternalChanges {
    /// Schedules the audit of a group, unless one is scheduled.
    pub fn note_write(&mut self, name: String, now: Instant) {
        self.written.entry(name).or_insert(now + AUDIT_INTERVAL);
    }

    pub fn due(&self) -> Option<Instant> {
        self.written.values().min().copied()
    }

    pub fn due_groups(&self, now: Instant) -> Vec<String> {
        let due = self.written.iter().filter(|(_, at)| **at <= now);
        due.map(|(name, _)| name.clone()).collect()
    }

    /// All groups that are to be audited, due or not.
    pub fn pending_groups(&self) -> Vec<String> {
        self.written.keys().cloned().collect()
    }

    /// Notes that the group is being audited.
    pub fn audited(&mut self, name: &str) {
        self.written.remove(name);
    }

    pub fn forget(&mut self, name: &str) {
        self.written.remove(name);
    }
}
