//! What all side groups ask for together.

use plimsoll_policy::headroom::{self as core, Params};

use super::GRAIN;
use super::announce::SideDescription;
use crate::knobs::Tolerance;

/// The largest headroom, and the smallest tolerance.
pub(super) fn params_of<'a>(
    sides: impl Iterator<Item = &'a SideDescription>,
    nr_cpus: u32,
) -> Params {
    let rate = |tolerance: &Tolerance| {
        u128::from(tolerance.runtime_ns) * 1_000_000 / u128::from(tolerance.period_ns.max(1))
    };
    let mut headroom_ppm = 0;
    let mut smallest: Option<Tolerance> = None;
    for side in sides {
        headroom_ppm = headroom_ppm.max(side.headroom.share_ppm(nr_cpus));
        if smallest.is_none_or(|smallest| rate(&side.tolerance) < rate(&smallest)) {
            smallest = Some(side.tolerance);
        }
    }
    let tolerance = smallest.unwrap_or_default();
    Params {
        window_ns: core::WINDOW_DEFAULT_NS,
        grain_ns: GRAIN.as_nanos() as u64,
        tolerance_runtime_ns: tolerance.runtime_ns,
        tolerance_period_ns: tolerance.period_ns,
        headroom_ppm,
        nr_cpus,
    }
}
