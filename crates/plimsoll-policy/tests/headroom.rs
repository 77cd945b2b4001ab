//! Property tests of the headroom core against brute-force sums over windows.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::headroom::{Controller, HeadroomParams};
use proptest::prelude::*;

fn params(headroom_ppm: u32, nr_cpus: u32) -> HeadroomParams {
    HeadroomParams {
        window_ns: 100 * MS,
        grain_ns: 10 * MS,
        tolerance_runtime_ns: MS,
        tolerance_period_ns: 100 * MS,
        headroom_ppm,
        nr_cpus,
    }
}

/// An interval between updates: its length and the usage in it.
#[derive(Clone, Copy, Debug)]
struct Interval {
    length_ns: u64,
    nonbatch_ns: u64,
    batch_ns: u64,
}

proptest! {
    #[test]
    fn grant_keeps_the_law_in_the_window_that_ends_with_it(
        headroom_ppm in 0..=1_000_000u32,
        nr_cpus in 1..=64u32,
        raw in prop::collection::vec((1..=20 * MS, 0.0..=1.0, 0.0..=1.0), 1..60),
    ) {
        let params = params(headroom_ppm, nr_cpus);
        let mut controller = Controller::new(params, 0).expect("valid parameters");
        let mut past: Vec<Interval> = Vec::new();
        let mut now_ns = 0;
        for (length_ns, busy, batch) in raw {
            now_ns += length_ns;
            let busy_ns = (length_ns as f64 * f64::from(nr_cpus) * busy) as u64;
            let batch_ns = (busy_ns as f64 * batch) as u64;
            let nonbatch_ns = busy_ns - batch_ns;
            past.push(Interval { length_ns, nonbatch_ns, batch_ns });
            let grant_ns = controller.update(nonbatch_ns, batch_ns, now_ns);
            if controller.credit_ns() <= 0 || grant_ns > controller.credit_ns().unsigned_abs() {
                continue;
            }
            let (mut window_ns, mut busy_ns) = (0u128, u128::from(grant_ns));
            for interval in past.iter().rev() {
                window_ns += u128::from(interval.length_ns);
                busy_ns += u128::from(interval.nonbatch_ns + interval.batch_ns);
                if window_ns > u128::from(params.window_ns) {
                    break;
                }
                let usable = u128::from(1_000_000 - headroom_ppm) * u128::from(nr_cpus) * window_ns;
                let grain_ns = u128::from(params.grain_ns) * u128::from(nr_cpus);
                prop_assert!(busy_ns * 1_000_000 <= usable + grain_ns * 1_000_000);
            }
        }
    }
}
