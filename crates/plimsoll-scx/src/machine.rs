//! The machine's policy in the scheduler.

use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::knobs::{Headroom, Tolerance};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_policy::headroom;

use crate::SchedExtError;
use crate::bpf_intf::{plim_headroom_params, plimsoll_machine_change};
use crate::objects::Objects;

/// Largest credit of each CPU: the scheduler updates it every millisecond, and the credit earned
/// while an update is late must not be lost.
const GRAIN_NS: u64 = 6_000_000;

/// Shortest server slice: less is not worth a switch to a task and back.
const SERVER_SLICE_MIN_NS: u64 = 100_000;
/// Shortest period. It bounds the wait for a resource that a batch task holds for a moment.
const SERVER_PERIOD_MIN_NS: u64 = 20_000_000;
const SERVER_PERIOD_MAX_NS: u64 = 4_000_000_000;

/// Slices in which each CPU runs batch work although normal work wants to: its part of the
/// tolerance, short and frequent, because a normal task may wait for a resource of a waiting batch
/// task, such as a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerSlices {
    slice_ns: u64,
    /// Period while all CPUs have such slices.
    period_ns: u64,
    /// Period while one CPU has them: it has the whole tolerance, up to half of its time or, if that
    /// is more, its own part.
    alone_ns: u64,
}

impl ServerSlices {
    /// Each CPU's part of a tolerance. A tolerance of 0 still leaves enough that no task waits
    /// until the watchdog fires.
    fn of(tolerance: Tolerance, nr_cpus: u32) -> Self {
        let never = Self {
            slice_ns: SERVER_SLICE_MIN_NS,
            period_ns: SERVER_PERIOD_MAX_NS,
            alone_ns: SERVER_PERIOD_MAX_NS,
        };
        if tolerance.runtime_ns == 0 || tolerance.period_ns == 0 {
            return never;
        }
        // The part of one CPU in a period of a runtime that all CPUs share.
        let all = u128::from(tolerance.period_ns) * u128::from(nr_cpus.max(1));
        let slice = u128::from(SERVER_PERIOD_MIN_NS) * u128::from(tolerance.runtime_ns) / all;
        let slice_ns = u64::try_from(slice)
            .unwrap_or(SERVER_PERIOD_MIN_NS)
            .clamp(SERVER_SLICE_MIN_NS, SERVER_PERIOD_MIN_NS);
        let period_of = |period_ns: u128| {
            let period = u128::from(slice_ns) * period_ns / u128::from(tolerance.runtime_ns);
            u64::try_from(period).map_or(SERVER_PERIOD_MAX_NS, |ns| ns.min(SERVER_PERIOD_MAX_NS))
        };
        let period_ns = period_of(all).max(SERVER_PERIOD_MIN_NS);
        Self {
            slice_ns,
            period_ns,
            alone_ns: period_of(u128::from(tolerance.period_ns))
                .max(2 * slice_ns)
                .min(period_ns),
        }
    }
}

/// The settings of the scheduler for a policy.
fn change_for(policy: &MachinePolicy, nr_cpus: u32) -> plimsoll_machine_change {
    let demand = &policy.demand;
    let tolerance = demand.tolerance();
    let slices = ServerSlices::of(tolerance, nr_cpus);
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
        server_slice_ns: slices.slice_ns,
        server_period_ns: slices.period_ns,
        server_alone_ns: slices.alone_ns,
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

    #[test]
    fn a_tolerance_is_shared_among_cpus() {
        let slices = |tolerance: &str, nr_cpus: u32| {
            let slices = ServerSlices::of(tolerance.parse().unwrap(), nr_cpus);
            [slices.slice_ns, slices.period_ns, slices.alone_ns].map(|ns| ns / 1000)
        };
        assert_eq!(slices("1ms/100ms", 1), [200, 20_000, 20_000]);
        assert_eq!(slices("1ms/100ms", 2), [100, 20_000, 10_000]);
        assert_eq!(slices("1ms/100ms", 4), [100, 40_000, 10_000]);
        assert_eq!(slices("1ms/100ms", 64), [100, 640_000, 10_000]);
        assert_eq!(slices("1ms/10s", 64), [100, 4_000_000, 1_000_000]);
        assert_eq!(slices("1s/10s", 1), [2000, 20_000, 20_000]);
        assert_eq!(slices("1s/1s", 1), [20_000, 20_000, 20_000]);
        assert_eq!(slices("1s/1s", 4), [5_000, 20_000, 10_000]);
        assert_eq!(slices("0", 4), [100, 4_000_000, 4_000_000]);
    }

    #[test]
    fn each_cpu_has_its_part_of_the_tolerance_in_server_slices() {
        let change = change_of(demand(&[]), 2);
        assert_eq!(change.server_slice_ns, 100_000);
        assert_eq!(change.server_period_ns, 20_000_000);
        assert_eq!(change.bandwidth_slice_ns, 5_000_000);
    }
}
