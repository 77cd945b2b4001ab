//! Rate caps: the table of SPEC section 4, in virtual time.

use plimsoll_load::{StormConfig, WakeConfig};
use plimsoll_sim::host::{Host, Span, WorkloadReport};
use plimsoll_sim::scenario::Workload;

use crate::fixture::{MSEC, SEC, Spans, assert_near, burn, group, need, of, run, scenario};

fn rate(cap: &str, cpu_ns: u64) -> f64 {
    let knobs = format!(r#""cap": "{cap}""#);
    let report = run(&scenario(
        2,
        200 * SEC,
        vec![group("g", &knobs, vec![need(cpu_ns, 1)])],
    ));
    match report.groups[0].workloads[0] {
        WorkloadReport::Need {
            complete: true,
            rate,
            ..
        } => 100.0 * rate,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn cap_is_exact_from_the_first_millisecond() {
    for (cpu_ns, least, most) in [
        (10 * MSEC, 9.0, 19.0),
        (50 * MSEC, 9.0, 11.0),
        (100 * MSEC, 9.0, 10.0),
        (500 * MSEC, 8.7, 9.3),
        (SEC, 8.8, 9.2),
        (5 * SEC, 8.9, 9.1),
        (10 * SEC, 8.9, 9.1),
    ] {
        let rate = rate("9%", cpu_ns);
        assert!((least..=most).contains(&rate), "{cpu_ns}: {rate}");
    }
    assert_near("90 %", rate("90%", SEC), 90.0, 0.3);
}

fn storm(knobs: &str) -> f64 {
    let storm = Workload::Storm(StormConfig {
        processes: 2_000,
        cpu_each: std::time::Duration::from_micros(950),
        parallel: 1,
    });
    let report = run(&scenario(
        2,
        100 * SEC,
        vec![group("g", knobs, vec![storm])],
    ));
    match report.groups[0].workloads[0] {
        WorkloadReport::Storm {
            processes: 2_000,
            elapsed_ns,
            ..
        } => elapsed_ns as f64 / 1e9,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn cap_holds_across_a_fork_storm() {
    let free = storm("");
    assert_near("uncapped, s", free, 1.9, 0.01);
    assert_near("90 %, s", storm(r#""cap": "90%""#), 2.11, 0.063);
    assert_near("10 %, s", storm(r#""cap": "10%""#), 19.0, 0.57);
    let per_task = storm(r#""cap": "90%", "per-task": true"#);
    assert!(per_task <= 1.1 * free, "{per_task} {free}");
}

#[test]
fn per_task_caps_are_independent() {
    let knobs = r#""cap": "20%", "per-task": true"#;
    let report = run(&scenario(
        2,
        10 * SEC,
        vec![group("g", knobs, vec![burn(4)])],
    ));
    assert_near("four of 20 %", report.groups[0].cpus_used, 0.8, 0.005);
    let knobs = r#""cap": "20%""#;
    let report = run(&scenario(
        2,
        10 * SEC,
        vec![group("g", knobs, vec![burn(4)])],
    ));
    assert_near("20 % together", report.groups[0].cpus_used, 0.2, 0.002);
}

#[test]
fn soft_cap_limits_only_under_contention() {
    let alone = run(&scenario(
        1,
        20 * SEC,
        vec![group("soft", r#""soft-cap": "10%""#, vec![burn(1)])],
    ));
    assert_near("alone", alone.groups[0].cpus_used, 1.0, 0.001);
    for knobs in [
        r#""soft-cap": "10%""#,
        r#""soft-cap": "10%", "per-task": true"#,
    ] {
        let groups = vec![
            group("soft", knobs, vec![burn(1)]),
            group("other", "", vec![burn(1)]),
        ];
        let report = run(&scenario(1, 60 * SEC, groups));
        let used = of(&report, "soft").cpus_used;
        assert_near(knobs, used, 0.11, 0.015);
    }
}

#[test]
fn soft_cap_of_zero_is_background_from_the_start() {
    for knobs in [
        r#""soft-cap": "0%""#,
        r#""soft-cap": "0%", "per-task": true"#,
    ] {
        let groups = vec![
            group("soft", knobs, vec![burn(1)]),
            group("other", "", vec![burn(1)]),
        ];
        let mut host = Host::new(&scenario(1, SEC, groups)).unwrap();
        // The first server slice of the tolerance comes after 100 ms.
        host.run_until(99 * MSEC);
        assert_eq!(host.report().groups[0].cpu_ns, 0, "{knobs}");
    }
}

#[test]
fn process_does_not_inherit_the_usage_rate_of_its_parent() {
    // Usage rates are compared in between.
    const EACH_NS: u64 = 503 * MSEC;
    let storm = Workload::Storm(StormConfig {
        processes: 3,
        cpu_each: std::time::Duration::from_nanos(EACH_NS),
        parallel: 1,
    });
    let knobs = r#""soft-cap": "10%", "per-task": true"#;
    let scenario = scenario(1, 2 * SEC, vec![group("soft", knobs, vec![storm])]);
    let mut host = Host::with_observer(&scenario, Spans::default()).unwrap();
    host.run_until(u64::MAX);
    let spans = host.into_observer().0;
    for process in 0..3 {
        let in_fair = |span: &&Span| span.task == process && !span.batch;
        let first = spans
            .iter()
            .find(in_fair)
            .expect("the process begins in the fair class");
        assert_eq!(first.start_ns, u64::from(process) * EACH_NS);
    }
}

/// CPUs used by burners under a cap, on a machine without other work.
fn used_under_cap(percent: u32, burners: usize, cpus: u32, threads_per_core: u32) -> f64 {
    let knobs = format!(r#""cap": "{percent}%""#);
    let groups = vec![group("g", &knobs, vec![burn(burners)])];
    let mut scenario = scenario(cpus, 10 * SEC, groups);
    scenario.machine.threads_per_core = threads_per_core;
    run(&scenario).groups[0].cpus_used
}

#[test]
fn cap_above_one_cpu_is_reached_on_several_cpus() {
    for (percent, burners, cpus, threads_per_core) in [
        (150, 2, 2, 1),
        (150, 4, 4, 2),
        (250, 3, 4, 2),
        (250, 40, 4, 1),
        (700, 8, 8, 2),
    ] {
        let used = used_under_cap(percent, burners, cpus, threads_per_core);
        let what = format!("{percent} %, {burners} burners on {cpus} CPUs");
        assert_near(&what, used, f64::from(percent) / 100.0, 0.001);
    }
    // Bounded by the tasks and CPUs there are.
    assert_near("one task", used_under_cap(150, 1, 4, 1), 1.0, 1e-6);
    assert_near("one CPU", used_under_cap(150, 4, 1, 1), 1.0, 1e-6);
}

/// CPUs used by burners and by tasks that wake, all under one cap.
fn used_with_wakes(percent: u32, burners: usize, every_ns: u64) -> f64 {
    let wake = Workload::Wake(WakeConfig {
        every: std::time::Duration::from_nanos(every_ns),
        duration: std::time::Duration::from_secs(20),
    });
    let knobs = format!(r#""cap": "{percent}%""#);
    let groups = vec![group("g", &knobs, vec![burn(burners), wake])];
    run(&scenario(8, 20 * SEC, groups)).groups[0].cpus_used
}

#[test]
fn group_that_keeps_changing_cpus_reaches_its_cap() {
    for (percent, burners, every_ms) in [
        (90, 1, 10),
        (100, 1, 1),
        (100, 1, 10),
        (150, 1, 1),
        (210, 2, 3),
        (250, 2, 1),
        (350, 3, 3),
    ] {
        let used = used_with_wakes(percent, burners, every_ms * MSEC);
        // A wake-up is 5 µs of work.
        let wants = burners as f64 + 0.005 / every_ms as f64;
        let should = wants.min(f64::from(percent) / 100.0);
        let what = format!("{percent} %, {burners} burners, a wake each {every_ms} ms");
        assert_near(&what, used, should, 0.001);
    }
}

/// Alone it runs at 100 %: its rate has reached a cap of 50 % after one half-life, and from then
/// on it is in the batch class.
#[test]
fn a_group_goes_to_the_background_one_half_life_after_it_doubles_its_soft_cap() {
    for (half_life, seconds) in [("", 1.0), (r#", "half-life": "4s""#, 4.0)] {
        let knobs = format!(r#""soft-cap": "50%"{half_life}"#);
        let report = run(&scenario(
            1,
            10 * SEC,
            vec![group("g", &knobs, vec![burn(1)])],
        ));
        let group = &report.groups[0];
        let normal_s = (group.cpu_ns - group.batch_ns) as f64 / 1e9;
        // In steps of 10 ms the core's table, interpolated, decays 2 % slower than a power of two.
        assert_near(&knobs, normal_s, seconds, 0.03 * seconds);
    }
}
