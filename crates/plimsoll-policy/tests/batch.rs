//! Property tests of the batch core against simple models.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::batch::{self, Limit};
use proptest::prelude::*;

proptest! {
    #[test]
    fn limit_equals_a_queue_drained_once_per_window(
        limit_ppm in 10_000..=1_000_000u32,
        runs in prop::collection::vec((0..=300 * MS, 0..=30 * MS), 1..100),
    ) {
        let allowed_ns = batch::limit_ns(limit_ppm);
        let mut limit = Limit::new(0);
        let (mut now_ns, mut window, mut used_ns) = (0, 0, 0);
        for (later_ns, ran_ns) in runs {
            now_ns += later_ns;
            while window < now_ns / batch::WINDOW_NS {
                used_ns = u64::saturating_sub(used_ns, allowed_ns);
                window += 1;
            }
            used_ns += ran_ns;
            let left_ns = limit.charge(limit_ppm, ran_ns, now_ns);
            prop_assert_eq!(limit.used_ns(), used_ns);
            prop_assert_eq!(left_ns, allowed_ns.saturating_sub(used_ns));
            prop_assert_eq!(limit.until_ns(), (window + 1) * batch::WINDOW_NS);
        }
    }

    #[test]
    fn room_moves_towards_the_observed_value(before in 0..=1_000_000u32, elapsed_ns in 1..=200 * MS,
                                        part in 0.0..=1.0) {
        let normal_ns = (elapsed_ns as f64 * part) as u64;
        let seen = ((elapsed_ns - normal_ns) as u128 * 1_000_000 / u128::from(elapsed_ns)) as u32;
        let after = batch::room_ppm(before, normal_ns, elapsed_ns);
        prop_assert!(after >= before.min(seen) && after <= before.max(seen));
    }
}
