//! Unexpected files in the runtime folder, and its removal.

use std::fs;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::Host;
use crate::rig::{Daemon, of_cgroup, quota_us, remove_group, rule, shown, wait_for_quota};

/// A journal of an ended process, as that version wrote it.
fn journal(version: u32, group: &CpuGroup) -> String {
    // The kernel's file, where the quota is all of it.
    let (file, old, new) = if group.cpu_file("cpu.max").exists() {
        ("cpu.max", "max 100000", "20000 100000")
    } else {
        ("cpu.cfs_quota_us", "-1", "20000")
    };
    let path = group.cpu_file(file);
    fs::write(&path, new).unwrap();
    let header = format!(
        "{{\"version\":{version},\"name\":\"old\",\"pid\":1,\
         \"subject\":\"old\",\"knobs\":{{}}}}"
    );
    let path = path.display();
    format!("{header}\n{{\"write\":{{\"path\":\"{path}\",\"old\":\"{old}\",\"new\":\"{new}\"}}}}\n")
}

#[test]
fn journal_of_a_later_version_is_reported_and_not_interpreted() {
    let mut host = Host::new();
    let group = host.group("web");
    let mut daemon = Daemon::ready(&host, "");
    let path = host.runtime().join("old.journal");
    fs::write(&path, journal(99, &group)).unwrap();
    daemon.restart();
    assert_eq!(quota_us(&group), 20_000);
    assert!(path.exists());
    assert!(daemon.log().contains("version 99"), "{}", daemon.log());
    daemon.end();
    fs::remove_file(path).unwrap();
}

#[test]
fn limits_stay_and_are_undone_without_the_runtime_folder() {
    let mut host = Host::new();
    let web = host.group("web");
    let base = host.base_path();
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"")
        + &rule(
            "later",
            &of_cgroup(&format!("{base}/later-*")),
            "quota = \"40ms/100ms\"",
        );
    let mut daemon = Daemon::start(&host, &text);
    fs::remove_dir_all(host.runtime()).unwrap();
    let later = host.base().child("later-1");
    later.create().unwrap();
    // Changes without a journal could not be undone after a kill, which is reported.
    wait_for_quota(&daemon, &later, 40_000);
    let folder = host.runtime().display().to_string();
    daemon.wait_for_log(&format!(
        "{folder}: was removed, and the undo journal with it"
    ));
    assert!(daemon.is_running(), "{}", daemon.log());
    assert_eq!(quota_us(&web), 30_000);
    daemon.send(nix::sys::signal::Signal::SIGTERM);
    daemon.wait_until_it_ended();
    assert_eq!(
        (quota_us(&web), quota_us(&later)),
        (-1, -1),
        "{}",
        daemon.log()
    );
    daemon.restart();
    assert_eq!(quota_us(&web), 30_000);
    remove_group(&later);
    daemon.stop();
}
