//! Property tests of the batch core against simple models.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::batch::{self, Cpu, Limit};
use proptest::prelude::*;

/// Runs tasks of the given weights, lowest virtual runtime first, and returns
/// the run time of each.
fn simulate(weights: &[u32], slices: u64) -> Vec<u64> {
    let mut vruntimes = vec![u64::MAX - 1_000; weights.len()];
    let mut ran_ns = vec![0; weights.len()];
    for _ in 0..slices {
        let mut first = 0;
        for task in 1..weights.len() {
            if batch::before(vruntimes[task], vruntimes[first]) {
                first = task;
            }
        }
        let delta = batch::vruntime_delta(batch::SLICE_DEFAULT_NS, weights[first]);
        vruntimes[first] = vruntimes[first].wrapping_add(delta);
        ran_ns[first] += batch::SLICE_DEFAULT_NS;
    }
    ran_ns
}

#[test]
fn mixed_tasks_share_by_weight_within_one_percent() {
    // Without the smallest weights, which would take minutes to reach one per
    // cent.
    let weights: Vec<u32> = (0..64).map(|task| batch::weight(task % 16 - 10)).collect();
    let ran_ns = simulate(&weights, 1_000_000);
    let all_weights: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    let all_ns: u64 = ran_ns.iter().sum();
    for (&weight, &ran_ns) in weights.iter().zip(&ran_ns) {
        let fair_ns = all_ns as f64 * f64::from(weight) / all_weights as f64;
        let error = (ran_ns as f64 - fair_ns).abs() / fair_ns;
        assert!(error < 0.01, "weight {weight}: {error}");
    }
}

#[test]
fn nice_0_gets_three_times_the_share_of_nice_5() {
    let ran_ns = simulate(&[batch::weight(0), batch::weight(5)], 100_000);
    let ratio = ran_ns[0] as f64 / ran_ns[1] as f64;
    assert!((ratio - 1024.0 / 335.0).abs() < 0.01, "{ratio}");
}

proptest! {
    #[test]
    fn virtual_runtime_is_the_exact_quotient_rounded_up(ran_ns: u64, weight: u32) {
        let ran = u128::from(ran_ns.min(plimsoll_policy::ELAPSED_MAX_NS)) * 1024;
        let exact = ran.div_ceil(u128::from(weight.max(1)));
        prop_assert_eq!(u128::from(batch::vruntime_delta(ran_ns, weight)), exact);
    }

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

    #[test]
    fn better_cpu_is_a_strict_order(raw in prop::collection::vec(
        (0..4u32, 0..=4u32, any::<[bool; 3]>()), 3)) {
        let cpus: Vec<Cpu> = raw.iter().map(|&(nr_queued, room, flags)| Cpu {
            waited_ns: 0,
            nr_queued,
            room_ppm: room * 250_000,
            running_normal: flags[0],
            running_batch: flags[1],
            core_idle: flags[2],
        }).collect();
        let better = |a: usize, b: usize| batch::better_cpu(&cpus[a], &cpus[b], 4 * MS);
        prop_assert!(!better(0, 0));
        prop_assert!(!(better(0, 1) && better(1, 0)));
        prop_assert!(!(better(0, 1) && better(1, 2)) || better(0, 2));
    }
}
