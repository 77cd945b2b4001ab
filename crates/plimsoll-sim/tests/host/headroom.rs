//! Headroom: the table of the source, and headroom in whole CPUs.

use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_sim::scenario::Workload;

use crate::fixture::{SEC, assert_near, burn, group, need, run, scenario, steady};

#[test]
fn the_table_of_the_source() {
    for (web, batch, idle) in [
        (30.0, 40.0, 30.0),
        (40.0, 30.0, 30.0),
        (50.0, 20.0, 30.0),
        (60.0, 10.0, 30.0),
        (70.0, 0.0, 30.0),
        (80.0, 0.0, 20.0),
    ] {
        let groups = vec![
            group("web", r#""headroom": "30%""#, vec![steady(web, 11 * SEC)]),
            group("batch", r#""class": "batch""#, vec![burn(8)]),
        ];
        let mut scenario = scenario(4, 10 * SEC, groups);
        scenario.warmup_ns = SEC;
        let machine = run(&scenario).machine;
        assert_near("web", 100.0 * machine.normal_ratio, web, 0.2);
        assert_near("batch", 100.0 * machine.batch_ratio, batch, 1.0);
        assert_near("idle", 100.0 * machine.idle_ratio, idle, 1.0);
    }
}

#[test]
fn batch_work_alone_gets_all_but_the_headroom() {
    let groups = vec![group(
        "batch",
        r#""class": "batch", "headroom": "25%""#,
        vec![burn(8)],
    )];
    let report = run(&scenario(4, 10 * SEC, groups));
    assert_near("idle", report.machine.idle_ratio, 0.25, 0.002);
}

#[test]
fn headroom_in_cpus_keeps_them_idle_at_every_instant() {
    let groups = vec![
        group("web", r#""headroom": "1cpus""#, vec![burn(2)]),
        group("batch", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 10 * SEC, groups));
    assert_near("batch", report.machine.batch_ratio, 0.25, 0.001);
    assert_near("idle", report.machine.idle_ratio, 0.25, 0.001);
}

#[test]
fn batch_work_yields_within_two_grains_of_a_load_step() {
    // The headroom is a third; from 5 s on, the service takes all of it and
    // more.
    let groups = vec![
        group(
            "web",
            r#""headroom": "30%", "tolerance": "0""#,
            vec![{
                let plimsoll_sim::scenario::Workload::Steady(mut config) = steady(10.0, 10 * SEC)
                else {
                    unreachable!("steady() makes a steady load")
                };
                config.steps = vec![plimsoll_load::steady::Step {
                    at: std::time::Duration::from_secs(5),
                    percent: 75.0,
                }];
                plimsoll_sim::scenario::Workload::Steady(config)
            }],
        ),
        group("batch", r#""class": "batch""#, vec![burn(8)]),
    ];
    let scenario = scenario(4, 10 * SEC, groups);
    let mut host = plimsoll_sim::host::Host::new(&scenario).unwrap();
    let mut batch_ns = |at_ns| {
        host.run_until(at_ns);
        host.report().groups[1].cpu_ns
    };
    let before = batch_ns(5 * SEC);
    let within = batch_ns(5 * SEC + 5 * NSEC_PER_MSEC);
    let later = batch_ns(5 * SEC + 400 * NSEC_PER_MSEC);
    // No more than two grains of its former usage.
    assert!(
        within - before <= 2 * 4 * NSEC_PER_MSEC,
        "{}",
        within - before
    );
    assert_eq!(later, within);
}

#[test]
fn batch_task_keeps_its_slice_within_the_allowance() {
    let groups = vec![group(
        "batch",
        r#""class": "batch", "headroom": "25%""#,
        vec![burn(12)],
    )];
    let report = run(&scenario(4, 10 * SEC, groups));
    // Three CPUs, slices of 4 ms.
    let slices = 10 * 3 * SEC / (4 * NSEC_PER_MSEC);
    let switches = report.groups[0].nr_switches;
    assert!(switches < slices + slices / 20, "{switches} of {slices}");
}

/// CPUs used by batch work with a tolerance of `runtime` in 100 ms beside two
/// endless normal tasks on two CPUs.
fn behind_saturating_work(headroom: &str, runtime: &str) -> f64 {
    let knobs = format!(r#""headroom": "{headroom}", "tolerance": "{runtime}/100ms""#);
    let groups = vec![
        group("web", &knobs, vec![burn(2)]),
        group("batch", r#""class": "batch""#, vec![burn(2)]),
    ];
    run(&scenario(2, 60 * SEC, groups)).groups[1].cpus_used
}

#[test]
fn headroom_grants_batch_work_its_whole_tolerance() {
    for headroom in ["1%", "30%", "100%", "1cpus"] {
        for (runtime, cpus) in [
            ("500us", 0.005),
            ("1ms", 0.01),
            ("2500us", 0.025),
            ("5ms", 0.05),
            ("20ms", 0.2),
            ("50ms", 0.5),
            ("100ms", 1.0),
        ] {
            let what = format!("headroom {headroom}, {runtime} in 100 ms");
            let used = behind_saturating_work(headroom, runtime);
            assert_near(&what, used, cpus, 0.01 * cpus);
        }
    }
}

#[test]
fn run_time_between_server_slices_shortens_the_next_slice() {
    // Headroom reserves all that the service leaves; batch work gets only its
    // tolerance.
    let groups = vec![
        group(
            "web",
            r#""headroom": "30%", "tolerance": "5ms/100ms""#,
            vec![steady(98.0, 60 * SEC)],
        ),
        group("batch", r#""class": "batch""#, vec![burn(2)]),
    ];
    let used = run(&scenario(2, 60 * SEC, groups)).groups[1].cpus_used;
    assert_near("batch", used, 0.05, 0.002);
}

#[test]
fn the_largest_headroom_and_the_smallest_tolerance_hold_whichever_group_asks() {
    let groups = |first: &str, other: &str, batch: &str| {
        vec![
            group("service", first, vec![burn(1)]),
            group("other", other, vec![burn(1)]),
            group(
                "batch",
                &format!(r#""class": "batch"{batch}"#),
                vec![burn(2)],
            ),
        ]
    };
    let batch = |groups| run(&scenario(2, 60 * SEC, groups)).groups[2].cpus_used;
    let larger = r#""headroom": "60%", "tolerance": "20ms/100ms""#;
    let smaller = r#""headroom": "30%", "tolerance": "10ms/100ms""#;
    // Normal work leaves nothing: the tolerance is what batch work has.
    assert_near("a", batch(groups(larger, smaller, "")), 0.1, 0.005);
    assert_near("b", batch(groups(smaller, larger, "")), 0.1, 0.005);
    let own = r#", "headroom": "1%", "tolerance": "5ms/100ms""#;
    assert_near("c", batch(groups(smaller, larger, own)), 0.05, 0.005);
    // A headroom without a tolerance has the default, 1 ms in 100.
    let unset = r#""headroom": "10%""#;
    assert_near("d", batch(groups(larger, unset, "")), 0.01, 0.001);
    let report = run(&scenario(
        2,
        SEC,
        groups(smaller, r#""headroom": "1cpus""#, ""),
    ));
    assert_near("e", report.headroom.unwrap().headroom_ratio, 0.5, 0.0);
}

/// The shortfall in ms for a headroom of two of four CPUs.
fn shortfall_of_two_cpus_ms(web: Workload, tolerance: &str) -> f64 {
    let knobs = format!(r#""headroom": "2cpus", "tolerance": "{tolerance}""#);
    let groups = vec![
        group("web", &knobs, vec![web]),
        group("batch", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 10 * SEC, groups));
    report.headroom.unwrap().shortfall_ns as f64 / 1e6
}

#[test]
fn idle_cpus_make_no_shortfall() {
    let shortfall_ms = shortfall_of_two_cpus_ms(need(NSEC_PER_MSEC, 1), "1ms/100ms");
    assert_near("two idle CPUs", shortfall_ms, 0.0, 0.0);
}

#[test]
fn batch_work_within_its_tolerance_makes_no_shortfall() {
    let shortfall_ms = shortfall_of_two_cpus_ms(burn(4), "20ms/100ms");
    assert_near("four busy CPUs", shortfall_ms, 0.0, 0.0);
}

#[test]
fn batch_work_above_its_tolerance_makes_a_shortfall() {
    // The service leaves all four CPUs at once. Batch work takes the two that
    // are free for it. It has also saved up a tolerance of 10 ms, of which it
    // uses 3.8 ms per grain, on the other two CPUs and these two; so two idle
    // CPUs are missing for three grains.
    let shortfall_ms = shortfall_of_two_cpus_ms(need(50 * NSEC_PER_MSEC, 4), "20ms/100ms");
    assert_near("four batch tasks", shortfall_ms, 2.0 * 3.0, 0.0);
}
