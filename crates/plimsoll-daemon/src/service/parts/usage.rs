//! CPU time of the machine and of its batch groups.

use std::collections::BTreeMap;

use plimsoll_engine::cgroup::BusyMeter;

/// Counters of CPU time since the service started.
pub(in crate::service) struct UsageMeter {
    busy: BusyMeter,
    busy_usec: u64,
    batch_usec: u64,
    /// Usage of each batch group at the last reading.
    batch_seen: BTreeMap<String, u64>,
}

impl UsageMeter {
    pub fn start(busy: BusyMeter) -> Self {
        Self {
            busy,
            busy_usec: 0,
            batch_usec: 0,
            batch_seen: BTreeMap::new(),
        }
    }

    /// Adds the machine's CPU time since the last reading.
    pub fn read_machine(&mut self) {
        if let Ok(busy_ns) = self.busy.busy_ns() {
            self.busy_usec += busy_ns / 1_000;
        }
    }

    /// Adds the CPU time of batch groups since the last reading. `usage_usec`: of all batch
    /// groups that are there. The time of a group before it became one does not count.
    pub fn add_batch(&mut self, usage_usec: BTreeMap<String, u64>) {
        for (name, usage_usec) in &usage_usec {
            let before_usec = self.batch_seen.get(name).unwrap_or(usage_usec);
            self.batch_usec += usage_usec.saturating_sub(*before_usec);
        }
        self.batch_seen = usage_usec;
    }

    pub fn busy_usec(&self) -> u64 {
        self.busy_usec
    }

    pub fn batch_usec(&self) -> u64 {
        self.batch_usec
    }
}
