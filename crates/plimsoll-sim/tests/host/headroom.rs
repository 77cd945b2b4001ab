//! Headroom: the table of the source, and the form in whole CPUs.

use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_sim::scenario::Workload;

use crate::fixture::{SEC, assert_near, burn, group, need, run, scenario, steady};

#[test]
fn the_table_of_the_source() {
    for (main, side, idle) in [
        (30.0, 40.0, 30.0),
        (40.0, 30.0, 30.0),
        (50.0, 20.0, 30.0),
        (60.0, 10.0, 30.0),
        (70.0, 0.0, 30.0),
        (80.0, 0.0, 20.0),
    ] {
        let groups = vec![
            group("main", r#""headroom": "30%""#, vec![steady(main, 11 * SEC)]),
            group("side", r#""class": "batch""#, vec![burn(8)]),
        ];
        let mut scenario = scenario(4, 10 * SEC, groups);
        scenario.warmup_ns = SEC;
        let machine = run(&scenario).machine;
        assert_near("main", 100.0 * machine.normal_ratio, main, 0.2);
        assert_near("side", 100.0 * machine.batch_ratio, side, 1.0);
        assert_near("idle", 100.0 * machine.idle_ratio, idle, 1.0);
    }
}

#[test]
fn without_main_load_side_work_gets_all_but_the_headroom() {
    let groups = vec![group(
        "side",
        r#""class": "batch", "headroom": "25%""#,
        vec![burn(8)],
    )];
    let report = run(&scenario(4, 10 * SEC, groups));
    assert_near("idle", report.machine.idle_ratio, 0.25, 0.002);
}

#[test]
fn whole_cpus_are_idle_at_every_instant() {
    let groups = vec![
        group("main", r#""headroom": "1cpus""#, vec![burn(2)]),
        group("side", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 10 * SEC, groups));
    assert_near("side", report.machine.batch_ratio, 0.25, 0.001);
    assert_near("idle", report.machine.idle_ratio, 0.25, 0.001);
}

#[test]
fn a_short_main_load_is_answered_within_a_grain() {
    // The headroom is a third; main takes all of it at 5 s, and more.
    let groups = vec![
        group(
            "main",
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
        group("side", r#""class": "batch""#, vec![burn(8)]),
    ];
    let scenario = scenario(4, 10 * SEC, groups);
    let mut host = plimsoll_sim::host::Host::new(&scenario).unwrap();
    let mut side_ns = |at_ns| {
        host.run_until(at_ns);
        host.report().groups[1].cpu_ns
    };
    let before = side_ns(5 * SEC);
    let within = side_ns(5 * SEC + 5 * NSEC_PER_MSEC);
    let later = side_ns(5 * SEC + 400 * NSEC_PER_MSEC);
    // No more than two grains of what it had.
    assert!(
        within - before <= 2 * 4 * NSEC_PER_MSEC,
        "{}",
        within - before
    );
    assert_eq!(later, within);
}

#[test]
fn a_batch_task_keeps_its_slice_while_the_allowance_lasts() {
    let groups = vec![group(
        "side",
        r#""class": "batch", "headroom": "25%""#,
        vec![burn(12)],
    )];
    let report = run(&scenario(4, 10 * SEC, groups));
    // Three CPUs, slices of 4 ms.
    let slices = 10 * 3 * SEC / (4 * NSEC_PER_MSEC);
    let switches = report.groups[0].nr_switches;
    assert!(switches < slices + slices / 20, "{switches} of {slices}");
}

/// What side work with a tolerance of `runtime` in 100 ms gets behind two
/// endless normal tasks on two CPUs, in CPUs.
fn behind_saturating_work(headroom: &str, runtime: &str) -> f64 {
    let knobs = format!(r#""headroom": "{headroom}", "tolerance": "{runtime}/100ms""#);
    let groups = vec![
        group("main", &knobs, vec![burn(2)]),
        group("side", r#""class": "batch""#, vec![burn(2)]),
    ];
    run(&scenario(2, 60 * SEC, groups)).groups[1].cpus_used
}

#[test]
fn headroom_leaves_side_work_its_whole_tolerance() {
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
fn what_side_work_ran_between_its_turns_shortens_the_next_and_cancels_none() {
    // Headroom takes what main leaves; side work lives on its tolerance.
    let groups = vec![
        group(
            "main",
            r#""headroom": "30%", "tolerance": "5ms/100ms""#,
            vec![steady(98.0, 60 * SEC)],
        ),
        group("side", r#""class": "batch""#, vec![burn(2)]),
    ];
    let used = run(&scenario(2, 60 * SEC, groups)).groups[1].cpus_used;
    assert_near("side", used, 0.05, 0.002);
}

#[test]
fn the_largest_headroom_and_the_smallest_tolerance_hold_whichever_group_asks() {
    let groups = |main: &str, other: &str, side: &str| {
        vec![
            group("main", main, vec![burn(1)]),
            group("other", other, vec![burn(1)]),
            group("side", &format!(r#""class": "batch"{side}"#), vec![burn(2)]),
        ]
    };
    let side = |groups| run(&scenario(2, 60 * SEC, groups)).groups[2].cpus_used;
    let larger = r#""headroom": "60%", "tolerance": "20ms/100ms""#;
    let smaller = r#""headroom": "30%", "tolerance": "10ms/100ms""#;
    // Normal work leaves nothing: the tolerance is what batch work has.
    assert_near("a", side(groups(larger, smaller, "")), 0.1, 0.005);
    assert_near("b", side(groups(smaller, larger, "")), 0.1, 0.005);
    let own = r#", "headroom": "1%", "tolerance": "5ms/100ms""#;
    assert_near("c", side(groups(smaller, larger, own)), 0.05, 0.005);
    // A headroom without a tolerance has the default, 1 ms in 100.
    let unset = r#""headroom": "10%""#;
    assert_near("d", side(groups(larger, unset, "")), 0.01, 0.001);
    let report = run(&scenario(
        2,
        SEC,
        groups(smaller, r#""headroom": "1cpus""#, ""),
    ));
    assert_near("e", report.headroom.unwrap().headroom_ratio, 0.5, 0.0);
}

/// The shortfall of a headroom of two of four CPUs, in ms.
fn shortfall_of_two_cpus_ms(main: Workload, tolerance: &str) -> f64 {
    let knobs = format!(r#""headroom": "2cpus", "tolerance": "{tolerance}""#);
    let groups = vec![
        group("main", &knobs, vec![main]),
        group("side", r#""class": "batch""#, vec![burn(4)]),
    ];
    let report = run(&scenario(4, 10 * SEC, groups));
    report.headroom.unwrap().shortfall_ns as f64 / 1e6
}

#[test]
fn whole_cpus_that_are_idle_are_no_shortfall() {
    let shortfall_ms = shortfall_of_two_cpus_ms(need(NSEC_PER_MSEC, 1), "1ms/100ms");
    assert_near("two idle CPUs", shortfall_ms, 0.0, 0.0);
}

#[test]
fn side_work_that_has_its_tolerance_alone_makes_no_shortfall() {
    let shortfall_ms = shortfall_of_two_cpus_ms(burn(4), "20ms/100ms");
    assert_near("four busy CPUs", shortfall_ms, 0.0, 0.0);
}

#[test]
fn side_work_above_its_tolerance_makes_a_shortfall_of_the_idle_cpus_that_are_missing() {
    // Main leaves all four CPUs at once. Side work takes the two that are free
    // for it, and has saved up a tolerance of 10 ms, of which both of the others
    // and the two themselves use 3.8 ms in each grain: two are missing for three.
    let shortfall_ms = shortfall_of_two_cpus_ms(need(50 * NSEC_PER_MSEC, 4), "20ms/100ms");
    assert_near("four side tasks", shortfall_ms, 2.0 * 3.0, 0.0);
}
