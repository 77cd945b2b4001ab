//! Batch groups as the headroom controller knows them.

use plimsoll_cgroupfs::{CpuGroup, CpuMax, Version, WEIGHT_DEFAULT};

use super::Group;
use super::layout::Layer;
use crate::cgroup::bandwidth::{KERNEL_PERIOD_MAX_USEC, fit_below};
use crate::control::headroom::{BatchGroup, HeadroomControl};
use crate::knobs::units::NSEC_PER_USEC;

impl Group {
    /// Describes the group for the headroom controller; `None`: the group does not yield.
    pub fn batch_group(&self) -> Option<BatchGroup> {
        let group = self.layout.layer(Layer::Headroom)?;
        let weight = self.knobs.weight.map(|weight| weight.weight);
        Some(BatchGroup {
            name: self.name.as_ref().into(),
            weight: weight.unwrap_or(WEIGHT_DEFAULT),
            group: group.clone(),
            quota_max_ns: quota_max_ns(group),
        })
    }

    /// Adds the group to the headroom controller, or removes it.
    pub fn follow_headroom(&self, headroom: &HeadroomControl) {
        match self.batch_group() {
            Some(group) => headroom.add(&group),
            None => headroom.remove(&self.name),
        }
    }
}

/// Returns the highest quota that the headroom controller may write: v1 refuses a rate above those
/// of the cgroups around it.
fn quota_max_ns(group: &CpuGroup) -> u64 {
    let version = group.hierarchy().version();
    let runtime_max_usec = plimsoll_policy::RUNTIME_MAX_NS / NSEC_PER_USEC;
    let mut most = CpuMax {
        quota_usec: Some(runtime_max_usec),
        period_usec: KERNEL_PERIOD_MAX_USEC,
        burst_usec: 0,
    };
    let mut above = group.parent().filter(|_| version == Version::V1);
    while let Some(parent) = above {
        // The root has no quota to read.
        if let Ok(outer) = parent.read_cpu_max() {
            most = fit_below(&outer, most, version);
        }
        above = parent.parent();
    }
    most.quota_usec.unwrap_or(runtime_max_usec) * NSEC_PER_USEC
}
