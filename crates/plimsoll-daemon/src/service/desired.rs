//! Desired state of one group, and the demand of all groups together.

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::knobs::{BandwidthSlice, Burst, Class, Demand, Knobs};
use plimsoll_engine::machine_policy::MachinePolicy;

use crate::state::Origin;

/// Kind of a group's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupKind {
    /// A foreign cgroup.
    Foreign,
    /// An own cgroup, for a command or a process.
    Command {
        /// The first process.
        pid: i32,
    },
}

/// Desired state of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    /// The group of the file that it belongs to, or its own name.
    pub group: String,
    pub origin: Origin,
    pub kind: GroupKind,
    /// Merged from file and command line.
    pub knobs: Knobs,
    /// Its command, for people.
    pub subject: String,
    /// Go on without what cannot be enforced.
    pub best_effort: bool,
    /// The BPF scheduler enforces its knobs; else stock knobs do.
    pub is_scheduled: bool,
    /// The next group of the file that matches the cgroup.
    pub overlap: Option<String>,
}

impl Desired {
    /// The kernel interface that enforces it.
    pub fn enforcer(&self) -> EnforcerKind {
        if self.is_scheduled {
            EnforcerKind::SchedExt
        } else {
            EnforcerKind::Cgroup
        }
    }

    fn is_batch(&self) -> bool {
        self.knobs.class == Some(Class::Batch)
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
pub(super) fn demand<'a>(desired_states: impl Iterator<Item = &'a Desired>) -> Demand {
    desired_states.map(|desired| &desired.knobs).collect()
}

/// The machine's policy. Without batch work it demands no headroom: there is nothing to limit.
pub(super) fn machine<'a>(
    mut desired_states: impl Iterator<Item = &'a Desired>,
    demand: Demand,
    bandwidth_slice: Option<BandwidthSlice>,
) -> MachinePolicy {
    let has_batch = desired_states.any(Desired::is_batch);
    MachinePolicy {
        demand: if has_batch { demand } else { Demand::default() },
        bandwidth_slice,
    }
}

