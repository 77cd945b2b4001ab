//! Desired values of one cgroup's kernel files, for own and foreign cgroups alike.

use super::bandwidth::{cap_bandwidth, in_whole_usec};
use crate::knobs::{Bandwidth, Class, Knobs, Quota};

/// What one cgroup is to have. What is not asked for stays as it is; what was ours is put back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The idle mark.
    pub idle: Option<bool>,
    /// `cpu.weight`. A cgroup that is marked idle has none.
    pub weight: Option<u32>,
    /// A soft cap's loop writes the idle mark and the weight.
    pub has_soft_cap: bool,
    pub limit: Limit,
}

/// The use of the quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Limit {
    #[default]
    None,
    Bandwidth {
        quota: Quota,
        /// `None`: as much of the present one as the kernel takes beside the quota.
        burst_ns: Option<u64>,
    },
    /// The headroom controller writes the quota.
    Headroom,
}

impl Wanted {
    /// All knobs on a single cgroup, as far as `check_one_cgroup` lets them be. `yields`: to the
    /// machine's headroom, without a limit of its own.
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
    /// What the kernel is to have where it has had `old`; `None`: that is not ours to say.
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
