//! Usage of a group before its cgroups were replaced.

use plimsoll_cgroupfs::CpuStat;

use super::layout::{Layer, Layout};

/// Counters of the cgroups that a group had before it was rebuilt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    pub usage_ns: u64,
    pub quota: CpuStat,
    pub cap: CpuStat,
}

impl Carried {
    /// Reads the counters of cgroups that are about to be removed. One that is gone already adds
    /// nothing.
    pub fn of(layout: &Layout) -> Self {
        let stat = |layer| layout.layer(layer).and_then(|group| group.stat().ok());
        Self {
            usage_ns: layout.top.usage_ns().unwrap_or(0),
            quota: stat(Layer::Quota).unwrap_or_default(),
            cap: stat(Layer::Cap).unwrap_or_default(),
        }
    }

    pub fn add(&mut self, more: &Self) {
        self.usage_ns += more.usage_ns;
        self.quota = self.quota.plus(&more.quota);
        self.cap = self.cap.plus(&more.cap);
    }
}
