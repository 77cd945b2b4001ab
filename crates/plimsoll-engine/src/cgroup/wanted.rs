//! Desired values of one cgroup's kernel files, for own and foreign cgroups alike.

use plimsoll_cgroupfs::CpuMax;

use super::bandwidth::cap_max;
use crate::knobs::{Bandwidth, Class, Knobs};

/// Values that one cgroup is to have. A value that is not asked for stays, or, if it is ours, is
/// put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub idle: Option<bool>,
    /// Weight as in `cpu.weight`. A cgroup that is marked idle has none.
    pub weight: Option<u32>,
    /// Whether a soft cap's loop writes the idle mark and the weight.
    pub has_soft_cap: bool,
    pub limit: Limit,
}

/// Use of the quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Limit {
    #[default]
    None,
    Bandwidth {
        max: CpuMax,
        /// The present burst stays, as far as the kernel takes it beside the quota.
        keeps_burst: bool,
    },
    /// Quota that the headroom controller writes.
    Headroom,
}

impl Wanted {
    /// Puts all knobs on a single cgroup, as far as `check_one_cgroup` lets them be. `yields`: to
    /// the machine's headroom, if the cgroup has no limit of its own.
    pub fn on_one_cgroup(knobs: &Knobs, yields: bool) -> Self {
        let is_batch = knobs.class.map(|class| class == Class::Batch);
        let limit = match (knobs.quota, knobs.cap) {
            (Some(quota), _) => Limit::Bandwidth {
                max: Bandwidth::of(quota, knobs.burst).into(),
                keeps_burst: knobs.burst.is_none(),
            },
            (None, Some(cap)) => cap_max(cap).into(),
            (None, None) if yields => Limit::Headroom,
            (None, None) => Limit::None,
        };
        Self {
            idle: is_batch,
            weight: knobs.weight.map(|weight| weight.weight),
            has_soft_cap: knobs.soft_cap.is_some() && is_batch != Some(true),
            limit,
        }
    }
}

impl From<CpuMax> for Limit {
    fn from(max: CpuMax) -> Self {
        Self::Bandwidth {
            max,
            keeps_burst: false,
        }
    }
}

impl Limit {
    /// Returns the bandwidth to write where the first one was `old`; `None`: there is no fixed
    /// limit.
    pub fn bandwidth(&self, old: &CpuMax) -> Option<CpuMax> {
        let Self::Bandwidth {
            mut max,
            keeps_burst,
        } = *self
        else {
            return None;
        };
        if keeps_burst {
            max.burst_usec = old.burst_usec.min(max.quota_usec.unwrap_or(0));
        }
        Some(max)
    }
}
