//! Properties of all scenarios, checked on random machines, knobs and
//! workloads. The cases are the same in every run.

use plimsoll_policy::{bandwidth, ratecap};
use plimsoll_sim::host::{Host, HostReport, Span, WorkloadReport};
use plimsoll_sim::scenario::{Group, Scenario};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::fixture::{MSEC, Spans, burn, group, service};
use crate::generate::{burners, intermittent_normal_work, machines, of, scenarios};

/// Duration of a run in virtual time.
const LENGTH_NS: u64 = 600 * MSEC;
/// The longest slice, which is also the longest run between two checks of the
/// limits.
const SLICE_NS: u64 = 4 * MSEC;
/// Window of a per-CPU limit.
const WINDOW_NS: u64 = 100 * MSEC;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(77),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

/// Runs a scenario. Spans are in the order of their starts.
fn watch(scenario: &Scenario) -> (HostReport, Vec<Span>) {
    let mut host = Host::with_observer(scenario, Spans::default()).unwrap();
    host.run_until(u64::MAX);
    let report = host.report();
    let mut spans = host.into_observer().0;
    spans.sort_unstable_by_key(|span| (span.start_ns, span.cpu));
    (report, spans)
}

/// The part of a span within `from_ns .. to_ns`.
fn part(span: &Span, from_ns: u64, to_ns: u64) -> u64 {
    let end_ns = span.end_ns.min(to_ns);
    end_ns.saturating_sub(span.start_ns.max(from_ns))
}

/// The most run time of `spans` in excess of `permille` of a CPU, over any
/// interval.
fn most_above_ns<'a>(spans: impl Iterator<Item = &'a Span>, permille: u32) -> u64 {
    let mut edges: Vec<(u64, i64)> = spans
        .flat_map(|span| [(span.start_ns, 1), (span.end_ns, -1)])
        .collect();
    edges.sort_unstable();
    let (mut at_ns, mut running, mut level, mut most) = (0, 0, 0i64, 0);
    for (edge_ns, change) in edges {
        let elapsed = (edge_ns - at_ns) as i64;
        level = (level + elapsed * (1_000 * running - i64::from(permille))).max(0);
        most = most.max(level);
        (at_ns, running) = (edge_ns, running + change);
    }
    most as u64 / 1_000
}

fn check_conserved(scenario: &Scenario, report: &HostReport, spans: &[Span]) {
    let all_ns = u64::from(scenario.machine.cpus) * LENGTH_NS;
    let cpu_ns: u64 = report.groups.iter().map(|group| group.cpu_ns).sum();
    let idle_ns = (report.machine.idle_ratio * all_ns as f64).round() as u64;
    assert_eq!(cpu_ns + idle_ns, all_ns);
    let by: [fn(&Span) -> u32; 2] = [|span| span.cpu, |span| span.task];
    for key in by {
        let mut sorted: Vec<&Span> = spans.iter().collect();
        sorted.sort_by_key(|span| (key(span), span.start_ns));
        for pair in sorted.windows(2) {
            let same = key(pair[0]) == key(pair[1]);
            assert!(!same || pair[0].end_ns <= pair[1].start_ns, "{pair:?}");
        }
    }
    for (index, group) in report.groups.iter().enumerate() {
        let of_group = spans.iter().filter(|span| span.group as usize == index);
        let ran_ns: u64 = of_group.map(|span| span.end_ns - span.start_ns).sum();
        assert_eq!(ran_ns, group.cpu_ns, "{group:?}");
    }
}

/// Usage over any number of consecutive periods is at most quota and burst,
/// plus a slice for each CPU.
fn check_quota(group: &Group, cpus: u32, spans: &[Span]) {
    let Some(quota) = group.knobs.quota else {
        return;
    };
    let Some(quota_ns) = quota.quota_ns else {
        return;
    };
    let burst_ns = group.knobs.burst.map_or(0, |burst| burst.burst_ns);
    let slices_ns = u64::from(cpus) * (bandwidth::SLICE_DEFAULT_NS + MSEC);
    let periods = LENGTH_NS / quota.period_ns;
    for first in 0..periods {
        for length in [1, 2, 5, periods] {
            let from_ns = first * quota.period_ns;
            let to_ns = from_ns + length * quota.period_ns;
            let used_ns: u64 = spans.iter().map(|span| part(span, from_ns, to_ns)).sum();
            let may_ns = length * quota_ns + burst_ns + slices_ns;
            assert!(used_ns <= may_ns, "{used_ns} > {may_ns} from {from_ns}");
        }
    }
}

