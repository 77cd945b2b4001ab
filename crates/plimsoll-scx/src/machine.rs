//! What all groups together ask of the machine.

use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::{Headroom, Tolerance};
use plimsoll_engine::runtime::RuntimeLock;
use plimsoll_policy::headroom;

use crate::bpf_intf::{
    plim_headroom_params, plimsoll_group_flags_PLIMSOLL_BATCH as BATCH,
    plimsoll_group_flags_PLIMSOLL_USED as USED, plimsoll_limits_PLIMSOLL_SLOT_DEFAULT,
    plimsoll_machine_change, plimsoll_params,
};
use crate::control_error::ControlError;
use crate::ext_server::Setting;
use crate::objects::Objects;
use crate::params::tolerance_of;

/// How much credit each CPU may have: the scheduler updates it every
/// millisecond, and what is earned while an update is late must not be lost.
const GRAIN_NS: u64 = 6_000_000;
/// The whole machine.
const PPM: u64 = 1_000_000;

/// The largest of what groups ask for. Of the two forms of headroom the larger
/// holds, see [`Demand::in_force`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Of all CPUs, on average.
    pub headroom_ppm: u32,
    /// Idle CPUs at every instant.
    pub headroom_cpus: u32,
    /// What batch work may run in any case.
    pub tolerance: Tolerance,
}

impl Demand {
    /// Of groups with these parameters.
    fn of<'a>(groups: impl Iterator<Item = &'a plimsoll_params> + Clone) -> Self {
        let batch = groups.clone().filter(|params| params.flags & BATCH != 0);
        Self {
            headroom_ppm: groups.clone().map(|p| p.headroom_ppm).max().unwrap_or(0),
            headroom_cpus: groups.map(|p| p.headroom_cpus).max().unwrap_or(0),
            tolerance: batch
                .map(tolerance_of)
                .max_by_key(|t| {
                    u128::from(t.runtime_ns) * 1_000_000 / u128::from(t.period_ns.max(1))
                })
                .unwrap_or_default(),
        }
    }

    /// Of all groups that the scheduler has now.
    pub fn now(objects: &Objects) -> Self {
        let first = plimsoll_limits_PLIMSOLL_SLOT_DEFAULT + 1;
        let params: Vec<plimsoll_params> = (first..objects.shared.nr_slots_used())
            .filter_map(|slot| objects.group(slot))
            .map(|group| group.params)
            .filter(|params| params.flags & USED != 0)
            .collect();
        Self::of(params.iter())
    }

    /// What the scheduler is told.
    fn change(&self, nr_cpus: u32) -> plimsoll_machine_change {
        let turns = Setting::of(self.tolerance, nr_cpus);
        plimsoll_machine_change {
            headroom: plim_headroom_params {
                window_ns: headroom::WINDOW_DEFAULT_NS,
                grain_ns: GRAIN_NS,
                tolerance_runtime_ns: self.tolerance.runtime_ns,
                tolerance_period_ns: self.tolerance.period_ns,
                headroom_ppm: self.share_in_force(nr_cpus),
                nr_cpus,
            },
            headroom_cpus: self.cpus_in_force(nr_cpus),
            burst_on: 1,
            turn_runtime_ns: turns.runtime_ns,
            turn_period_ns: turns.period_ns,
        }
    }
}

/// Tells the scheduler what its groups ask for together. With the lock, so
/// that no older sum overwrites a newer one.
pub(crate) fn refresh(objects: &Objects, _lock: &RuntimeLock) -> Result<(), ControlError> {
    let demand = Demand::now(objects);
    objects.set_machine(&mut demand.change(nr_cpus_online()))
}

/// Which form of headroom holds.
impl Demand {
    /// The headroom that holds. A share and a number of CPUs are compared as
    /// CPUs, the share rounded up; of two that are alike it is the number, which
    /// keeps them idle at every instant and not on average.
    pub fn in_force(&self, nr_cpus: u32) -> Option<Headroom> {
        let of_share = u64::from(self.headroom_ppm) * u64::from(nr_cpus);
        if self.headroom_cpus > 0 && u64::from(self.headroom_cpus) >= of_share.div_ceil(PPM) {
            return Some(Headroom::Cpus(self.headroom_cpus));
        }
        (self.headroom_ppm > 0).then_some(Headroom::Share(self.headroom_ppm))
    }

