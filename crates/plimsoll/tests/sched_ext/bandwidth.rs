//! Quota, period and burst in the kernel's scheduler.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{Running, known_defect, ms, nr_cpus};
use crate::rig::{
    MEASURED, Rig, about, all_cpus, assert_quotas, assert_within, is_within, quota_bounds,
    rates_of, rig,
};

#[test]
fn a_quota_is_kept_within_1_percent_on_all_cpus() {
    expect_quota_on_all_cpus();
}

pub fn expect_quota_on_all_cpus() {
    let rig = rig();
    let cpus = nr_cpus();
    // 60 % of each.
    let quota_ms = 60 * cpus;
    let knobs = format!("--quota {quota_ms}ms/100ms");
    let work = rig.batch_burners("work", &knobs, all_cpus(), cpus);
    thread::sleep(ms(300));
    let group = rig.host.batch("work");
    assert_quotas("a quota on all CPUs", &[&group], &[quota_ms as f64]);
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn a_quota_of_1_ms_in_100_ms_is_kept_within_10_percent_over_a_second() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 1ms/100ms", all_cpus(), 1);
    thread::sleep(ms(2000));
    let rate = rates_of(&[&rig.host.batch("work")], Duration::from_secs(1))[0];
    assert_within("1ms/100ms, percent of a CPU", rate, about(1.0, 10.0));
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn of_quotas_three_levels_deep_the_narrowest_is_kept_within_1_percent() {
    let mut rig = rig();
    let cpus = nr_cpus();
    let nested = ["inwards", "outwards"].map(|name| {
        let outer = rig.host.group(name);
        outer.enable_children().unwrap();
        let middle = rig.host.group(&format!("{name}/middle"));
        middle.enable_children().unwrap();
        let inner = rig.host.group(&format!("{name}/middle/inner"));
        [outer, middle, inner]
    });
    let mut loads = Vec::new();
    for (groups, quotas) in nested.iter().zip([[80, 60, 40], [40, 60, 80]]) {
        for (group, quota) in groups.iter().zip(quotas) {
            rig.set(group, &format!("--quota {}ms/100ms", quota * cpus));
        }
        loads.push(rig.fair_burners(&groups[2], all_cpus(), cpus));
    }
    thread::sleep(ms(1000));
    let quota = 40.0 * cpus as f64;
    assert_quotas(
        "the narrowest of three, inwards and outwards",
        &[&nested[0][0], &nested[1][0]],
        &[quota; 2],
    );
    loads.into_iter().for_each(Running::kill_hard);
    nested.iter().flatten().for_each(|group| rig.reset(group));
    rig.assert_nothing_left();
}

/// SPEC 2: a scheduled task stays under every `cpu.max` above it, also foreign ones.
#[test]
fn the_cpu_max_of_a_cgroup_above_a_batch_cgroup_is_kept() {
    let mut rig = rig();
    let outer = rig.host.group("outer");
    fs::write(outer.cpu_file("cpu.max"), "20000 100000").unwrap();
    outer.enable_children().unwrap();
    let inner = rig.host.group("outer/inner");
    let load = rig.fair_burners(&inner, 1, 1);
    let rate = rates_of(&[&inner], MEASURED)[0];
    assert_within(
        "cpu.max of 20 % on a fair task, percent of a CPU",
        rate,
        quota_bounds(20.0),
    );
    rig.set(&inner, "");
    thread::sleep(ms(500));
    let rate = rates_of(&[&inner], MEASURED)[0];
    let what = "cpu.max of 20 % on a batch task, percent of a CPU";
    let holds = is_within(what, rate, quota_bounds(20.0));
    known_defect(
        "issue 17: cpu.max above a batch group is ignored, 100 % of a CPU instead of 20 %",
        holds,
    );
    load.kill_hard();
    rig.reset(&inner);
    rig.assert_nothing_left();
}

fn quota_of(rig: &Rig) -> Value {
    rig.host.show("work")["statistics"].clone()
}

fn count(statistics: &Value, name: &str) -> f64 {
    statistics["quota"][name].as_f64().unwrap()
}

#[test]
fn after_ten_idle_periods_the_burst_is_the_whole_burst() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 20ms/100ms --burst 60ms", 1, 1);
    let group = rig.host.batch("work");
    thread::sleep(ms(500));
    let pids = group.all_processes().unwrap();
    let send = |signal| {
        for pid in &pids {
            kill(Pid::from_raw(*pid), signal).unwrap();
        }
    };
    send(Signal::SIGSTOP);
    // Lets the last periods end, then waits for ten idle ones.
    thread::sleep(ms(1200));
    let before = quota_of(&rig);
    send(Signal::SIGCONT);
    thread::sleep(ms(350));
    let after = quota_of(&rig);
    println!("{} -> {}", before["quota"], after["quota"]);
    let excess = (count(&after, "burst_usec") - count(&before, "burst_usec")) / 1000.0;
    // The burst of 60 ms is above the quota, which the stock kernel refuses. A CPU keeps 1 ms of
    // what it had when its group went idle, and the last slice ends at a timer, 0.1 ms late at most.
    assert_within("burst_usec of one idle time, in ms", excess, 60.0..=61.1);
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn statistics_agree_with_what_the_kernel_says_was_used() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    thread::sleep(ms(1000));
    let before = quota_of(&rig);
    let rate = rates_of(&[&rig.host.batch("work")], MEASURED)[0];
    let after = quota_of(&rig);
    let risen = |name: &str| count(&after, name) - count(&before, name);
    let usec =
        |statistics: &Value, place: &str| statistics.pointer(place).unwrap().as_f64().unwrap();
    let grown = |place: &str| usec(&after, place) - usec(&before, place);
    let (used, ran) = (grown("/usage_usec"), grown("/batch/run_usec"));
    println!(
        "rate {rate:.2} %, used {used} us, ran {ran} us, quota {}",
        after["quota"]
    );
    // The kernel charges a running task at its tick of 4 ms.
    assert!((used - ran).abs() < 8_000.0, "used {used} us, ran {ran} us");
    let periods = risen("nr_periods");
    // Each period ended throttled, except those at the edges.
    assert!(periods >= 19.0, "{periods} periods");
    assert!((periods - risen("nr_throttled")).abs() <= 2.0);
    // One task waits whenever its only CPU is throttled: 70 ms in each period. It is counted when
    // it ends, so that at both edges one may be missing.
    let throttled = risen("throttled_usec") / 1000.0;
    let (expected, edges) = (70.0 * periods, 2.0 * 70.0);
    assert!(
        (throttled - expected).abs() < edges + 0.02 * expected,
        "{throttled} ms throttled in {periods} periods"
    );
    assert!(
        (ran / periods / 1000.0 - 30.0).abs() < 0.9,
        "{ran} us in {periods}"
    );
    assert_eq!(risen("nr_bursts"), 0.0, "there is no burst");
    work.stop();
    rig.assert_nothing_left();
}
