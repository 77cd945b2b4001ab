//! Desired state of one group, and the demand of all groups together.

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::{BandwidthSlice, Burst, Class, HeadroomDemand, Knobs};
use plimsoll_engine::machine_policy::MachinePolicy;

use crate::state::KnobOrigin;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    /// The policy, with knobs merged from file and command line.
    pub policy: GroupPolicy,
    /// The group of the file that it belongs to, or its own name.
    pub group: String,
    pub origin: KnobOrigin,
    /// Go on without knobs that cannot be enforced.
    pub best_effort: bool,
    /// The next group of the file that matches the cgroup.
    pub overlap: Option<String>,
}

impl Desired {
    /// A foreign cgroup that belongs to a group of the file, or is its own, before the knobs of
    /// clients.
    pub fn foreign(path: &str, group: &str, knobs: Knobs, is_scheduled: bool) -> Self {
        Self {
            policy: GroupPolicy {
                name: path.to_owned(),
                first: None,
                subject: String::new(),
                knobs,
                is_scheduled,
            },
            group: group.to_owned(),
            origin: KnobOrigin::File,
            best_effort: false,
            overlap: None,
        }
    }

    pub fn enforcer(&self) -> EnforcerKind {
        if self.policy.is_scheduled {
            EnforcerKind::SchedExt
        } else {
            EnforcerKind::Cgroup
        }
    }

    pub fn is_foreign(&self) -> bool {
        self.policy.is_foreign()
    }

    pub fn knobs(&self) -> &Knobs {
        &self.policy.knobs
    }

    pub fn is_batch(&self) -> bool {
        self.knobs().class == Some(Class::Batch)
    }

    /// A note on two groups of the file that match the same cgroup, which is rarely intended.
    pub fn overlap_note(&self) -> Option<String> {
        let (group, overlap) = (&self.group, self.overlap.as_ref()?);
        Some(format!(
            "group `{overlap}` of the file matches it, too; `{group}` applies, which comes first"
        ))
    }
}

/// Merges the headroom demands of all groups, of any class.
pub(super) fn demand<'a>(desired_states: impl Iterator<Item = &'a Desired>) -> HeadroomDemand {
    desired_states.map(Desired::knobs).collect()
}

/// The machine's policy. Without batch work it demands no headroom: there is nothing to limit.
pub(super) fn machine<'a>(
    mut desired_states: impl Iterator<Item = &'a Desired>,
    demand: HeadroomDemand,
    bandwidth_slice: Option<BandwidthSlice>,
) -> MachinePolicy {
    let has_batch = desired_states.any(Desired::is_batch);
    MachinePolicy {
        demand: if has_batch {
            demand
        } else {
            HeadroomDemand::default()
        },
        bandwidth_slice,
    }
}

/// Sets the burst of every quota to 0 while bursts are off for all groups. The desired burst is
/// planned nevertheless, so that switching bursts on again never fails.
pub(super) fn with_burst(mut knobs: Knobs, enabled: bool) -> Knobs {
    if !enabled && knobs.quota.is_some() {
        knobs.burst = Some(Burst { burst_ns: 0 });
    }
    knobs
}

#[cfg(test)]
impl Desired {
    /// A group of the file, with the cgroup `g`.
    pub fn of_cgroup(group: &str, json: &str) -> Self {
        Self::foreign("/g", group, serde_json::from_str(json).unwrap(), false)
    }
}