/// The knobs that the enforcer applies. A batch group yields to the demand of all groups; its
/// own demand is added because that of a group that is only planned is not merged yet. Headroom
/// does not limit a group of class normal.
pub(super) fn effective_knobs(desired: &Desired, mut demand: Demand, nr_cpus: u32) -> Knobs {
    let mut knobs = desired.knobs.clone();
    if desired.is_batch() {
        demand.add(knobs.headroom, knobs.tolerance);
        demand.set_on(&mut knobs, nr_cpus);
    } else {
        knobs.headroom = None;
        knobs.tolerance = None;
    }
    knobs
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
mod tests {
    use plimsoll_engine::knobs::Tolerance;

    use super::*;

    fn desired(json: &str) -> Desired {
        Desired {
            group: "g".into(),
            origin: Origin::File,
            kind: GroupKind::Foreign,
            knobs: serde_json::from_str(json).unwrap(),
            subject: String::new(),
            best_effort: false,
            is_scheduled: false,
            overlap: None,
        }
    }

    #[test]
    fn without_bursts_every_quota_has_one_of_0_and_nothing_else_changes() {
        let knobs = |json: &str| -> Knobs { serde_json::from_str(json).unwrap() };
        let quota = knobs(r#"{"quota": "50ms/100ms", "burst": "20ms", "nice": "3"}"#);
        assert_eq!(with_burst(quota.clone(), true), quota);
        let off = knobs(r#"{"quota": "50ms/100ms", "burst": "0", "nice": "3"}"#);
        assert_eq!(with_burst(quota, false), off);
        let bare = knobs(r#"{"quota": "50ms/100ms"}"#);
        assert_eq!(with_burst(bare, false).burst, Some(Burst { burst_ns: 0 }));
        let cap = knobs(r#"{"cap": "50%"}"#);
        assert_eq!(with_burst(cap.clone(), false), cap);
    }

    fn command(json: &str) -> Desired {
        Desired {
            kind: GroupKind::Command { pid: 1 },
            ..desired(json)
        }
    }

    #[test]
    fn every_batch_group_yields_to_the_largest_headroom_with_the_smallest_tolerance() {
        let desired_states = [
            desired(r#"{"headroom": "10%", "tolerance": "5ms/100ms"}"#),
            desired(r#"{"headroom": "1cpus", "tolerance": "2ms/100ms"}"#),
            desired(r#"{"class": "batch", "headroom": "30%", "tolerance": "3ms/100ms"}"#),
            command(r#"{"class": "batch", "headroom": "20%", "tolerance": "4ms/100ms"}"#),
        ];
        let demand = demand(desired_states.iter());
        let expected = r#"{"class": "batch", "nice": "5", "headroom": "30%",
            "tolerance": "2ms/100ms"}"#;
        let batch = desired(r#"{"class": "batch", "nice": "5"}"#);
        let expected: Knobs = serde_json::from_str(expected).unwrap();
        assert_eq!(effective_knobs(&batch, demand, 4), expected);
        for own in &desired_states[2..] {
            let effective_knobs = effective_knobs(own, demand, 4);
            assert_eq!(effective_knobs.headroom, expected.headroom);
            assert_eq!(effective_knobs.tolerance, expected.tolerance);
        }
    }

    #[test]
    fn a_headroom_without_a_tolerance_brings_the_default_along() {
        let generous = desired(r#"{"headroom": "30%", "tolerance": "10ms/100ms"}"#);
        let unset = desired(r#"{"headroom": "10%"}"#);
        let batch = desired(r#"{"class": "batch"}"#);
        let one = demand([&generous, &batch].into_iter());
        assert_eq!(one.tolerance(), "10ms/100ms".parse().unwrap());
        let both = demand([&generous, &unset, &batch].into_iter());
        assert_eq!(both.tolerance(), Tolerance::default());
        let expected = r#"{"class": "batch", "headroom": "30%"}"#;
        let expected: Knobs = serde_json::from_str(expected).unwrap();
        assert_eq!(effective_knobs(&batch, both, 4), expected);
        // Also where a group desires a larger one.
        let own = desired(r#"{"class": "batch", "tolerance": "9ms/100ms"}"#);
        let effective_knobs = effective_knobs(&own, both, 4);
        assert_eq!(effective_knobs.tolerance, Some(Tolerance::default()));
    }

    #[test]
    fn without_a_demand_a_batch_group_has_what_it_asks_for() {
        for json in [
            r#"{"class": "batch"}"#,
            r#"{"class": "batch", "tolerance": "0"}"#,
            r#"{"class": "batch", "headroom": "0%", "tolerance": "1ms/100ms"}"#,
        ] {
            let batch = desired(json);
            assert_eq!(effective_knobs(&batch, Demand::default(), 2), batch.knobs);
        }
    }

    #[test]
    fn a_planned_group_yields_to_its_own_headroom() {
        let planned = desired(r#"{"class": "batch", "headroom": "30%"}"#);
        let knobs = effective_knobs(&planned, Demand::default(), 4);
        assert_eq!(knobs, planned.knobs);
    }

    #[test]
    fn a_normal_group_is_not_limited_by_its_headroom_and_batch_groups_are() {
        let json = r#"{"headroom": "30%", "tolerance": "0", "quota": "1cpus"}"#;
        let expected: Knobs = serde_json::from_str(r#"{"quota": "1cpus"}"#).unwrap();
        for normal in [desired(json), command(json)] {
            let demand = demand([&normal].into_iter());
            assert_eq!(effective_knobs(&normal, demand, 2), expected);
            let batch = desired(r#"{"class": "batch"}"#);
            assert_eq!(
                effective_knobs(&batch, demand, 2).headroom,
                normal.knobs.headroom
            );
        }
    }
}
