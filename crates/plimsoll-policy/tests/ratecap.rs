//! Property tests of the rate caps against brute-force sums over all intervals.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::ratecap::{Bucket, Params, decay_ppm};
use proptest::prelude::*;

/// Demand of a task: runs, and the sleep before each.
fn demand() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..=4 * MS, 0..=20 * MS), 1..80)
}

proptest! {
    #[test]
    fn usage_over_every_interval_is_within_the_cap(
        hard_permille in 1..=1000u32, depth_ns in 0..=5 * MS, demand in demand(),
    ) {
        let params = Params { hard_permille, depth_ns, ..Params::default() };
        let mut bucket = Bucket::new(params, 0).unwrap();
        let mut now_ns = 0;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (ran_ns, sleep_ns) in demand {
            now_ns = (now_ns + sleep_ns).max(bucket.eligible_ns());
            prop_assert!(bucket.may_run(now_ns));
            bucket.charge(now_ns, ran_ns);
            runs.push((now_ns, now_ns + ran_ns));
            now_ns += ran_ns;
        }
        for (first, &(from_ns, _)) in runs.iter().enumerate() {
            let mut usage_ns = 0u128;
            for &(start_ns, end_ns) in &runs[first..] {
                usage_ns += u128::from(end_ns - start_ns);
                let most = u128::from(end_ns - from_ns) * u128::from(hard_permille)
                    + u128::from(depth_ns + 4 * MS) * 1000;
                prop_assert!(usage_ns * 1000 <= most);
            }
        }
    }

    #[test]
    fn run_ns_is_the_longest_run_within_the_depth(
        hard_permille in prop_oneof![1..=1000u32, 1..=4100u32],
        nr_running in 0..=5u32,
        depth_ns in prop_oneof![0..=50u64, 0..=1000 * MS],
        (start_ns, ran_ns) in (0..=50u64, prop_oneof![0..=50u64, 0..=1000 * MS]),
        now_ns in prop_oneof![0..=200u64, 0..=3000 * MS],
    ) {
        let params = Params { hard_permille, depth_ns, ..Params::default() };
        let mut bucket = Bucket::new(params, 0).unwrap();
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
            None => {
                prop_assert!(is_within(0) && cpus * 1000 <= cap);
                for ran in [1, u128::from(MS), 1 << 60] {
                    prop_assert!(is_within(ran));
                }
            }
            Some(0) => prop_assert!(!is_within(0) || !is_within(1)),
            Some(run_ns) => {
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
    fn decay_is_a_power_of_two(elapsed_ns in 0..=400_000 * MS, half_life_ns in 50 * MS..=60_000 * MS) {
        let exact = (-(elapsed_ns as f64) / half_life_ns as f64).exp2() * 1e6;
        let decay = decay_ppm(elapsed_ns, half_life_ns) as f64;
        prop_assert!((decay - exact).abs() <= exact * 0.0003 + 1.5, "{} {}", decay, exact);
    }
}

#[test]
fn spinner_gets_its_cap_over_any_life_time() {
    // The rows of the source's table: cap, CPU time needed, maximum share.
    for (hard_permille, needed_ms, most) in [
        (90, 10, 0.10),
        (90, 100, 0.0908),
        (90, 10_000, 0.0901),
        (900, 1_000, 0.9009),
    ] {
        let params = Params {
            hard_permille,
            ..Params::default()
        };
        let mut bucket = Bucket::new(params, 0).unwrap();
        let mut now_ns = 0;
        for _ in 0..needed_ms * 10 {
            now_ns = bucket.eligible_ns().max(now_ns);
            bucket.charge(now_ns, MS / 10);
            now_ns += MS / 10;
        }
        let share = (needed_ms * MS) as f64 / now_ns as f64;
        let cap = f64::from(hard_permille) / 1000.0;
        assert!(
            share >= cap && share <= most,
            "{hard_permille} {needed_ms}: {share}"
        );
    }
}

#[test]
fn soft_caps_apply_and_bad_parameters_are_named() {
    type Spoil = fn(&mut Params);
    let good = Params {
        soft_permille: Some(500),
        ..Params::default()
    };
    let mut bucket = Bucket::new(good, 0).unwrap();
    bucket.rate_update(4_000 * MS, 5_000 * MS);
    assert!(bucket.is_background());
    bucket.rate_update(0, 10_000 * MS);
    assert!(!bucket.is_background());
    let bad: [(Spoil, &str); 4] = [
        (
            |it| it.hard_permille = 8_192_001,
            "hard_permille is 8192001",
        ),
        (
            |it| it.soft_permille = Some(8_192_001),
            "soft_permille is 8192001",
        ),
        (|it| it.depth_ns = 1_001 * MS, "depth_ns is 1001000000"),
        (|it| it.half_life_ns = 1, "half_life_ns is 1"),
    ];
    for (spoil, field) in bad {
        let mut params = good;
        spoil(&mut params);
        let message = params.check().unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
}
