//! What is asked of one group, from whom, and what follows for the others.

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::SchedExt;
use plimsoll_engine::knobs::{Burst, Class, Demand, Knobs};

use crate::state::Origin;

/// Where a group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A cgroup of somebody else's.
    Cgroup,
    /// A cgroup of Plimsoll's own, for processes that a group of the file
    /// claims.
    Processes,
    /// A cgroup of Plimsoll's own, for a command or a process.
    Command {
        /// The first process.
        pid: i32,
        /// Its start time, which tells it from a later one of the same pid.
        start_time: u64,
        /// Whose it is.
        uid: u32,
    },
}

/// What is asked of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// The group of the file that it belongs to, or its own name.
    pub group: String,
    pub origin: Origin,
    pub place: Place,
    /// As asked for: file, attributes and command line laid over each other.
    pub knobs: Knobs,
    /// What runs in it, for people.
    pub subject: String,
    /// Go on without what cannot be enforced.
    pub best_effort: bool,
    /// The BPF scheduler that enforces what it can; `None`: stock knobs alone.
    pub scheduler: Option<SchedExt>,
    /// The next group of the file that claims the cgroup.
    pub rival: Option<String>,
}

impl Wish {
    /// Which interface of the kernel enforces it.
    pub fn enforcer(&self) -> EnforcerKind {
        match self.scheduler {
            Some(_) => EnforcerKind::SchedExt,
            None => EnforcerKind::Cgroup,
        }
    }

    fn is_batch(&self) -> bool {
        self.knobs.class == Some(Class::Batch)
    }

    /// What somebody who wrote the file may not have meant: two groups claim
    /// the cgroup, and one has it.
    pub fn contest(&self) -> Option<String> {
        let (group, rival) = (&self.group, self.rival.as_ref()?);
        Some(format!(
            "group `{rival}` of the file claims it, too; `{group}` has it, which comes first"
        ))
    }
}

/// The demand of all groups together, of whatever class they are.
pub(super) fn demand<'a>(wishes: impl Iterator<Item = &'a Wish>) -> Demand {
    wishes.map(|wish| &wish.knobs).collect()
}

/// What the enforcer is to do for a wish: every batch group yields to the demand
/// of all, and to its own, which a wish that is only planned has not brought in
/// yet. A group of class normal is not limited by headroom.
pub(super) fn laid_down(wish: &Wish, mut demand: Demand, nr_cpus: u32) -> Knobs {
    let mut knobs = wish.knobs.clone();
    if wish.is_batch() {
        demand.add(knobs.headroom, knobs.tolerance);
        demand.set_on(&mut knobs, nr_cpus);
    } else {
        knobs.headroom = None;
        knobs.tolerance = None;
    }
    knobs
}

/// What is enforced of knobs while bursts are off for all groups: whoever has a quota
/// saves up nothing, also of a burst that the cgroup had before. Which group may have
/// which burst is checked beforehand, so that switching them on again never fails.
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

    fn wish(json: &str) -> Wish {
        Wish {
            group: "g".into(),
            origin: Origin::File,
            place: Place::Cgroup,
            knobs: serde_json::from_str(json).unwrap(),
            subject: String::new(),
            best_effort: false,
            scheduler: None,
            rival: None,
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

    fn command(json: &str) -> Wish {
        Wish {
            place: Place::Command {
                pid: 1,
                start_time: 1,
                uid: 0,
            },
            ..wish(json)
        }
    }

    #[test]
    fn every_batch_group_yields_to_the_largest_headroom_with_the_smallest_tolerance() {
        let wishes = [
            wish(r#"{"headroom": "10%", "tolerance": "5ms/100ms"}"#),
            wish(r#"{"headroom": "1cpus", "tolerance": "2ms/100ms"}"#),
            wish(r#"{"class": "batch", "headroom": "30%", "tolerance": "3ms/100ms"}"#),
            command(r#"{"class": "batch", "headroom": "20%", "tolerance": "4ms/100ms"}"#),
        ];
        let demand = demand(wishes.iter());
        let expected = r#"{"class": "batch", "nice": "5", "headroom": "30%",
            "tolerance": "2ms/100ms"}"#;
        let batch = wish(r#"{"class": "batch", "nice": "5"}"#);
        let expected: Knobs = serde_json::from_str(expected).unwrap();
        assert_eq!(laid_down(&batch, demand, 4), expected);
        for own in &wishes[2..] {
            let laid_down = laid_down(own, demand, 4);
            assert_eq!(laid_down.headroom, expected.headroom);
            assert_eq!(laid_down.tolerance, expected.tolerance);
        }
    }

    #[test]
    fn a_headroom_without_a_tolerance_brings_the_default_along() {
        let generous = wish(r#"{"headroom": "30%", "tolerance": "10ms/100ms"}"#);
        let unset = wish(r#"{"headroom": "10%"}"#);
        let batch = wish(r#"{"class": "batch"}"#);
        let one = demand([&generous, &batch].into_iter());
        assert_eq!(one.tolerance(), "10ms/100ms".parse().unwrap());
        let both = demand([&generous, &unset, &batch].into_iter());
        assert_eq!(both.tolerance(), Tolerance::default());
        let expected = r#"{"class": "batch", "headroom": "30%"}"#;
        let expected: Knobs = serde_json::from_str(expected).unwrap();
        assert_eq!(laid_down(&batch, both, 4), expected);
        // What is shown is what is in force, also where a group asks for more.
        let own = wish(r#"{"class": "batch", "tolerance": "9ms/100ms"}"#);
        let laid_down = laid_down(&own, both, 4);
        assert_eq!(laid_down.tolerance, Some(Tolerance::default()));
    }

    #[test]
    fn without_a_demand_a_batch_group_has_what_it_asks_for() {
        for json in [
            r#"{"class": "batch"}"#,
            r#"{"class": "batch", "tolerance": "0"}"#,
            r#"{"class": "batch", "headroom": "0%", "tolerance": "1ms/100ms"}"#,
        ] {
            let batch = wish(json);
            assert_eq!(laid_down(&batch, Demand::default(), 2), batch.knobs);
        }
    }

    #[test]
    fn a_wish_that_is_only_planned_yields_to_its_own_headroom() {
        let planned = wish(r#"{"class": "batch", "headroom": "30%"}"#);
        let knobs = laid_down(&planned, Demand::default(), 4);
        assert_eq!(knobs, planned.knobs);
    }

    #[test]
    fn a_normal_group_is_not_limited_by_its_headroom_and_batch_groups_are() {
        let json = r#"{"headroom": "30%", "tolerance": "0", "quota": "1cpus"}"#;
        let expected: Knobs = serde_json::from_str(r#"{"quota": "1cpus"}"#).unwrap();
        for normal in [wish(json), command(json)] {
            let demand = demand([&normal].into_iter());
            assert_eq!(laid_down(&normal, demand, 2), expected);
            let batch = wish(r#"{"class": "batch"}"#);
            assert_eq!(laid_down(&batch, demand, 2).headroom, normal.knobs.headroom);
        }
    }
}
