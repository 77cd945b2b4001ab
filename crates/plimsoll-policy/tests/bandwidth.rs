//! Property tests of the bandwidth core against simple models.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::bandwidth::{Cpu, Params, Pool};
use proptest::prelude::*;

fn params() -> impl Strategy<Value = Params> {
    (1..=1000u64, 1..=200 * MS, 0..=400 * MS, 1..=20u64).prop_map(
        |(period_ms, extra, burst_ns, slice)| Params {
            period_ns: period_ms * MS,
            quota_ns: Some(MS + extra),
            burst_ns,
            slice_ns: slice * MS,
        },
    )
}

/// An event of a group: kind, CPU, size, and delay before the next.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: u8,
    cpu: usize,
    size_ns: u64,
    later_ns: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        (0..5u8, 0..4usize, 0..=12 * MS, 0..=40 * MS).prop_map(|(kind, cpu, size_ns, later_ns)| {
            Step {
                kind,
                cpu,
                size_ns,
                later_ns,
            }
        });
    prop::collection::vec(step, 1..200)
}

/// Applies the steps as an enforcer would, and returns the usage and the number
/// of refills. A task overruns by at most `overrun_ns`.
fn run(pool: &mut Pool, cpus: &mut [Cpu], steps: &[Step], overrun_ns: u64) -> (u64, u64) {
    let (mut now_ns, mut usage_ns, mut refills) = (0, 0, 0);
    for step in steps {
        now_ns += step.later_ns;
        refills += pool.refill(true, now_ns);
        pool.serve_in_order(cpus, now_ns);
        let cpu = &mut cpus[step.cpu];
        if step.kind == 0 {
            pool.give_back(cpu, true);
        } else if !cpu.is_throttled() && pool.charge(cpu, 0, now_ns) {
            let ran_ns = step
                .size_ns
                .min(cpu.runtime_ns().unsigned_abs() + overrun_ns);
            usage_ns += ran_ns;
            pool.charge(cpu, ran_ns, now_ns);
        }
    }
    (usage_ns, refills)
}

proptest! {
    #[test]
    fn refill_of_several_periods_is_their_sum(params in params(), drained in 0..300 * MS,
                                          sleep_ns in 0..5_000 * MS, burst_on: bool) {
        let mut pool = Pool::new(params, 0).unwrap();
        let mut cpu = Cpu::default();
        pool.charge(&mut cpu, drained, 0);
        let quota_ns = u128::from(params.quota_ns.unwrap());
        let capacity_ns = quota_ns + if burst_on { u128::from(params.burst_ns) } else { 0 };
        let mut model_ns = u128::from(pool.runtime_ns());
        let mut periods = 0;
        while (periods + 1) * params.period_ns <= sleep_ns {
            model_ns = (model_ns + quota_ns).min(capacity_ns);
            periods += 1;
        }
        prop_assert_eq!(pool.refill(burst_on, sleep_ns), periods);
        prop_assert_eq!(u128::from(pool.runtime_ns()), model_ns);
        prop_assert_eq!(pool.next_boundary_ns(), (periods + 1) * params.period_ns);
    }

    #[test]
    fn usage_in_any_window_is_bounded(params in params(), warm_up in steps(), steps in steps(),
                                      overrun_ns in 0..=4 * MS) {
        let mut pool = Pool::new(params, 0).unwrap();
        let mut cpus = [Cpu::default(); 4];
        let first: Vec<Step> = warm_up.iter().map(|s| Step { later_ns: 0, ..*s }).collect();
        run(&mut pool, &mut cpus, &first, overrun_ns);
        let start_ns = pool.runtime_ns();
        let (usage_ns, refills) = run(&mut pool, &mut cpus, &steps, overrun_ns);
        let most_ns = start_ns + refills * params.quota_ns.unwrap()
            + 4 * (params.slice_ns + overrun_ns);
        prop_assert!(usage_ns <= most_ns, "{} > {}", usage_ns, most_ns);
        prop_assert!(pool.runtime_ns() <= params.quota_ns.unwrap() + params.burst_ns);
    }
}

#[test]
fn bad_parameters_are_named_in_the_error() {
    type Spoil = fn(&mut Params);
    let good = Params {
        quota_ns: Some(MS),
        ..Params::default()
    };
    assert_eq!(good.check(), Ok(()));
    let bad: [(Spoil, &str); 5] = [
        (|it| it.period_ns = 1, "period_ns is 1,"),
        (|it| it.quota_ns = Some(1), "quota_ns is 1,"),
        (
            |it| it.quota_ns = Some(u64::MAX),
            "a sum of at most 17592186044416",
        ),
        (
            |it| it.burst_ns = u64::MAX,
            "burst_ns is 18446744073709551615",
        ),
        (
            |it| it.slice_ns = 0,
            "slice_ns is 0, allowed are 100000 to 1000000000",
        ),
    ];
    for (spoil, field) in bad {
        let mut params = good;
        spoil(&mut params);
        let message = params.check().unwrap_err().to_string();
        assert!(message.contains(field), "{message}");
    }
}
