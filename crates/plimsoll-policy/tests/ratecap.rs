//! Property tests of what the proofs of rate caps are narrowed in: all caps and half-lives.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::ratecap::{Bucket, Params};
use proptest::prelude::*;

proptest! {
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
