//! SPEC 4, soft caps: above its cap a group gets all left-over time, and no more.

use std::thread;
use std::time::Duration;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, ms, on_one_cpu, rate_percent, wait_until, wait_until_busy};
use crate::measured::assert_within;
use crate::rig::is_idle;

fn wait_until_background(group: &CpuGroup) {
    wait_until("it is in the background", Duration::from_secs(10), || {
        is_idle(group)
    });
}

#[test]
fn group_over_its_soft_cap_gets_it_within_a_point_beside_a_normal_competitor() {
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
    wait_until_background(&group);
    thread::sleep(ms(500));
    // When its rate has fallen to its cap it competes normally until it exceeds the cap again.
    let (before, rival_before) = (group.usage_ns().unwrap(), rival.usage_ns().unwrap());
    thread::sleep(ms(6_000));
    let used = (group.usage_ns().unwrap() - before) as f64;
    let rival_used = (rival.usage_ns().unwrap() - rival_before) as f64;
    let share = 100.0 * used / (used + rival_used);
    let what = "share of a group over a soft cap of 10 %";
    // It overshoots until the next check of its rate.
    assert_within(what, share, 0.0, 11.0);
}

#[test]
fn with_a_soft_cap_of_0_a_group_is_in_the_background_and_gets_at_most_1_percent() {
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
    wait_until_background(&group);
    let rate = rate_percent(&group, ms(3_000));
    assert!(is_idle(&group));
    assert_within("share of a group over a soft cap of 0", rate, 0.0, 1.0);
}

#[test]
fn group_over_its_soft_cap_gets_98_percent_of_its_cpu_when_alone() {
    let host = Host::alone();
    let group = host.soft("alone");
    let _alone = host.start_load(
        "--name alone --soft-cap 10%",
        "burn --threads 1 --duration 120s",
    );
    wait_until_background(&group);
    let rate = rate_percent(&group, ms(1_000));
    assert_within(
        "a group alone over its soft cap, percent",
        rate,
        98.0,
        100.5,
    );
    let state = &host.show("alone")["statistics"]["soft_cap"];
    assert_eq!(state["background"], true, "{state}");
    assert!(state["rate_ppm"].as_u64().unwrap() > 500_000, "{state}");
}
