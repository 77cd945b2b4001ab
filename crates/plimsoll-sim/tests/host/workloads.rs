//! Figures of workloads, compared with those of `plimsoll load`.

use std::time::Duration;

use plimsoll_load::{Arrivals, StormConfig};
use plimsoll_sim::host::WorkloadReport;
use plimsoll_sim::scenario::{Scenario, Workload};

use crate::fixture::{MSEC, SEC, assert_near, burn, group, need, run, scenario, service, steady};

fn storm(processes: u32, cpu_ns: u64, parallel: usize) -> Workload {
    Workload::Storm(StormConfig {
        processes,
        cpu_each: Duration::from_nanos(cpu_ns),
        parallel,
    })
}

/// A scenario measured for 10 s after a warm-up of 500 ms.
fn warmed_up(cpus: u32, knobs: &str, workload: Workload) -> Scenario {
    let groups = vec![group("web", knobs, vec![workload])];
    let mut scenario = scenario(cpus, 10 * SEC, groups);
    scenario.warmup_ns = 500 * MSEC;
    scenario
}

fn first_work(scenario: &Scenario) -> WorkloadReport {
    run(scenario).groups.remove(0).workloads.remove(0)
}

/// CPU time, elapsed time and rate.
fn need_figures(scenario: &Scenario) -> (u64, u64, f64) {
    match first_work(scenario) {
        WorkloadReport::Need {
            cpu_ns,
            elapsed_ns,
            rate,
            ..
        } => (cpu_ns, elapsed_ns, rate),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rate_of_need_does_not_depend_on_the_warm_up() {
    for (cpu_ns, what) in [
        (SEC, "ends after the warm-up"),
        (100 * MSEC, "ends within the warm-up"),
        (20 * SEC, "does not end"),
    ] {
        let (used_ns, elapsed_ns, rate) = need_figures(&warmed_up(1, "", need(cpu_ns, 1)));
        let should_ns = cpu_ns.min(10_500 * MSEC);
        assert_eq!((used_ns, elapsed_ns), (should_ns, should_ns), "{what}");
        assert_near(what, rate, 1.0, 1e-9);
    }
    let capped = warmed_up(2, r#""cap": "50%", "per-task": true"#, need(SEC, 1));
    assert_near("cap of 50 %", need_figures(&capped).2, 0.5, 0.005);
}

/// Processes, elapsed time and CPU time.
fn storm_figures(scenario: &Scenario) -> (u64, u64, u64) {
    match first_work(scenario) {
        WorkloadReport::Storm {
            processes,
            elapsed_ns,
            cpu_ns,
        } => (processes, elapsed_ns, cpu_ns),
        other => panic!("{other:?}"),
    }
}

#[test]
fn figures_of_storm_do_not_depend_on_the_warm_up() {
    let figures = storm_figures(&warmed_up(2, "", storm(1_000, 2 * MSEC, 2)));
    assert_eq!(figures, (1_000, SEC, 2 * SEC));
}

#[test]
fn each_process_of_a_storm_costs_a_task_switch() {
    let mut scenario = warmed_up(1, "", storm(1_000, MSEC, 1));
    scenario.warmup_ns = 0;
    scenario.machine.switch_cost_ns = 5_000;
    // The first process is on its CPU before counting starts.
    assert_eq!(run(&scenario).groups[0].nr_switches, 999);
    let took_ns = SEC + 1_000 * 5_000;
    assert_eq!(storm_figures(&scenario), (1_000, took_ns, took_ns));
}

#[test]
fn warm_up_is_excluded_for_endless_work() {
    match first_work(&warmed_up(1, "", burn(1))) {
        WorkloadReport::Burn {
            cpu_ns, work_ns, ..
        } => assert_eq!((cpu_ns, work_ns), (10 * SEC, 10 * SEC)),
        other => panic!("{other:?}"),
    }
}

/// Answers, failures, and mean and maximum latency in ms, of a service that can
/// answer 100 of 200 requests a second for 10 s.
fn overloaded(knobs: &str, deadline_ns: u64) -> (u64, u64, f64, f64) {
    let mut web = service(200.0, "const:10ms", 1, 1);
    if let Workload::Service(config) = &mut web {
        config.arrivals = Arrivals::Uniform { rate: 200.0 };
        config.deadline = Duration::from_nanos(deadline_ns);
        config.grace = Duration::from_secs(1);
    }
    let groups = vec![
        group("web", knobs, vec![web]),
        group("web", "", vec![burn(usize::from(!knobs.is_empty()))]),
    ];
    match run(&scenario(1, 10 * SEC, groups))
        .groups
        .remove(0)
        .workloads
        .remove(0)
    {
        WorkloadReport::Service {
            answered,
            failures,
            latency,
            ..
        } => (
            answered,
            failures,
            latency.mean_us / 1e3,
            latency.max_us / 1e3,
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unanswered_requests_are_failures_and_count_in_the_latency() {
    let (answered, failures, mean_ms, max_ms) = overloaded("", 60 * SEC);
    // Half of the requests are answered, the last of them 5 s late. Those of
    // the last second may still be answered.
    assert_near("answered", answered as f64, 1_000.0, 1.0);
    assert_near("failures", failures as f64, 1_000.0 - 200.0, 1.0);
    // Half wait 0 to 5 s, the others 1 to 5 s.
    assert_near(
        "mean",
        mean_ms,
        (1_000.0 * 2_500.0 + 800.0 * 3_000.0) / 1_800.0,
        20.0,
    );
    assert_near("max", max_ms, 5_000.0, 20.0);
}

#[test]
fn unanswered_requests_wait_until_the_end() {
    let starved = r#""class": "batch", "tolerance": "0""#;
    let (answered, failures, mean_ms, max_ms) = overloaded(starved, 50 * MSEC);
    assert_eq!(answered, 0);
    assert_near("failures", failures as f64, 2_000.0 - 10.0, 1.0);
    assert_near("mean", mean_ms, 5_025.0, 10.0);
    assert_near("max", max_ms, 10_000.0, 10.0);
}

/// The first workload, beside batch work that doubles the duration of all work
/// by contention.
fn contended(workload: Workload) -> WorkloadReport {
    let groups = vec![
        group("web", "", vec![workload]),
        group("batch", r#""class": "batch""#, vec![burn(4)]),
    ];
    let mut scenario = scenario(4, 10 * SEC, groups);
    scenario.machine.contention_ppm = 1_000_000;
    first_work(&scenario)
}

#[test]
fn steady_and_need_are_exact_under_contention() {
    match contended(steady(40.0, 10 * SEC)) {
        WorkloadReport::Steady {
            percent_achieved, ..
        } => assert_near("steady", percent_achieved, 40.0, 0.1),
        other => panic!("{other:?}"),
    }
    match contended(need(SEC, 1)) {
        WorkloadReport::Need {
            cpu_ns, elapsed_ns, ..
        } => assert_eq!((cpu_ns, elapsed_ns), (SEC, SEC)),
        other => panic!("{other:?}"),
    }
    match contended(storm(1_000, 2 * MSEC, 2)) {
        WorkloadReport::Storm {
            cpu_ns, elapsed_ns, ..
        } => assert_eq!((cpu_ns, elapsed_ns), (2 * SEC, SEC)),
        other => panic!("{other:?}"),
    }
}
