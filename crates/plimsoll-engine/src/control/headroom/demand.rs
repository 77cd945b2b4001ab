//! What all side groups ask for together.

use plimsoll_policy::headroom::{self as core, Params};

use super::GRAIN;
use super::side::SideDescription;
use crate::knobs::Demand;

/// The controller's parameters for the demand of these groups.
pub(super) fn params_of<'a>(
    sides: impl Iterator<Item = &'a SideDescription>,
    nr_cpus: u32,
) -> Params {
    let mut demand = Demand::default();
    for side in sides {
        demand.add(Some(side.headroom), side.tolerance);
    }
    let tolerance = demand.tolerance();
    Params {
        window_ns: core::WINDOW_DEFAULT_NS,
        grain_ns: GRAIN.as_nanos() as u64,
        tolerance_runtime_ns: tolerance.runtime_ns,
        tolerance_period_ns: tolerance.period_ns,
        // Quotas know no instant: a number of CPUs is kept on average.
        headroom_ppm: demand
            .in_force(nr_cpus)
            .map_or(0, |headroom| headroom.share_ppm(nr_cpus)),
        nr_cpus,
    }
}