/// Usage over any interval is at most the cap, plus a slice for each CPU.
fn check_cap(group: &Group, cpus: u32, spans: &[Span]) {
    let Some(cap) = group.knobs.cap else { return };
    let depth_ns = ratecap::Params::default().depth_ns;
    if !group.knobs.per_task {
        let most_ns = most_above_ns(spans.iter(), cap.permille);
        let may_ns = depth_ns + u64::from(cpus) * SLICE_NS;
        assert!(most_ns <= may_ns, "{most_ns} ns above {cap:?}");
        return;
    }
    let mut tasks: Vec<u32> = spans.iter().map(|span| span.task).collect();
    tasks.sort_unstable();
    tasks.dedup();
    for task in tasks {
        let own = spans.iter().filter(|span| span.task == task);
        let most_ns = most_above_ns(own, cap.permille);
        assert!(most_ns <= depth_ns + SLICE_NS, "{most_ns} ns above {cap:?}");
    }
}

/// Usage of each CPU in each window is at most the limit.
fn check_limit(group: &Group, cpus: u32, spans: &[Span]) {
    let Some(limit) = group.knobs.cpu_limit else {
        return;
    };
    let may_ns = WINDOW_NS / 1_000_000 * u64::from(limit.ppm);
    for cpu in 0..cpus {
        for window in 0..LENGTH_NS / WINDOW_NS {
            let (from_ns, to_ns) = (window * WINDOW_NS, (window + 1) * WINDOW_NS);
            let here = spans.iter().filter(|span| span.cpu == cpu);
            let used_ns: u64 = here.map(|span| part(span, from_ns, to_ns)).sum();
            assert!(used_ns <= may_ns + 1_000, "{used_ns} > {may_ns} on {cpu}");
        }
    }
}

/// Tasks that always want to run: their group, number, and the limit of each
/// CPU in a window.
struct Waiters {
    group: u32,
    count: usize,
    limit_ns: u64,
}

/// The longest time that a CPU was idle while one of `waiters` could have run
/// there.
fn longest_idle_beside(waiters: &Waiters, cpus: u32, spans: &[Span]) -> u64 {
    let mut edges: Vec<u64> = spans.iter().flat_map(|s| [s.start_ns, s.end_ns]).collect();
    edges.extend((0..=LENGTH_NS / WINDOW_NS).map(|window| window * WINDOW_NS));
    edges.sort_unstable();
    edges.dedup();
    let mut begins = spans.iter().peekable();
    let mut running: Vec<Option<&Span>> = vec![None; cpus as usize];
    let mut used_ns = vec![0; cpus as usize];
    let mut idle_ns = vec![0; cpus as usize];
    let mut longest_ns = 0;
    for pair in edges.windows(2) {
        let (from_ns, to_ns) = (pair[0], pair[1]);
        running
            .iter_mut()
            .for_each(|on| *on = on.filter(|span| span.end_ns > from_ns));
        while let Some(span) = begins.next_if(|span| span.start_ns <= from_ns) {
            running[span.cpu as usize] = Some(span);
        }
        if from_ns % WINDOW_NS == 0 {
            used_ns.fill(0);
        }
        let is_waiter = |on: &Option<&Span>| on.is_some_and(|span| span.group == waiters.group);
        let waits = running.iter().filter(|on| is_waiter(on)).count() < waiters.count;
        for cpu in 0..cpus as usize {
            if is_waiter(&running[cpu]) {
                used_ns[cpu] += to_ns - from_ns;
            }
            let might_run = waits && used_ns[cpu] < waiters.limit_ns;
            let idles = running[cpu].is_none() && might_run;
            idle_ns[cpu] = if idles {
                idle_ns[cpu] + to_ns - from_ns
            } else {
                0
            };
            longest_ns = longest_ns.max(idle_ns[cpu]);
        }
    }
    longest_ns
}

proptest! {
    #![proptest_config(config(2500))]
    #[test]
    fn limits_hold_and_cpu_time_is_conserved(scenario in scenarios(LENGTH_NS)) {
        let (report, spans) = watch(&scenario);
        check_conserved(&scenario, &report, &spans);
        let cpus = scenario.machine.cpus;
        for (index, group) in scenario.groups.iter().enumerate() {
            let own = spans.iter().filter(|span| span.group as usize == index);
            let own: Vec<Span> = own.copied().collect();
            check_quota(group, cpus, &own);
            check_cap(group, cpus, &own);
            check_limit(group, cpus, &own);
        }
    }
}

