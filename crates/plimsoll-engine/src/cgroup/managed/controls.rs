//! What runs for a group from user space.

use plimsoll_cgroupfs::{WEIGHT_DEFAULT, os};

use super::ManagedGroup;
use crate::cgroup::layout::{
    KERNEL_PERIOD_MAX_NS, Layer, cap_bandwidth, fit_below, layer_bandwidth,
};
use crate::control::headroom::SideDescription;
use crate::control::per_task::PerTaskCaps;
use crate::control::soft_cap::SoftCapLoop;
use crate::error::Result;
use crate::knobs::{Bandwidth, Quota};

/// The loops of one group, those that its knobs need.
#[derive(Debug, Default)]
pub(super) struct Controls {
    pub soft_cap: Option<SoftCapLoop>,
    pub per_task: Option<PerTaskCaps>,
}

impl ManagedGroup {
    /// The bandwidth of the innermost limit outside the headroom's.
    fn outer_bandwidth(&self) -> Bandwidth {
        let knobs = &self.knobs;
        let layers = self.layout.layers.iter().rev();
        let outer = layers
            .map(|(layer, _)| *layer)
            .find(|layer| *layer != Layer::Headroom);
        outer.map_or_else(Bandwidth::unlimited, |layer| layer_bandwidth(layer, knobs))
    }

    /// What the headroom controller has to know of it; `None`: it is no side
    /// group.
    pub(super) fn side(&self) -> Option<SideDescription> {
        let headroom = self.knobs.headroom?;
        let group = self.layout.layer(Layer::Headroom)?;
        let all = Bandwidth {
            quota: Quota {
                quota_ns: Some(plimsoll_policy::RUNTIME_MAX_NS),
                period_ns: KERNEL_PERIOD_MAX_NS,
            },
            burst_ns: 0,
        };
        let most = fit_below(&self.outer_bandwidth(), all, self.hierarchy.version());
        Some(SideDescription {
            name: self.name.clone(),
            weight: self
                .knobs
                .weight
                .map_or(WEIGHT_DEFAULT, |weight| weight.weight),
            headroom,
            tolerance: self.knobs.tolerance,
            version: self.hierarchy.version(),
            group: group.path().to_owned(),
            identity: None,
            quota_max_ns: most
                .quota
                .quota_ns
                .unwrap_or(plimsoll_policy::RUNTIME_MAX_NS),
        })
    }

    pub(super) fn soft_cap_control(&self) -> Result<Option<SoftCapLoop>> {
        let (Some(cap), false) = (self.knobs.soft_cap, self.knobs.per_task) else {
            return Ok(None);
        };
        let Some(group) = &self.layout.background else {
            return Ok(None);
        };
        if group.path() != self.layout.top.path() {
            // A batch group is in the background already.
            return Ok(None);
        }
        let weight = self
            .knobs
            .weight
            .map_or(WEIGHT_DEFAULT, |weight| weight.weight);
        let rate = (cap, self.knobs.half_life.unwrap_or_default());
        SoftCapLoop::new(group.clone(), rate, weight, os::now()).map(Some)
    }

    pub(super) fn per_task_control(&self) -> Option<PerTaskCaps> {
        if !self.knobs.per_task {
            return None;
        }
        let outer = self.outer_bandwidth();
        let hard = self
            .knobs
            .cap
            .map(|cap| fit_below(&outer, cap_bandwidth(cap), self.hierarchy.version()));
        let half_life = self.knobs.half_life.unwrap_or_default();
        let leaf = self.layout.leaf.clone();
        Some(PerTaskCaps::new(
            leaf,
            hard,
            self.knobs.soft_cap.map(|cap| (cap, half_life)),
            os::now(),
        ))
    }
}
