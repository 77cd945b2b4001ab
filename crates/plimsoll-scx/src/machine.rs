//! The machine's policy in the scheduler.

use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::Headroom;
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_policy::headroom;

use crate::SchedExtError;
use crate::bpf_intf::{plim_headroom_params, plimsoll_machine_change};
use crate::objects::Objects;

/// Largest credit of each CPU: the scheduler updates it every millisecond, and the credit earned
/// while an update is late must not be lost.
const GRAIN_NS: u64 = 6_000_000;

/// The settings of the scheduler for a policy.
fn change_for(policy: &MachinePolicy, nr_cpus: u32) -> plimsoll_machine_change {
    let demand = &policy.demand;
    let tolerance = demand.tolerance();
    let (headroom_ppm, headroom_cpus) = match demand.in_force(nr_cpus) {
        Some(Headroom::Share(ppm)) => (ppm, 0),
        Some(Headroom::Cpus(cpus)) => (0, cpus),
        None => (0, 0),
    };
    plimsoll_machine_change {
        headroom: plim_headroom_params {
            window_ns: headroom::WINDOW_DEFAULT_NS,
            grain_ns: GRAIN_NS,
            tolerance_runtime_ns: tolerance.runtime_ns,
            tolerance_period_ns: tolerance.period_ns,
            headroom_ppm,
            nr_cpus,
        },
        headroom_cpus,
        bandwidth_slice_ns: policy.bandwidth_slice.unwrap_or_default().slice_ns,
    }
}

/// Sets the policy in the scheduler.
pub(crate) fn set(objects: &Objects, policy: &MachinePolicy) -> Result<(), SchedExtError> {
    objects.set_machine(&mut change_for(policy, nr_cpus_online()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_engine::knobs::{HeadroomDemand, Knobs};

    fn demand(groups: &[&str]) -> HeadroomDemand {
        let knobs = groups
            .iter()
            .map(|json| serde_json::from_str(json).unwrap());
        knobs.collect::<Vec<Knobs>>().iter().collect()
    }

    fn change_of(demand: HeadroomDemand, nr_cpus: u32) -> plimsoll_machine_change {
        let policy = MachinePolicy {
            demand,
            ..MachinePolicy::default()
        };
        change_for(&policy, nr_cpus)
    }

    #[test]
    fn the_largest_headroom_and_the_smallest_tolerance_count() {
        let demand = demand(&[
            r#"{"class": "batch", "headroom": "30%", "tolerance": "1ms/50ms"}"#,
            r#"{"headroom": "20%"}"#,
            r#"{"class": "batch", "headroom": "1cpus", "tolerance": "5ms/100ms"}"#,
            r#"{"class": "batch", "tolerance": "2ms/1s"}"#,
        ]);
        let change = change_of(demand, 4);
        assert_eq!(change.headroom.headroom_ppm, 300_000);
        assert_eq!(change.headroom_cpus, 0);
        assert_eq!(change.bandwidth_slice_ns, 5_000_000);
        assert_eq!(change.headroom.tolerance_runtime_ns, 2_000_000);
        assert_eq!(change.headroom.tolerance_period_ns, 1_000_000_000);
        assert_eq!(demand.overruled(4), Some(Headroom::Cpus(1)));
    }

    #[test]
    fn a_number_of_cpus_in_force_is_not_kept_as_a_share_too() {
        let demand = demand(&[
            r#"{"class": "batch", "headroom": "25%"}"#,
            r#"{"class": "batch", "headroom": "1cpus"}"#,
        ]);
        let change = change_of(demand, 4);
        assert_eq!(change.headroom.headroom_ppm, 0);
        assert_eq!(change.headroom_cpus, 1);
    }
}
