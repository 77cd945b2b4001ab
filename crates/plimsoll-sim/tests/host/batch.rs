//! The batch class.

use plimsoll_load::Arrivals;
use plimsoll_sim::host::Host;

use crate::fixture::{
    MSEC, SEC, assert_near, burn, group, latency, need, of, run, scenario, service, steady,
};

#[test]
fn batch_work_gets_exactly_its_tolerance_under_saturating_normal_work() {
    let groups = vec![
        group("web", "", vec![burn(4)]),
        group("batch", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 20 * SEC, groups));
    // 1 ms in 100 ms, of one CPU.
    assert_near("batch", of(&report, "batch").cpus_used, 0.01, 0.0005);
}

#[test]
fn tolerance_of_zero_starves_batch_work() {
    let groups = vec![
        group("web", "", vec![burn(2)]),
        group(
            "batch",
            r#""class": "batch", "tolerance": "0""#,
            vec![burn(2)],
        ),
    ];
    assert_eq!(of(&run(&scenario(2, 5 * SEC, groups)), "batch").cpu_ns, 0);
}

#[test]
fn nice_levels_and_group_weights_share_batch_time() {
    let class = r#""class": "batch""#;
    let groups = vec![
        group("nice0", &format!(r#"{class}, "nice": "0""#), vec![burn(1)]),
        group(
            "light",
            &format!(r#"{class}, "weight": "100""#),
            vec![burn(5)],
        ),
        group(
            "heavy",
            &format!(r#"{class}, "weight": "300""#),
            vec![burn(2)],
        ),
    ];
    let report = run(&scenario(1, 20 * SEC, groups));
    for (name, share) in [("nice0", 0.2), ("light", 0.2), ("heavy", 0.6)] {
        assert_near(name, of(&report, name).cpus_used, share, 0.005);
    }
}

#[test]
fn sixty_four_batch_tasks_share_four_cpus_within_5_percent() {
    let groups = vec![group("batch", r#""class": "batch""#, vec![burn(64)])];
    let report = run(&scenario(4, 20 * SEC, groups));
    match report.groups[0].workloads[0] {
        plimsoll_sim::host::WorkloadReport::Burn {
            work_least_ns,
            work_most_ns,
            ..
        } => assert!(
            work_most_ns as f64 <= 1.05 * work_least_ns as f64,
            "{work_least_ns} {work_most_ns}"
        ),
        ref other => panic!("{other:?}"),
    }
    assert!(report.machine.idle_ratio < 1e-6);
}

#[test]
fn service_latency_beside_batch_work_equals_latency_alone() {
    let web = || group("web", "", vec![service(600.0, "exp:1ms", 2, 3)]);
    let alone = latency(of(&run(&scenario(2, 60 * SEC, vec![web()])), "web"));
    let batch = group("batch", r#""class": "batch""#, vec![burn(4)]);
    let report = run(&scenario(2, 60 * SEC, vec![web(), batch]));
    let beside = latency(of(&report, "web"));
    assert!(beside.1 <= 1.05 * alone.1, "{beside:?} {alone:?}");
    assert!(report.machine.idle_ratio < 0.001, "{:?}", report.machine);
    let batch = group("batch", "", vec![burn(4)]);
    let beside_fair = latency(of(&run(&scenario(2, 60 * SEC, vec![web(), batch])), "web"));
    assert!(beside_fair.1 > 2.0 * alone.1, "{beside_fair:?} {alone:?}");
}

#[test]
fn batch_work_uses_the_free_half_of_the_cpus() {
    // Normal load on two of four CPUs, as many batch tasks as CPUs.
    let groups = vec![
        group("web", "", vec![burn(2)]),
        group("batch", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 10 * SEC, groups));
    assert_near("web", of(&report, "web").cpus_used, 2.0, 0.02);
    assert_near("batch", of(&report, "batch").cpus_used, 2.0, 0.02);
}

#[test]
fn per_cpu_limit_is_kept() {
    let knobs = r#""class": "batch", "cpu-limit": "50%""#;
    let report = run(&scenario(
        3,
        10 * SEC,
        vec![group("batch", knobs, vec![burn(6)])],
    ));
    assert_near("batch", of(&report, "batch").cpus_used, 1.5, 0.015);
}

#[test]
fn batch_tasks_of_two_caches_get_equal_time() {
    let groups = vec![
        group("web", "", vec![steady(30.0, 10 * SEC)]),
        group("batch", r#""class": "batch""#, vec![burn(12)]),
    ];
    let mut scenario = scenario(8, 10 * SEC, groups);
    scenario.machine.cpus_per_llc = 4;
    scenario.machine.threads_per_core = 2;
    let report = run(&scenario);
    assert!(report.machine.idle_ratio < 0.002, "{:?}", report.machine);
}

/// Run time in ms of batch work with 1 % of each of two CPUs, by 100 ms window.
/// One task is there from the start; another comes 1 ms before the end of a
/// window and runs until that end.
fn batch_ms_by_window(windows: u64) -> Vec<u64> {
    let mut late = service(1.0, "const:500ms", 1, 1);
    if let plimsoll_sim::scenario::Workload::Service(config) = &mut late {
        config.arrivals = Arrivals::Uniform {
            rate: 1_000.0 / 99.0,
        };
    }
    let groups = vec![group(
        "batch",
        r#""class": "batch", "cpu-limit": "1%""#,
        vec![burn(1), late],
    )];
    let scenario = scenario(2, windows * 100 * MSEC, groups);
    let mut host = Host::new(&scenario).unwrap();
    let mut before_ns = 0;
    (1..=windows)
        .map(|window| {
            host.run_until(window * 100 * MSEC);
            let cpu_ns = host.report().groups[0].cpu_ns;
            (cpu_ns - std::mem::replace(&mut before_ns, cpu_ns)) / MSEC
        })
        .collect()
}

#[test]
fn limited_cpu_resumes_in_the_next_window_despite_other_waiters() {
    let ran_ms = batch_ms_by_window(3);
    assert!(ran_ms.iter().all(|&ms| ms >= 1), "{ran_ms:?}");
}

#[test]
fn run_is_charged_to_the_window_in_which_it_ran() {
    assert_eq!(batch_ms_by_window(4), [2, 2, 2, 2]);
}

/// Run time of batch work with half of each CPU. By 50 ms it has used up the
/// limit of the CPU that normal work leaves free; from 60 ms on it has the
/// other CPU.
fn batch_on_the_other_cpu(cpus_per_llc: u32) -> u64 {
    let groups = vec![
        group("web", "", vec![need(60 * MSEC, 1)]),
        group(
            "batch",
            r#""class": "batch", "cpu-limit": "50%""#,
            vec![burn(3)],
        ),
    ];
    let mut scenario = scenario(2, 100 * MSEC, groups);
    scenario.machine.cpus_per_llc = cpus_per_llc;
    of(&run(&scenario), "batch").cpu_ns
}

#[test]
fn task_over_the_limit_of_a_cpu_runs_on_another() {
    assert_eq!(batch_on_the_other_cpu(2), 90 * MSEC, "in its cache");
    assert_eq!(batch_on_the_other_cpu(1), 90 * MSEC, "in another cache");
}

/// Least and most CPU time among equal burners, in CPUs.
fn least_and_most(cpus: u32, cpus_per_llc: u32, burners: usize, knobs: &str) -> (f64, f64) {
    let mut scenario = scenario(cpus, 20 * SEC, vec![group("g", knobs, vec![burn(burners)])]);
    scenario.machine.cpus_per_llc = cpus_per_llc;
    match run(&scenario).groups[0].workloads[0] {
        plimsoll_sim::host::WorkloadReport::Burn {
            work_least_ns,
            work_most_ns,
            ..
        } => (work_least_ns as f64 / 20e9, work_most_ns as f64 / 20e9),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn batch_tasks_get_equal_time_if_caches_have_unequal_numbers_of_them() {
    for (cpus, cpus_per_llc, burners) in [(6, 2, 8), (6, 2, 7), (8, 4, 12), (8, 2, 13), (8, 4, 9)] {
        let (least, most) = least_and_most(cpus, cpus_per_llc, burners, r#""class": "batch""#);
        let share = f64::from(cpus) / burners as f64;
        let what = format!("{burners} burners on {cpus} CPUs, {cpus_per_llc} a cache");
        assert_near(&format!("{what}: least"), least, share, 0.03 * share);
        assert_near(&format!("{what}: most"), most, share, 0.03 * share);
    }
}

#[test]
fn surplus_task_rotates_over_all_cpus() {
    for knobs in ["", r#""class": "batch""#] {
        for (cpus, burners) in [(3, 4), (4, 5), (5, 7), (6, 7), (8, 11)] {
            let (least, most) = least_and_most(cpus, 1, burners, knobs);
            let share = f64::from(cpus) / burners as f64;
            let what = format!("{burners} burners on {cpus} CPUs, {{{knobs}}}");
            assert_near(&format!("{what}: least"), least, share, 0.03 * share);
            assert_near(&format!("{what}: most"), most, share, 0.03 * share);
        }
    }
}
