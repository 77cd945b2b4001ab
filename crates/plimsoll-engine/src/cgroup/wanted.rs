//! Desired values of one cgroup's kernel files, for own and foreign cgroups alike.

use super::bandwidth::{cap_bandwidth, in_whole_usec};
use crate::knobs::{Bandwidth, Class, Knobs, Quota};

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
        quota: Quota,
        /// Burst; `None`: the present one, as far as the kernel takes it beside the quota.
        burst_ns: Option<u64>,
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
                quota,
                burst_ns: knobs.burst.map(|burst| burst.burst_ns),
            },
            (None, Some(cap)) => cap_bandwidth(cap).into(),
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

impl From<Bandwidth> for Limit {
    fn from(bandwidth: Bandwidth) -> Self {
        Self::Bandwidth {
            quota: bandwidth.quota,
            burst_ns: Some(bandwidth.burst_ns),
        }
    }
}

impl Limit {
    /// Returns the bandwidth to write where the first one was `old`; `None`: there is no fixed
    /// limit.
    pub fn bandwidth(&self, old: &Bandwidth) -> Option<Bandwidth> {
        let Self::Bandwidth { quota, burst_ns } = *self else {
            return None;
        };
        let kept_ns = old.burst_ns.min(quota.quota_ns.unwrap_or(0));
        Some(in_whole_usec(Bandwidth {
            quota,
            burst_ns: burst_ns.unwrap_or(kept_ns),
        }))
    }
}
