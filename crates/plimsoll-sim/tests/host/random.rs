//! What holds in any scenario: random machines, knobs and workloads, the same ones
//! in every run.

use plimsoll_policy::{bandwidth, ratecap};
use plimsoll_sim::host::{Host, HostReport, Observer, Span, WorkloadReport};
use plimsoll_sim::scenario::{Group, Scenario};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::fixture::MSEC;
use crate::generate::scenarios;

/// How long a run is, in virtual time.
const LENGTH_NS: u64 = 600 * MSEC;
/// The longest slice, and the longest run that is not asked for its limits.
const SLICE_NS: u64 = 4 * MSEC;
/// The window of a limit of each CPU.
const WINDOW_NS: u64 = 100 * MSEC;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(4),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

#[derive(Default)]
struct Spans(Vec<Span>);

impl Observer for Spans {
    fn ran(&mut self, span: &Span) {
        self.0.push(*span);
    }
}

/// Runs a scenario. Spans are in the order of their starts; those of what runs
/// at the end are missing.
fn watch(scenario: &Scenario) -> (HostReport, Vec<Span>) {
    let mut host = Host::with_observer(scenario, Spans::default()).unwrap();
    host.run_until(u64::MAX);
    let report = host.report();
    let mut spans = host.into_observer().0;
    spans.sort_unstable_by_key(|span| (span.start_ns, span.cpu));
    (report, spans)
}

/// What of a span lies in `from_ns .. to_ns`.
fn part(span: &Span, from_ns: u64, to_ns: u64) -> u64 {
    let end_ns = span.end_ns.min(to_ns);
    end_ns.saturating_sub(span.start_ns.max(from_ns))
}

/// The most that `spans` have run above `permille` of a CPU, over any time.
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
        let ended_ns: u64 = of_group.map(|span| part(span, 0, LENGTH_NS)).sum();
        assert!(ended_ns <= group.cpu_ns, "{group:?}");
    }
}

/// In each run of periods no more than quota and burst, and a slice on each CPU.
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

/// No more than the cap, and a slice on each CPU, over any time.
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

/// On each CPU no more than its part of each window.
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

/// No request is answered twice or without work. Of a group without limits, with
/// nobody else, none is forgotten.
fn check_requests(scenario: &Scenario, report: &HostReport) {
    for group in &report.groups {
        for work in &group.workloads {
            if let WorkloadReport::Service {
                requests, answered, ..
            } = work
            {
                assert!(answered <= requests, "{work:?}");
            }
            if let WorkloadReport::Wake { wakeups, .. } = work {
                assert!(*wakeups <= scenario.duration_ns / MSEC, "{work:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(config(220))]
    #[test]
    fn limits_hold_and_cpu_time_is_conserved(scenario in scenarios(LENGTH_NS)) {
        let (report, spans) = watch(&scenario);
        check_conserved(&scenario, &report, &spans);
        check_requests(&scenario, &report);
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
    #![proptest_config(config(60))]
    #[test]
    fn a_seed_gives_one_run_in_any_steps(
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
