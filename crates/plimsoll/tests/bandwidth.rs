//! Quota, period and burst.

#![allow(clippy::unwrap_used)]

mod common;

use std::thread;
use std::time::Duration;

use common::{
    Host, bandwidth_us, expect_within, knob, ms, native_or_vm, rate_percent, wait_until,
    wait_until_busy,
};

#[test]
fn a_quota_holds_in_the_long_run_with_and_without_burst() {
    let host = Host::alone();
    let group = host.normal("limited");
    for knobs in ["--quota 30ms/100ms", "--quota 30ms/100ms --burst 30ms"] {
        let running = host.start_load(
            &format!("--name limited {knobs}"),
            "burn --threads 1 --duration 120s",
        );
        wait_until_busy(&group);
        // What was saved up at the start is used first.
        thread::sleep(ms(500));
        expect_within(knobs, 30.0, native_or_vm(1.0, 1.5), || {
            rate_percent(&group, Duration::from_secs(3))
        });
        running.stop();
    }
    host.assert_clean();
}

/// Runs a load of 60 ms of work every 400 ms; returns the kernel's counters.
fn throttling_of_a_bursty_load(host: &Host, knobs: &str) -> (u64, u64, u64) {
    let finished = host
        .start_load(
            &format!("--stats --json {knobs}"),
            "service --workers 1 --arrivals bursty --burst-size 6 --burst-every 400ms \
             --service const:10ms --warmup 0s --duration 4s --json",
        )
        .finish(Duration::from_secs(20))
        .good();
    let quota = &finished.stats()["statistics"]["quota"];
    let count = |name: &str| quota[name].as_u64().unwrap();
    (
        count("nr_periods"),
        count("nr_throttled"),
        count("nr_bursts"),
    )
}

#[test]
fn a_burst_within_the_average_is_not_throttled() {
    let host = Host::alone();
    let mut tries = Vec::new();
    let good = (0..3).any(|_| {
        let without = throttling_of_a_bursty_load(&host, "--quota 40ms/100ms");
        let with = throttling_of_a_bursty_load(&host, "--quota 40ms/100ms --burst 40ms");
        println!("periods, throttled, bursts: without {without:?}, with {with:?}");
        tries.push((without, with));
        // The start of the program itself may overrun; on the emulated
        // machine so may the work.
        let (_, throttled, bursts) = with;
        let few = native_or_vm(1, without.1 / 2);
        without.1 >= 6 && without.2 == 0 && throttled <= few && bursts >= 6
    });
    assert!(good, "{tries:?}");
    host.assert_clean();
}

#[test]
fn quota_and_burst_change_in_an_order_that_the_kernel_takes() {
    let host = Host::shared();
    let group = host.normal("steps");
    let running = host.start([
        "run",
        "--name",
        "steps",
        "--quota",
        "80ms/100ms",
        "--burst",
        "60ms",
        "--",
        "sleep",
        "60",
    ]);
    wait_until("the group is there", Duration::from_secs(10), || {
        group.exists() && bandwidth_us(&group) == (80_000, 100_000, 60_000)
    });
    for (knobs, expected) in [
        // Below the present burst, and back.
        (
            &["--quota", "20ms/100ms", "--burst", "10ms"][..],
            (20_000, 100_000, 10_000),
        ),
        (
            &["--quota", "80ms/100ms", "--burst", "80ms"],
            (80_000, 100_000, 80_000),
        ),
        (&["--quota", "5ms/10ms", "--burst", "0"], (5_000, 10_000, 0)),
        (
            &["--quota", "500ms/1s", "--burst", "500ms"],
            (500_000, 1_000_000, 500_000),
        ),
        (
            &["--cpu-max", "20000 50000 20000"],
            (20_000, 50_000, 20_000),
        ),
        // The missing values stay.
        (&["--cpu-max", "30000"], (30_000, 50_000, 20_000)),
    ] {
        let mut words = vec!["set", "steps"];
        words.extend(knobs);
        host.run(words).good();
        assert_eq!(bandwidth_us(&group), expected, "{knobs:?}");
    }
    // A quota below the burst that stays is refused, and nothing is changed.
    let refused = host.run(["set", "steps", "--quota", "10ms/100ms"]);
    assert_eq!(refused.code(), 125, "{refused:?}");
    assert!(refused.one_line().contains("burst"), "{refused:?}");
    assert_eq!(bandwidth_us(&group), (30_000, 50_000, 20_000));
    running.stop();
    host.assert_clean();
}

#[test]
fn a_quota_can_be_lifted() {
    let host = Host::shared();
    let group = host.normal("lifted");
    let running = host.start([
        "run",
        "--name",
        "lifted",
        "--quota",
        "20ms/100ms",
        "--burst",
        "20ms",
        "--",
        "sleep",
        "60",
    ]);
    wait_until("the group is there", Duration::from_secs(10), || {
        group.exists() && bandwidth_us(&group).0 == 20_000
    });
    host.run(["set", "lifted", "--quota", "max"]).good();
    assert_eq!(bandwidth_us(&group), (-1, 100_000, 0));
    host.run(["set", "lifted", "--quota", "20ms/100ms"]).good();
    assert_eq!(bandwidth_us(&group).0, 20_000);
    running.stop();
    host.assert_clean();
}

#[test]
fn a_cap_inside_a_quota_keeps_both() {
    let host = Host::alone();
    let group = host.normal("both");
    let running = host.start_load(
        "--name both --quota 50ms/100ms --cap 30%",
        "burn --threads 2 --duration 120s",
    );
    wait_until_busy(&group);
    assert_eq!(bandwidth_us(&group.child("quota")), (50_000, 100_000, 0));
    let cap = group.child("quota").child("cap");
    assert_eq!(bandwidth_us(&cap), (3_000, 10_000, 1_000));
    assert!(!knob(&cap, "cgroup.procs").is_empty());
    expect_within("the narrower one", 30.0, native_or_vm(1.0, 1.5), || {
        rate_percent(&group, Duration::from_secs(2))
    });
    running.stop();
    host.assert_clean();
}
