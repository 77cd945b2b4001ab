//! Cost of the daemon in counts: memory and wake-ups. `bench/daemon` measures times.

#![allow(clippy::unwrap_used)]

mod common;
#[path = "daemon/rig.rs"]
mod rig;

/// Default enforcer of the daemons in these tests.
const ENFORCER: &str = "cgroup";

use std::fs;
use std::thread;
use std::time::Duration;

use common::{Host, native_or_vm, patience, wait_until};
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_daemon::state::Origin;
use rig::{Daemon, of_cgroup, quota_us, remove_group, rule};

/// Time limit for ten thousand cgroups.
const LONG: Duration = Duration::from_secs(60);
/// Time for which wake-ups are counted.
const COUNTED: Duration = Duration::from_secs(5);

fn make(host: &mut Host, count: usize) -> Vec<CpuGroup> {
    // A child enables the controller for all of them.
    host.group("bystander");
    let name = |number| host.base().child(format!("job-{number}"));
    let groups: Vec<CpuGroup> = (0..count).map(name).collect();
    for group in &groups {
        group.create().unwrap();
    }
    groups
}

fn remove(groups: &[CpuGroup]) {
    for group in groups {
        remove_group(group);
    }
}

fn jobs(host: &Host, knobs: &str) -> String {
    let pattern = format!("{}/job-*", host.base_path());
    rule("jobs", &of_cgroup(&pattern), knobs)
}

/// A number of a process's status, such as kilobytes or counts.
fn status(pid: i32, name: &str) -> u64 {
    status_of(&format!("/proc/{pid}/status"), name)
}

fn status_of(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number.unwrap().parse().unwrap()
}

/// Number of times that the threads of a process have slept.
fn nr_sleeps(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let paths = tasks.map(|task| task.unwrap().path().join("status"));
    paths
        .map(|path| status_of(path.to_str().unwrap(), "voluntary_ctxt_switches"))
        .sum()
}

/// Rate at which the daemon's threads sleep, per second.
fn sleeps_a_second(daemon: &Daemon) -> f64 {
    let before = nr_sleeps(daemon.pid());
    let begun = std::time::Instant::now();
    thread::sleep(COUNTED);
    let sleeps = nr_sleeps(daemon.pid()) - before;
    #[allow(clippy::cast_precision_loss, reason = "a count of some thousands")]
    let sleeps = sleeps as f64;
    sleeps / begun.elapsed().as_secs_f64()
}

#[test]
fn memory_is_bounded_with_ten_thousand_matched_cgroups() {
    let mut host = Host::shared();
    let groups = make(&mut host, 10_000);
    let mut daemon = Daemon::ready(&host, &jobs(&host, "quota = \"30ms/100ms\""));
    daemon.restart();
    let last = groups.last().unwrap();
    wait_until("the last has its quota", LONG, || quota_us(last) == 30_000);
    assert!(groups.iter().all(|group| quota_us(group) == 30_000));
    let resident_kib = status(daemon.pid(), "VmRSS");
    let peak_kib = status(daemon.pid(), "VmHWM");
    println!("10,000 cgroups: {resident_kib} KiB resident, {peak_kib} KiB at its peak");
    // A build without optimisation is larger itself.
    let most_kib = if cfg!(debug_assertions) { 96 } else { 64 } * 1024;
    assert!(resident_kib < most_kib, "{resident_kib} KiB");
    daemon.end();
    assert!(groups.iter().all(|group| quota_us(group) == -1));
    remove(&groups);
}

#[test]
fn daemon_sleeps_with_a_thousand_idle_groups() {
    // Cgroups of other tests would wake it, too.
    let mut host = Host::alone();
    let groups = make(&mut host, 1_000);
    let mut daemon = Daemon::ready(&host, &jobs(&host, "quota = \"30ms/100ms\""));
    daemon.restart();
    let state = daemon.state();
    assert_eq!(state.groups.len(), 1_000);
    assert!(
        state
            .groups
            .iter()
            .all(|group| group.origin == Origin::File)
    );
    // The checks after the start are over.
    thread::sleep(patience(Duration::from_secs(1)));
    let rate = sleeps_a_second(&daemon);
    println!("1,000 idle groups: {rate:.1} sleeps a second");
    // One thread wakes five times a second, another once, and for answers.
    assert!(rate < 20.0, "{rate:.1}");
    daemon.end();
    remove(&groups);
}

#[test]
fn headroom_of_a_thousand_idle_groups_wakes_a_single_loop() {
    let mut host = Host::alone();
    let main = host.group("main");
    let groups = make(&mut host, 1_000);
    let text = jobs(&host, "class = \"batch\"")
        + &rule("main", &of_cgroup(&rig::shown(&main)), "headroom = \"30%\"");
    let mut daemon = Daemon::ready(&host, &text);
    daemon.restart();
    assert_eq!(daemon.state().groups.len(), 1_001);
    thread::sleep(patience(Duration::from_secs(1)));
    let rate = sleeps_a_second(&daemon);
    println!("headroom of 1,000 idle groups: {rate:.1} sleeps a second");
    // The loop's hundred a second, and occasional waits.
    let most = native_or_vm(250.0, 400.0);
    assert!(rate < most, "{rate:.1}");
    daemon.end();
    remove(&groups);
}
