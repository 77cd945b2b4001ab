//! What workloads report, beside what `plimsoll load` reports of the same.

use std::time::Duration;

use plimsoll_load::StormConfig;
use plimsoll_sim::host::WorkloadReport;
use plimsoll_sim::scenario::{Scenario, Workload};

use crate::fixture::{MSEC, SEC, assert_near, burn, group, need, run, scenario};

fn storm(processes: u32, cpu_ns: u64, parallel: usize) -> Workload {
    Workload::Storm(StormConfig {
        processes,
        cpu_each: Duration::from_nanos(cpu_ns),
        parallel,
    })
}

/// Measured for 10 s after a warm-up of 500 ms.
fn warmed_up(cpus: u32, knobs: &str, workload: Workload) -> Scenario {
    let groups = vec![group("main", knobs, vec![workload])];
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
fn the_rate_of_a_need_is_over_its_own_time_whatever_the_warm_up() {
    for (cpu_ns, what) in [
        (SEC, "ends after the warm-up"),
        (100 * MSEC, "within it"),
        (20 * SEC, "not at all"),
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
fn the_figures_of_a_storm_are_over_its_own_time_whatever_the_warm_up() {
    let figures = storm_figures(&warmed_up(2, "", storm(1_000, 2 * MSEC, 2)));
    assert_eq!(figures, (1_000, SEC, 2 * SEC));
}

#[test]
fn each_process_of_a_storm_costs_a_change_of_tasks() {
    let mut scenario = warmed_up(1, "", storm(1_000, MSEC, 1));
    scenario.warmup_ns = 0;
    scenario.machine.switch_cost_ns = 5_000;
    // All but the first, which is on its CPU before anything is counted.
    assert_eq!(run(&scenario).groups[0].nr_switches, 999);
    let took_ns = SEC + 1_000 * 5_000;
    assert_eq!(storm_figures(&scenario), (1_000, took_ns, took_ns));
}

#[test]
fn the_warm_up_counts_for_no_endless_work() {
    match first_work(&warmed_up(1, "", burn(1))) {
        WorkloadReport::Burn {
            cpu_ns, work_ns, ..
        } => assert_eq!((cpu_ns, work_ns), (10 * SEC, 10 * SEC)),
        other => panic!("{other:?}"),
    }
}
