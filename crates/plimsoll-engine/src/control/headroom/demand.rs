//! Parameters of the controller.

use plimsoll_policy::headroom::{self as core, HeadroomParams};

use super::{INTERVAL, RETURN_INTERVALS};
use crate::knobs::HeadroomDemand;

pub(super) fn params_of(demand: &HeadroomDemand, nr_cpus: u32) -> HeadroomParams {
    let tolerance = demand.tolerance();
    HeadroomParams {
        window_ns: core::WINDOW_DEFAULT_NS,
        grain_ns: (INTERVAL * RETURN_INTERVALS).as_nanos() as u64,
        tolerance_runtime_ns: tolerance.runtime_ns,
        tolerance_period_ns: tolerance.period_ns,
        // A quota limits an average, so a number of CPUs is kept on average only.
        headroom_ppm: demand
            .in_force(nr_cpus)
            .map_or(0, |headroom| headroom.share_ppm(nr_cpus)),
        nr_cpus,
    }
}
