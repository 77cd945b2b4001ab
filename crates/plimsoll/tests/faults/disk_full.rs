//! The disk of the runtime folder is full.

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, Set};

use super::namespace::SmallDisk;
use crate::common::{Host, wait_until};
use crate::rig::{Daemon, SHORT, of_cgroup, quota_us, remove_group, rule, shown};

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
        let start = std::time::Instant::now();
        while quota_us(group) != 30_000 {
            let late = start.elapsed() > crate::common::patience(2 * SHORT);
            assert!(!late, "{} is not limited: {}", shown(group), daemon.log());
            std::thread::sleep(crate::common::ms(10));
        }
    }
}

#[test]
fn limits_stay_on_a_full_disk_and_others_follow_when_space_is_free() {
    let mut host = Host::shared();
    host.group("bystander");
    let disk = SmallDisk::new(&host);
    let mut daemon = start(&host, &disk);
    let before = create(&host, "g-before");
    wait_until_limited(&daemon, &before);
    disk.fill();
    let during = create(&host, "g-during");
    wait_until("a failure is counted", SHORT, || {
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
    wait_until("all are forgotten", SHORT, || daemon.names().is_empty());
    daemon.end();
    assert_eq!(disk.files(), [""; 0]);
    daemon.assert_as_before();
}

#[test]
fn set_on_a_full_disk_applies_or_is_refused_and_persists_when_space_is_free() {
    let mut host = Host::shared();
    let group = host.group("g-1");
    let disk = SmallDisk::new(&host);
    let mut daemon = start(&host, &disk);
    disk.fill();
    let set = |quota: &str| {
        let knobs = format!("{{\"quota\": \"{quota}\"}}");
        Request::Set(Box::new(Set {
            target: "all".into(),
            knobs: serde_json::from_str(&knobs).unwrap(),
            choice: Choice::default(),
        }))
    };
    match daemon.ask(&set("50ms/100ms")) {
        Answer::Groups { .. } => assert_eq!(quota_us(&group), 50_000),
        Answer::Refused(line) => {
            assert!(line.contains("No space left"), "{line}");
            assert_eq!(quota_us(&group), 30_000);
        }
        other => panic!("{other:?}"),
    }
    disk.free();
    assert!(matches!(
        daemon.ask(&set("60ms/100ms")),
        Answer::Groups { .. }
    ));
    assert_eq!(quota_us(&group), 60_000);
    daemon.kill_hard();
    daemon.restart();
    assert_eq!(quota_us(&group), 60_000, "{}", daemon.log());
    daemon.ask(&Request::Reset {
        target: "all".into(),
    });
    assert_eq!(quota_us(&group), 30_000);
    daemon.end();
    daemon.assert_as_before();
}

#[test]
fn next_daemon_restores_values_after_a_kill_on_a_full_disk() {
    let mut host = Host::shared();
    host.group("bystander");
    let disk = SmallDisk::new(&host);
    let mut daemon = start(&host, &disk);
    let groups = create(&host, "g");
    wait_until_limited(&daemon, &groups);
    disk.fill();
    daemon.kill_hard();
    assert!(groups.iter().all(|group| quota_us(group) == 30_000));
    // It may start or fail, without damage.
    daemon.launch();
    std::thread::sleep(crate::common::patience(crate::common::ms(500)));
    disk.free();
    if !daemon.is_running() {
        println!("without room it does not start: {}", daemon.log());
        daemon.restart();
    }
    daemon.wait_until_it_answers();
    wait_until_limited(&daemon, &groups);
    daemon.end();
    assert!(groups.iter().all(|group| quota_us(group) == -1));
    for group in &groups {
        remove_group(group);
    }
    daemon.assert_as_before();
}