    /// What the other form asks for, which is less.
    pub fn overruled(&self, nr_cpus: u32) -> Option<Headroom> {
        match self.in_force(nr_cpus)? {
            Headroom::Cpus(_) if self.headroom_ppm > 0 => Some(Headroom::Share(self.headroom_ppm)),
            Headroom::Share(_) if self.headroom_cpus > 0 => {
                Some(Headroom::Cpus(self.headroom_cpus))
            }
            _ => None,
        }
    }

    /// The share that holds, in ppm; 0: none does.
    fn share_in_force(&self, nr_cpus: u32) -> u32 {
        match self.in_force(nr_cpus) {
            Some(Headroom::Share(ppm)) => ppm,
            _ => 0,
        }
    }

    /// The number of CPUs that holds; 0: none does.
    fn cpus_in_force(&self, nr_cpus: u32) -> u32 {
        match self.in_force(nr_cpus) {
            Some(Headroom::Cpus(cpus)) => cpus,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::params_of;

    fn demand(groups: &[&str]) -> Demand {
        let params: Vec<plimsoll_params> = groups
            .iter()
            .map(|json| params_of(&serde_json::from_str(json).unwrap(), 1, None))
            .collect();
        Demand::of(params.iter())
    }

    #[test]
    fn the_largest_of_each_wins() {
        let demand = demand(&[
            r#"{"class": "batch", "headroom": "30%", "tolerance": "1ms/50ms"}"#,
            r#"{"class": "batch", "headroom": "20%", "tolerance": "2ms/1s"}"#,
            r#"{"class": "batch", "headroom": "2cpus", "tolerance": "0"}"#,
        ]);
        assert_eq!((demand.headroom_ppm, demand.headroom_cpus), (300_000, 2));
        assert_eq!(demand.tolerance, "1ms/50ms".parse().unwrap());
    }

    #[test]
    fn of_a_share_and_a_number_of_cpus_the_larger_holds() {
        let both = |share, cpus| {
            let groups = [
                format!(r#"{{"class": "batch", "headroom": "{share}"}}"#),
                format!(r#"{{"class": "batch", "headroom": "{cpus}"}}"#),
            ];
            demand(&[&groups[0], &groups[1]])
        };
        let text = |headroom: Option<Headroom>| headroom.map(|h| h.to_string());
        // 30 % of 4 CPUs are 1.2: as much as 2.
        for (share, cpus, nr_cpus, holds, other) in [
            ("30%", "2cpus", 4, "2cpus", "30%"),
            ("30%", "1cpus", 4, "30%", "1cpus"),
            ("25%", "1cpus", 4, "1cpus", "25%"),
            ("30%", "1cpus", 2, "1cpus", "30%"),
            ("100%", "1cpus", 2, "100%", "1cpus"),
        ] {
            let demand = both(share, cpus);
            assert_eq!(text(demand.in_force(nr_cpus)).unwrap(), holds);
            assert_eq!(text(demand.overruled(nr_cpus)).unwrap(), other);
        }
        assert_eq!(demand(&[]).in_force(4), None);
        let larger_share = both("30%", "1cpus");
        assert_eq!(larger_share.cpus_in_force(4), 0);
        assert_eq!(larger_share.share_in_force(4), 300_000);
        let alone = demand(&[r#"{"class": "batch", "headroom": "30%"}"#]);
        assert_eq!(alone.overruled(4), None);
    }

    #[test]
    fn the_tolerance_is_that_of_batch_groups_or_the_default() {
        assert_eq!(demand(&[]).tolerance, Tolerance::default());
        assert_eq!(demand(&["{}"]).tolerance, Tolerance::default());
        let none = demand(&[r#"{"class": "batch", "tolerance": "0"}"#]);
        assert_eq!(none.tolerance.runtime_ns, 0);
    }

    #[test]
    fn each_cpu_has_its_part_of_the_tolerance_in_turns() {
        let change = demand(&[]).change(2);
        assert_eq!(change.turn_runtime_ns, 100_000);
        assert_eq!(change.turn_period_ns, 20_000_000);
    }
}