proptest! {
    #![proptest_config(config(400))]
    #[test]
    fn run_does_not_depend_on_the_steps(
        scenario in scenarios(LENGTH_NS / 3),
        step_ns in 100_000..50 * MSEC,
    ) {
        let (whole, _) = watch(&scenario);
        let mut host = Host::new(&scenario).unwrap();
        while !host.is_over() {
            host.run_until(host.now_ns() + step_ns);
        }
        prop_assert_eq!(whole, host.report());
    }
}

proptest! {
    #![proptest_config(config(1500))]
    #[test]
    fn no_cpu_is_idle_while_a_task_that_may_run_there_waits(
        machine in machines(),
        burners in burners(),
        others in intermittent_normal_work(LENGTH_NS),
    ) {
        let (first, counts): (Vec<Group>, Vec<u32>) = burners.into_iter().unzip();
        let groups: Vec<Group> = first.into_iter().chain(others).collect();
        let scenario = of(machine, groups, LENGTH_NS);
        let (_, spans) = watch(&scenario);
        for (index, count) in counts.into_iter().enumerate() {
            let limit = scenario.groups[index].knobs.cpu_limit;
            let waiters = Waiters {
                group: index as u32,
                count: count as usize,
                limit_ns: limit.map_or(u64::MAX, |limit| WINDOW_NS / 1_000_000 * u64::from(limit.ppm)),
            };
            let longest_ns = longest_idle_beside(&waiters, machine.cpus, &spans);
            // A task waits for a millisecond before a CPU of another cache
            // takes it, and one task of each cache may wait behind another.
            let nr_llcs = u64::from(machine.cpus / machine.cpus_per_llc);
            let most_ns = (nr_llcs + 1).max(5) * MSEC;
            prop_assert!(longest_ns <= most_ns, "group {index}: {longest_ns} ns");
        }
    }

    #[test]
    fn batch_work_gets_exactly_its_tolerance_under_saturating_work(
        machine in machines(),
        normal in 1..3usize,
        batch in prop::collection::vec(1..10usize, 1..=3),
        runtime_ms in 0..=5u64,
        period_ms in 10..=100u64,
    ) {
        let normal = group("web", "", vec![burn(2 * normal * machine.cpus as usize)]);
        let tolerance = format!(r#""class": "batch", "tolerance": "{runtime_ms}ms/{period_ms}ms""#);
        let batch = batch.into_iter().map(|count| group("batch", &tolerance, vec![burn(count)]));
        let groups = std::iter::once(normal).chain(batch).collect();
        let (report, _) = watch(&of(machine, groups, LENGTH_NS));
        let batch_ns: u64 = report.groups.iter().map(|group| group.batch_ns).sum();
        let turns = LENGTH_NS / MSEC / period_ms;
        let all_ns = turns * runtime_ms * MSEC;
        prop_assert!(batch_ns <= all_ns, "{batch_ns} of {all_ns}");
        prop_assert!(batch_ns + runtime_ms * MSEC >= all_ns, "{batch_ns} of {all_ns}");
    }

    #[test]
    fn each_request_is_answered_once_at_the_cost_of_its_demand(
        cpus in 1..=8u32,
        batch in 0..=8usize,
        workers in 1..=8usize,
        load in 0.01..0.5f64,
        seed in any::<u64>(),
    ) {
        const DEMAND_NS: u64 = 700_000;
        let rate = load * f64::from(cpus.min(workers as u32)) * 1e9 / DEMAND_NS as f64;
        let groups = vec![
            group("web", "", vec![service(rate, "const:700us", workers, seed)]),
            group("batch", r#""class": "batch""#, vec![burn(batch.max(1))]),
        ];
        let machine = crate::fixture::machine(cpus);
        let (report, _) = watch(&of(machine, groups, LENGTH_NS));
        let cpu_ns = report.groups[0].cpu_ns;
        let WorkloadReport::Service { requests, answered, .. } = report.groups[0].workloads[0] else {
            return Err(TestCaseError::fail("not a service"));
        };
        prop_assert!(answered * DEMAND_NS <= cpu_ns);
        prop_assert!(cpu_ns <= (answered + workers as u64) * DEMAND_NS);
        // All but those that have just arrived.
        prop_assert!(answered <= requests && requests <= answered + 30, "{answered} of {requests}");
    }
}
