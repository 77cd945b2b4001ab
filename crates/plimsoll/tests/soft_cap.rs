//! Soft caps: beyond its cap a group gets what is left over, and all of it.

#![allow(clippy::unwrap_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{
    Host, expect_within, knob, ms, on_one_cpu, rate_percent, wait_until, wait_until_busy,
};

#[test]
fn over_its_soft_cap_a_group_gets_little_beside_a_normal_competitor() {
    let mut host = Host::alone();
    let rival = host.group("rival");
    let group = host.soft("greedy");
    let (_rival, _greedy) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 120s"),
            host.start_load(
                "--name greedy --soft-cap 10%",
                "burn --threads 1 --duration 120s",
            ),
        )
    });
    wait_until("it is in the background", Duration::from_secs(10), || {
        knob(&group, "cpu.idle") == "1"
    });
    thread::sleep(ms(500));
    // As soon as its rate has fallen to its cap it is an equal again, until
    // it is over it once more: on average it gets about its cap.
    let start = Instant::now();
    let (before, rival_before) = (group.usage_ns().unwrap(), rival.usage_ns().unwrap());
    let (mut looks, mut background) = (0, 0);
    while start.elapsed() < Duration::from_secs(6) {
        looks += 1;
        background += u32::from(knob(&group, "cpu.idle") == "1");
        thread::sleep(ms(20));
    }
    let used = (group.usage_ns().unwrap() - before) as f64;
    let rival_used = (rival.usage_ns().unwrap() - rival_before) as f64;
    let share = 100.0 * used / (used + rival_used);
    println!("share {share:.1} %, in the background in {background} of {looks} looks");
    assert!(share < 20.0, "{share:.1} %");
    assert!(background * 2 > looks, "{background} of {looks}");
}

#[test]
fn with_a_soft_cap_of_0_a_group_is_always_in_the_background() {
    let mut host = Host::alone();
    let rival = host.group("rival");
    let group = host.soft("last");
    let (_rival, _last) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 120s"),
            host.start_load(
                "--name last --soft-cap 0%",
                "burn --threads 1 --duration 120s",
            ),
        )
    });
    wait_until_busy(&rival);
    wait_until("it is in the background", Duration::from_secs(10), || {
        knob(&group, "cpu.idle") == "1"
    });
    expect_within("percent of the CPU", 2.5, 2.5, || {
        assert_eq!(knob(&group, "cpu.idle"), "1");
        rate_percent(&group, Duration::from_secs(3))
    });
}

#[test]
fn over_its_soft_cap_but_alone_a_group_runs_freely() {
    let host = Host::alone();
    let group = host.soft("alone");
    let _alone = host.start_load(
        "--name alone --soft-cap 10%",
        "burn --threads 1 --duration 120s",
    );
    wait_until("it is in the background", Duration::from_secs(10), || {
        knob(&group, "cpu.idle") == "1"
    });
    // The rest is what others on this machine may take.
    expect_within("percent of a CPU", 95.0, 8.0, || {
        rate_percent(&group, Duration::from_secs(2))
    });
    let state = &host.show("alone")["statistics"]["soft_cap"];
    assert_eq!(state["background"], true, "{state}");
    assert!(state["rate_ppm"].as_u64().unwrap() > 500_000, "{state}");
}

#[test]
fn under_its_soft_cap_a_group_is_normal_all_the_time() {
    let host = Host::alone();
    let group = host.soft("modest");
    let modest = host.start_load(
        "--name modest --soft-cap 90% --weight 50",
        "steady --percent 5 --duration 120s",
    );
    wait_until_busy(&group);
    for _ in 0..20 {
        let state = host.show("modest");
        assert_eq!(knob(&group, "cpu.idle"), "0", "{state}");
        thread::sleep(ms(50));
    }
    assert_eq!(group.read_weight().unwrap(), 50);
    let state = &host.show("modest")["statistics"]["soft_cap"];
    assert_eq!(state["background"], false, "{state}");
    assert_eq!(state["nr_switches"], 0, "{state}");
    modest.stop();
    host.assert_clean();
}
