//! The headroom core against brute-force sums over windows.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::headroom::{self, Controller, Params, Side};
use proptest::prelude::*;

fn params(headroom_ppm: u32, nr_cpus: u32) -> Params {
    Params {
        window_ns: 100 * MS,
        grain_ns: 10 * MS,
        tolerance_runtime_ns: MS,
        tolerance_period_ns: 100 * MS,
        headroom_ppm,
        nr_cpus,
    }
}

/// One interval between updates: how long it was, and what ran in it.
#[derive(Clone, Copy, Debug)]
struct Interval {
    length_ns: u64,
    nonside_ns: u64,
    side_ns: u64,
}

proptest! {
    #[test]
    fn a_grant_keeps_the_law_in_the_window_that_ends_with_it(
        headroom_ppm in 0..=1_000_000u32,
        nr_cpus in 1..=64u32,
        raw in prop::collection::vec((1..=20 * MS, 0.0..=1.0, 0.0..=1.0), 1..60),
    ) {
        let params = params(headroom_ppm, nr_cpus);
        let mut controller = Controller::new(params, 0).expect("valid parameters");
        let mut past: Vec<Interval> = Vec::new();
        let mut now_ns = 0;
        for (length_ns, busy, side) in raw {
            now_ns += length_ns;
            let busy_ns = (length_ns as f64 * f64::from(nr_cpus) * busy) as u64;
            let side_ns = (busy_ns as f64 * side) as u64;
            let nonside_ns = busy_ns - side_ns;
            past.push(Interval { length_ns, nonside_ns, side_ns });
            let grant_ns = controller.update(nonside_ns, side_ns, now_ns);
            if controller.credit_ns() <= 0 || grant_ns > controller.credit_ns().unsigned_abs() {
                continue;
            }
            let (mut window_ns, mut busy_ns) = (0u128, u128::from(grant_ns));
            for interval in past.iter().rev() {
                window_ns += u128::from(interval.length_ns);
                busy_ns += u128::from(interval.nonside_ns + interval.side_ns);
                if window_ns > u128::from(params.window_ns) {
                    break;
                }
                let usable = u128::from(1_000_000 - headroom_ppm) * u128::from(nr_cpus) * window_ns;
                let grain_ns = u128::from(params.grain_ns) * u128::from(nr_cpus);
                prop_assert!(busy_ns * 1_000_000 <= usable + grain_ns * 1_000_000);
            }
        }
    }

    #[test]
    fn side_work_that_takes_its_grant_gets_its_tolerance(
        runtime_ns in 1..=10 * MS,
        lengths in prop::collection::vec(MS..=20 * MS, 1..100),
    ) {
        let params = Params { tolerance_runtime_ns: runtime_ns, ..params(300_000, 4) };
        let mut controller = Controller::new(params, 0).expect("valid parameters");
        let (mut now_ns, mut got_ns, mut grant_ns) = (0, 0, 0);
        for length_ns in lengths {
            now_ns += length_ns;
            got_ns += grant_ns;
            // The main load leaves nothing but what side work runs.
            grant_ns = controller.update(4 * length_ns - grant_ns, grant_ns, now_ns);
        }
        let due_ns = u128::from(now_ns) * u128::from(runtime_ns) / u128::from(100 * MS);
        prop_assert_eq!(u128::from(got_ns + grant_ns), due_ns);
    }

    #[test]
    fn sharing_is_fair_and_wastes_nothing(
        raw in prop::collection::vec((0..=20 * MS, 1..=10_000u32), 1..=64),
        grant_ns in 0..=200 * MS,
    ) {
        let mut sides: Vec<Side> = raw.iter()
            .map(|&(want_ns, weight)| Side { want_ns, weight, share_ns: 0 })
            .collect();
        headroom::split(&mut sides, grant_ns).unwrap();
        let shared_ns: u64 = sides.iter().map(|side| side.share_ns).sum();
        let wanted_ns: u64 = sides.iter().map(|side| side.want_ns).sum();
        prop_assert!(shared_ns <= grant_ns);
        prop_assert!(shared_ns + sides.len() as u64 > grant_ns.min(wanted_ns));
        for a in &sides {
            prop_assert!(a.share_ns <= a.want_ns);
            for b in sides.iter().filter(|b| b.share_ns < b.want_ns) {
                // Nobody has more per weight than one who still wants.
                let of_a = u128::from(a.share_ns) * u128::from(b.weight);
                let of_b = u128::from(b.share_ns + 1) * u128::from(a.weight);
                prop_assert!(of_a <= of_b + u128::from(a.weight) * 64);
            }
        }
    }
}

/// The share of the CPUs that side work gets beside a main load, both
/// averaged over ten seconds.
fn side_share(headroom_ppm: u32, main: f64) -> f64 {
    let (nr_cpus, step_ns) = (2, 10 * MS);
    let capacity_ns = f64::from(nr_cpus) * step_ns as f64;
    let params = Params {
        tolerance_runtime_ns: 0,
        ..params(headroom_ppm, nr_cpus)
    };
    let mut controller = Controller::new(params, 0).expect("valid parameters");
    let (mut grant_ns, mut side_ns) = (0, 0);
    for step in 1..=1000 {
        let main_ns = (capacity_ns * main) as u64;
        let ran_ns = grant_ns.min(capacity_ns as u64 - main_ns);
        side_ns += ran_ns;
        grant_ns = controller.update(main_ns, ran_ns, step * step_ns);
    }
    side_ns as f64 / (capacity_ns * 1000.0)
}

#[test]
fn side_work_gets_what_main_and_headroom_leave() {
    for (main, side) in [
        (0.0, 0.7),
        (0.3, 0.4),
        (0.5, 0.2),
        (0.6, 0.1),
        (0.7, 0.0),
        (0.9, 0.0),
    ] {
        let got = side_share(300_000, main);
        assert!(
            (got - side).abs() < 0.002,
            "main {main}: side {got}, not {side}"
        );
    }
}

#[test]
fn bad_input_is_named() {
    let good = params(300_000, 2);
    for (bad, field) in [
        (
            Params {
                headroom_ppm: 1_000_001,
                ..good
            },
            "headroom_ppm is 1000001",
        ),
        (Params { nr_cpus: 0, ..good }, "nr_cpus is 0"),
        (
            Params {
                window_ns: 1,
                ..good
            },
            "window_ns is 1",
        ),
        (
            Params {
                grain_ns: 101 * MS,
                ..good
            },
            "grain_ns is 101000000",
        ),
        (
            Params {
                tolerance_runtime_ns: 101 * MS,
                ..good
            },
            "tolerance_runtime_ns is 101000000",
        ),
    ] {
        let message = Controller::new(bad, 0).unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
    let mut sides = [Side::default(); 65];
    let message = headroom::split(&mut sides, MS).unwrap_err().to_string();
    assert!(message.contains("65"), "{message}");
}

#[test]
fn whole_cpus_are_rounded_towards_more_headroom() {
    assert_eq!(headroom::from_cpus_ppm(1, 3), 333_334);
    assert_eq!(headroom::from_cpus_ppm(2, 2), 1_000_000);
    assert_eq!(headroom::from_cpus_ppm(1, 0), 1_000_000);
}
