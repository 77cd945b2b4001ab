//! Property tests of the headroom core against brute-force sums over windows.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::headroom::{self, Controller, Demand, Headroom, Params, Tolerance};
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

    #[test]
    fn batch_work_that_uses_its_grant_gets_its_tolerance(
        runtime_ns in 1..=10 * MS,
        lengths in prop::collection::vec(MS..=20 * MS, 1..100),
    ) {
        let params = Params { tolerance_runtime_ns: runtime_ns, ..params(300_000, 4) };
        let mut controller = Controller::new(params, 0).expect("valid parameters");
        let (mut now_ns, mut got_ns, mut grant_ns) = (0, 0, 0);
        for length_ns in lengths {
            now_ns += length_ns;
            got_ns += grant_ns;
            // Other work leaves only the CPU time that batch work uses.
            grant_ns = controller.update(4 * length_ns - grant_ns, grant_ns, now_ns);
        }
        let due_ns = u128::from(now_ns) * u128::from(runtime_ns) / u128::from(100 * MS);
        prop_assert_eq!(u128::from(got_ns + grant_ns), due_ns);
    }

    #[test]
    fn a_demand_is_the_largest_headroom_and_the_smallest_tolerance(
        groups in prop::collection::vec((ask(), tolerance()), 0..20),
        nr_cpus in 1..=64u32,
        shift in 0..20usize,
    ) {
        let demand = demand_of(&groups);
        let shares = || groups.iter().filter_map(|(headroom, _)| match headroom {
            Some(Headroom::Share(ppm)) => Some(u64::from(*ppm)), _ => None,
        });
        let cpus = || groups.iter().filter_map(|(headroom, _)| match headroom {
            Some(Headroom::Cpus(cpus)) => Some(u64::from(*cpus)), _ => None,
        });
        let (share, cpus) = (shares().max().unwrap_or(0), cpus().max().unwrap_or(0));
        let is_number = cpus > 0 && cpus * 1_000_000 >= share * u64::from(nr_cpus);
        let share_asked = (share > 0).then_some(Headroom::Share(share as u32));
        let cpus_asked = (cpus > 0).then_some(Headroom::Cpus(cpus as u32));
        let (larger, other) = if is_number {
            (cpus_asked, share_asked)
        } else {
            (share_asked, cpus_asked)
        };
        prop_assert_eq!(demand.in_force(nr_cpus), larger);
        prop_assert_eq!(demand.overruled(nr_cpus), other);

        let mut tolerances: Vec<Tolerance> = groups.iter().filter_map(brought).collect();
        tolerances.sort_by(by_rate);
        prop_assert_eq!(demand.tolerance(), tolerances.first().copied().unwrap_or(DEFAULT));

        let mut turned = groups.clone();
        turned.rotate_left(shift % groups.len().max(1));
        prop_assert_eq!(demand_of(&turned), demand);
        turned.reverse();
        prop_assert_eq!(demand_of(&turned), demand);
    }
}

const DEFAULT: Tolerance = Tolerance {
    runtime_ns: headroom::TOLERANCE_RUNTIME_DEFAULT_NS,
    period_ns: headroom::TOLERANCE_PERIOD_DEFAULT_NS,
};

/// A headroom that a group may ask for, also in forms that are equal.
fn ask() -> impl Strategy<Value = Option<Headroom>> {
    prop_oneof![
        Just(None),
        (0..=1_000_000u32).prop_map(|ppm| Some(Headroom::Share(ppm))),
        (0..=4u32).prop_map(|quarters| Some(Headroom::Share(quarters * 250_000))),
        (0..=70u32).prop_map(|cpus| Some(Headroom::Cpus(cpus))),
    ]
}

/// A tolerance in range: any, and some of equal rates.
fn tolerance() -> impl Strategy<Value = Option<Tolerance>> {
    let of = |(runtime_ns, period_ns): (u64, u64)| {
        let runtime_ns = runtime_ns
            .min(period_ns)
            .min(headroom::TOLERANCE_RUNTIME_MAX_NS);
        Some(Tolerance {
            runtime_ns,
            period_ns,
        })
    };
    let periods = headroom::TOLERANCE_PERIOD_MIN_NS..=headroom::TOLERANCE_PERIOD_MAX_NS;
    prop_oneof![
        Just(None),
        (0..=headroom::TOLERANCE_RUNTIME_MAX_NS, periods).prop_map(of),
        (0..=3u64, 1..=4u64).prop_map(move |(runtime, period)| of((runtime * MS, period * MS))),
    ]
}

/// The tolerance that counts for a group.
fn brought((headroom, tolerance): &(Option<Headroom>, Option<Tolerance>)) -> Option<Tolerance> {
    let asks = !matches!(
        headroom,
        None | Some(Headroom::Share(0) | Headroom::Cpus(0))
    );
    tolerance.or(asks.then_some(DEFAULT))
}

fn by_rate(a: &Tolerance, b: &Tolerance) -> std::cmp::Ordering {
    let cross = |a: &Tolerance, b: &Tolerance| u128::from(a.runtime_ns) * u128::from(b.period_ns);
    let rates = cross(a, b).cmp(&cross(b, a));
    rates.then(a.period_ns.cmp(&b.period_ns))
}

fn demand_of(groups: &[(Option<Headroom>, Option<Tolerance>)]) -> Demand {
    let mut demand = Demand::default();
    for (headroom, tolerance) in groups {
        demand.add(*headroom, *tolerance);
    }
    demand
}

#[test]
fn a_tolerance_out_of_range_is_cut_to_the_nearest_in_range() {
    for (runtime_ns, period_ns, cut) in [
        (u64::MAX, u64::MAX, (1_000 * MS, 10_000 * MS)),
        (5, 1, (5, MS)),
        (2 * MS, MS, (MS, MS)),
    ] {
        let mut demand = Demand::default();
        demand.add(
            None,
            Some(Tolerance {
                runtime_ns,
                period_ns,
            }),
        );
        let found = demand.tolerance();
        assert_eq!((found.runtime_ns, found.period_ns), cut);
    }
}

#[test]
fn bad_input_is_named_in_the_error() {
    type Spoil = fn(&mut Params);
    let good = params(300_000, 2);
    let bad: [(Spoil, &str); 5] = [
        (|it| it.headroom_ppm = 1_000_001, "headroom_ppm is 1000001"),
        (|it| it.nr_cpus = 0, "nr_cpus is 0"),
        (|it| it.window_ns = 1, "window_ns is 1"),
        (|it| it.grain_ns = 101 * MS, "grain_ns is 101000000"),
        (
            |it| it.tolerance_runtime_ns = 101 * MS,
            "tolerance_runtime_ns is 101000000",
        ),
    ];
    for (spoil, field) in bad {
        let mut params = good;
        spoil(&mut params);
        let message = Controller::new(params, 0).unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
}

#[test]
fn headroom_in_cpus_is_rounded_up() {
    assert_eq!(headroom::from_cpus_ppm(1, 3), 333_334);
    assert_eq!(headroom::from_cpus_ppm(2, 2), 1_000_000);
    assert_eq!(headroom::from_cpus_ppm(1, 0), 1_000_000);
}
