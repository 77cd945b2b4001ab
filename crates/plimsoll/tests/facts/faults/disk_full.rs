//! The disk of the runtime folder is full.

use plimsoll_cgroupfs::CpuGroup;

use super::namespace::SmallDisk;
use crate::common::{Host, wait_until};
use crate::rig::{Daemon, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

/// Enough groups that their records exceed the rest of a page.
const GROUPS: usize = 80;

fn start<'h>(host: &'h Host, disk: &SmallDisk) -> Daemon<'h> {
    let pattern = format!("{}/g*", host.base_path());
    let text = rule("all", &of_cgroup(&pattern), "quota = \"30ms/100ms\"");
    let enter = disk.enter();
    let words: Vec<&str> = enter.iter().map(String::as_str).collect();
    let mut daemon = Daemon::ready(host, &text).wrapped(&words);
    daemon.restart();
    daemon
}

fn create(host: &Host, name: &str) -> Vec<CpuGroup> {
    let groups = (0..GROUPS).map(|index| host.base().child(format!("{name}-{index}")));
    let groups: Vec<CpuGroup> = groups.collect();
    for group in &groups {
        group.create().unwrap();
    }
    groups
}

fn wait_until_limited(daemon: &Daemon, groups: &[CpuGroup]) {
    for group in groups {
        wait_for_quota(daemon, group, 30_000);
    }
}

#[test]
fn limits_stay_on_a_full_disk_and_others_follow_when_space_is_free() {
    let mut host = Host::new();
    host.group("bystander");
    let disk = SmallDisk::new(&host);
    let mut daemon = start(&host, &disk);
    let before = create(&host, "g-before");
    wait_until_limited(&daemon, &before);
    disk.fill();
    let during = create(&host, "g-during");
    wait_until("a failure is counted", || {
        daemon.state().daemon.counters.apply_failures > 0
    });
    let unlimited: Vec<_> = during
        .iter()
        .filter(|group| quota_us(group) == -1)
        .collect();
    assert!(!unlimited.is_empty(), "there was room: {}", daemon.log());
    let problem = daemon.group(&shown(unlimited[0])).unwrap().problem;
    let problem = problem.expect("it is told");
    assert!(problem.contains("No space left"), "{problem}");
    assert!(before.iter().all(|group| quota_us(group) == 30_000));
    // No change was written partly.
    disk.free();
    wait_until_limited(&daemon, &during);
    for group in before.iter().chain(&during) {
        remove_group(group);
    }
    wait_until("all are forgotten", || daemon.names().is_empty());
    daemon.end();
    assert_eq!(disk.files(), [""; 0]);
    daemon.assert_as_before();
}
