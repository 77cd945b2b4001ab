//! SPEC 4, soft caps: above its cap a group gets all left-over time, and no more.

use plimsoll_cgroupfs::CpuGroup;

use crate::clock::{ms, rate_of, rates_of, sleep_ms};
use crate::common::{Host, Running, on_one_cpu, wait_until, wait_until_busy};
use crate::daemon_rig::is_idle;
use crate::figure::SPEC_4;

/// A group with a soft cap, in the background.
fn start(host: &Host, cap: u32) -> (CpuGroup, Running) {
    let knobs = format!("--name greedy --soft-cap {cap}%");
    let running = host.start_load(&knobs, "burn --threads 1 --duration 80000s");
    (host.soft("greedy"), running)
}

/// Share of one CPU that a group over its soft cap has beside a competitor, in percent of both.
fn share_beside_a_rival(cap: u32) -> f64 {
    let mut host = Host::new();
    let rival = host.group("rival");
    let (_rival, (group, _greedy)) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 80000s"),
            start(&host, cap),
        )
    });
    wait_until_busy(&rival);
    wait_until("it is in the background", || is_idle(&group));
    sleep_ms(500);
    // When its rate has fallen to its cap it competes normally until it exceeds the cap again.
    let rates = rates_of(&[&group, &rival], ms(6_000));
    100.0 * rates[0] / (rates[0] + rates[1])
}

#[test]
fn soft_cap_beside_a_competitor() {
    let share = share_beside_a_rival(10);
    // It overshoots until the next check of its rate.
    let what = "a group over its soft cap of 10 %";
    SPEC_4.figure(what, share, "% of its CPU", 0.0..=11.0);
    let share = share_beside_a_rival(0);
    let what = "a group over its soft cap of 0 %";
    SPEC_4.figure(what, share, "% of its CPU", 0.0..=1.0);
}

#[test]
fn soft_cap_alone() {
    let host = Host::new();
    let (group, _greedy) = start(&host, 10);
    wait_until("it is in the background", || is_idle(&group));
    let rate = rate_of(&group, ms(1_000));
    let what = "a group alone over its soft cap of 10 %";
    SPEC_4.figure(what, rate, "% of its CPU", 98.0..=100.5);
}
