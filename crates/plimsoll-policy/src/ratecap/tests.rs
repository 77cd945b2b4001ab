//! Property tests of what the proofs of rate caps are narrowed in: all caps and half-lives.

use proptest::prelude::*;

use super::*;
use crate::NSEC_PER_MSEC as MS;

/// A hard cap, which only the kernel has outside of this test.
#[derive(Clone, Copy)]
struct HardCap {
    params: ffi::plim_ratecap_params,
    raw: ffi::plim_ratecap,
}

impl HardCap {
    fn may_run(&self, now_ns: u64) -> bool {
        // SAFETY: reads the structs that are passed.
        unsafe { ffi::plim_ratecap_may_run(&self.raw, &self.params, now_ns) != 0 }
    }

    fn run_ns(&self, nr_running: u32, now_ns: u64) -> u64 {
        // SAFETY: reads the structs that are passed.
        unsafe { ffi::plim_ratecap_run_ns(&self.raw, &self.params, nr_running, now_ns) }
    }

    fn charge(&mut self, start_ns: u64, ran_ns: u64) {
        // SAFETY: accesses the structs that are passed.
        unsafe { ffi::plim_ratecap_charge(&mut self.raw, &self.params, start_ns, ran_ns) }
    }
}

proptest! {
    #[test]
    fn run_ns_is_the_longest_run_within_the_depth(
        hard_permille in prop_oneof![1..=1000u32, 1..=4100u32],
        nr_running in 0..=5u32,
        depth_ns in prop_oneof![0..=50u64, 0..=1000 * MS],
        (start_ns, ran_ns) in (0..=50u64, prop_oneof![0..=50u64, 0..=1000 * MS]),
        now_ns in prop_oneof![0..=200u64, 0..=3000 * MS],
    ) {
        let bucket = Bucket::new(RateCapParams::default(), 0).unwrap();
        let params = bucket.params.to_raw();
        let params = ffi::plim_ratecap_params { hard_permille, depth_ns, ..params };
        let mut bucket = HardCap { params, raw: bucket.raw };
        bucket.charge(start_ns, ran_ns);
        // In units of 1 / cap, which need no rounding.
        let cap = u128::from(hard_permille);
        let cpus = u128::from(nr_running.max(1));
        let now = u128::from(now_ns);
        let depth = u128::from(depth_ns) * 1000 / cap.max(1000);
        let tat = (u128::from(start_ns) * cap + u128::from(ran_ns) * 1000).max(now * cap);
        let is_within = |ran: u128| tat + cpus * ran * 1000 <= (now + ran + depth) * cap;

        prop_assert_eq!(bucket.may_run(now_ns), is_within(0));
        match bucket.run_ns(nr_running, now_ns) {
            ffi::PLIM_UNLIMITED => {
                prop_assert!(is_within(0) && cpus * 1000 <= cap);
                for ran in [1, u128::from(MS), 1 << 60] {
                    prop_assert!(is_within(ran));
                }
            }
            0 => prop_assert!(!is_within(0) || !is_within(1)),
            run_ns => {
                let ran = u128::from(run_ns);
                prop_assert!(run_ns <= 1_000_000 * MS);
                prop_assert!(is_within(0) && is_within(ran) && !is_within(ran + 1));
                // The charges give the same result.
                for (ran_ns, may_run) in [(run_ns, true), (run_ns + 1, false)] {
                    let mut after = bucket;
                    for _ in 0..cpus {
                        after.charge(now_ns, ran_ns);
                    }
                    prop_assert_eq!(after.may_run(now_ns + ran_ns), may_run);
                }
            }
        }
    }

    #[test]
    fn decay_is_a_power_of_two(
        elapsed_ns in 0..=400_000 * MS,
        half_life_ns in HALF_LIFE_MIN_NS..=HALF_LIFE_MAX_NS,
    ) {
        let exact = (-(elapsed_ns as f64) / half_life_ns as f64).exp2() * 1e6;
        // SAFETY: a pure function of two integers, defined for all of them.
        let decay = unsafe { ffi::plim_ratecap_decay_ppm(elapsed_ns, half_life_ns) } as f64;
        prop_assert!((decay - exact).abs() <= exact * 0.0003 + 1.5, "{} {}", decay, exact);
    }
}
