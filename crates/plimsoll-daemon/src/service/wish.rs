//! What is asked of one group, from whom, and what follows for the others.

use std::fmt;

use plimsoll_engine::knobs::{Class, Headroom, Knobs, Tolerance};

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
    /// The next group of the file that claims the cgroup.
    pub rival: Option<String>,
}

impl Wish {
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

    /// Whether its headroom is room that others have to leave to it. That of
    /// a command is what the command itself leaves.
    fn is_main(&self) -> bool {
        !self.is_batch() && !matches!(self.place, Place::Command { .. })
    }
}

/// What all batch groups have to leave free, because a group asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Demand {
    headroom: Headroom,
    pub tolerance: Option<Tolerance>,
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.headroom)?;
        match self.tolerance {
            Some(tolerance) => write!(f, " with tolerance {tolerance}"),
            None => Ok(()),
        }
    }
}

fn rate(tolerance: Tolerance) -> u128 {
    u128::from(tolerance.runtime_ns) * 1_000_000 / u128::from(tolerance.period_ns.max(1))
}

fn smaller(one: Option<Tolerance>, other: Option<Tolerance>) -> Option<Tolerance> {
    let both = [one, other].into_iter().flatten();
    both.min_by_key(|tolerance| rate(*tolerance))
}

fn larger(one: Option<Headroom>, other: Option<Headroom>, nr_cpus: u32) -> Option<Headroom> {
    let both = [one, other].into_iter().flatten();
    both.max_by_key(|headroom| headroom.share_ppm(nr_cpus))
}

/// The largest headroom and the smallest tolerance that main groups ask for.
pub(super) fn demand<'a>(wishes: impl Iterator<Item = &'a Wish>, nr_cpus: u32) -> Option<Demand> {
    let mains = wishes.filter(|wish| wish.is_main() && wish.knobs.headroom.is_some());
    mains.fold(None, |demand: Option<Demand>, wish| {
        let asked = wish.knobs.headroom;
        let headroom = larger(demand.map(|demand| demand.headroom), asked, nr_cpus)?;
        let before = demand.and_then(|demand| demand.tolerance);
        Some(Demand {
            headroom,
            tolerance: smaller(before, wish.knobs.tolerance),
        })
    })
}

/// What the enforcer is to do for a wish: batch groups leave what is demanded,
/// and a main group itself needs nothing for it.
pub(super) fn laid_down(wish: &Wish, demand: Option<Demand>, nr_cpus: u32) -> Knobs {
    let mut knobs = wish.knobs.clone();
    if wish.is_main() {
        knobs.headroom = None;
        knobs.tolerance = None;
    }
    if let (true, Some(demand)) = (wish.is_batch(), demand) {
        knobs.headroom = larger(knobs.headroom, Some(demand.headroom), nr_cpus);
        knobs.tolerance = smaller(knobs.tolerance, demand.tolerance);
    }
    knobs
}

/// The tolerance that holds for all side work: the smallest of those that leave
/// headroom. `None`: nobody does.
pub(super) fn tolerance<'a>(
    wishes: impl Iterator<Item = &'a Wish>,
    demand: Option<Demand>,
    nr_cpus: u32,
) -> Option<Tolerance> {
    let laid_down = wishes.map(|wish| laid_down(wish, demand, nr_cpus));
    let sides = laid_down.filter(|knobs| knobs.headroom.is_some());
    let each = sides.map(|knobs| knobs.tolerance.unwrap_or_default());
    each.min_by_key(|tolerance| rate(*tolerance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(json: &str) -> Wish {
        Wish {
            group: "g".into(),
            origin: Origin::File,
            place: Place::Cgroup,
            knobs: serde_json::from_str(json).unwrap(),
            subject: String::new(),
            best_effort: false,
            rival: None,
        }
    }

    #[test]
    fn the_largest_headroom_and_the_smallest_tolerance_win() {
        let wishes = [
            wish(r#"{"headroom": "10%"}"#),
            wish(r#"{"headroom": "1cpus", "tolerance": "2ms/100ms"}"#),
            wish(r#"{"headroom": "30%", "tolerance": "1ms/100ms"}"#),
            // Of a batch group's own, the others have nothing.
            wish(r#"{"class": "batch", "headroom": "90%"}"#),
        ];
        let demand = demand(wishes.iter(), 4);
        let batch = laid_down(&wish(r#"{"class": "batch", "nice": "5"}"#), demand, 4);
        let expected = r#"{"class": "batch", "nice": "5", "headroom": "30%",
            "tolerance": "1ms/100ms"}"#;
        assert_eq!(batch, serde_json::from_str(expected).unwrap());
        let own = laid_down(&wishes[3], demand, 4);
        assert_eq!(own.headroom, Some(Headroom::Share(900_000)));
    }

    #[test]
    fn the_smallest_tolerance_of_those_that_leave_headroom_holds_for_all() {
        let main = wish(r#"{"headroom": "30%", "tolerance": "10ms/100ms"}"#);
        let batch = wish(r#"{"class": "batch"}"#);
        let own = wish(r#"{"class": "batch", "headroom": "10%", "tolerance": "5ms/100ms"}"#);
        let tolerance_of = |wishes: &[&Wish]| {
            let demand = demand(wishes.iter().copied(), 2);
            tolerance(wishes.iter().copied(), demand, 2).map(|it| it.to_string())
        };
        assert_eq!(tolerance_of(&[&batch]), None);
        assert_eq!(tolerance_of(&[&main, &batch]).unwrap(), "10ms/100ms");
        assert_eq!(tolerance_of(&[&main, &batch, &own]).unwrap(), "5ms/100ms");
    }

    #[test]
    fn without_a_demand_nothing_is_left_free() {
        let batch = wish(r#"{"class": "batch"}"#);
        assert_eq!(demand([&batch].into_iter(), 2), None);
        assert_eq!(laid_down(&batch, None, 2), batch.knobs);
    }

    #[test]
    fn what_a_command_leaves_free_is_its_own() {
        let command = Wish {
            place: Place::Command {
                pid: 1,
                start_time: 1,
                uid: 0,
            },
            ..wish(r#"{"headroom": "30%"}"#)
        };
        assert_eq!(demand([&command].into_iter(), 2), None);
        assert_eq!(laid_down(&command, None, 2), command.knobs);
    }

    #[test]
    fn a_main_group_needs_nothing_for_its_headroom() {
        let main = wish(r#"{"headroom": "30%", "quota": "1cpus"}"#);
        let demand = demand([&main].into_iter(), 2);
        let expected = serde_json::from_str(r#"{"quota": "1cpus"}"#).unwrap();
        assert_eq!(laid_down(&main, demand, 2), expected);
    }
}
