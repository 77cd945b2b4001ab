//! Cgroups and processes that start and end while the daemon runs.

use nix::sys::signal::Signal;
use plimsoll_engine::knobs::Bandwidth;

use crate::common::{Host, wait_until};
use crate::rig::{
    Daemon, SHORT, Sleeper, is_idle, of_cgroup, quota_us, remove_group, rule, shown,
    wait_for_quota, wait_until_in,
};

fn jobs(host: &Host) -> String {
    let pattern = format!("{}/job-*", host.base_path());
    rule("jobs", &of_cgroup(&pattern), "quota = \"30ms/100ms\"")
}

/// The host's base enables the controller for its children.
fn host_with_children() -> Host {
    let mut host = Host::shared();
    host.group("bystander");
    host
}

#[test]
fn a_tree_of_cgroups_that_is_made_at_once_is_found_to_its_depth() {
    let host = host_with_children();
    let pattern = format!("{}/deep/**", host.base_path());
    let daemon = Daemon::start(
        &host,
        &rule("deep", &of_cgroup(&pattern), "class = \"batch\""),
    );
    let top = host.base().child("deep");
    let mut path = top.clone();
    let mut groups = vec![];
    for level in 0..8 {
        path.create().unwrap();
        path.enable_children().unwrap();
        path = path.child(format!("level-{level}"));
        groups.push(path.clone());
    }
    groups.pop();
    for group in &groups {
        wait_until("it is a batch group", SHORT, || is_idle(group));
    }
    assert_eq!(daemon.names().len(), groups.len());
    for group in groups.iter().rev() {
        remove_group(group);
    }
    remove_group(&top);
    wait_until("all are forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn removed_cgroup_is_dropped_and_its_successor_is_limited() {
    let host = host_with_children();
    let daemon = Daemon::start(&host, &jobs(&host));
    let group = host.base().child("job-same");
    for _ in 0..20 {
        group.create().unwrap();
        wait_for_quota(&daemon, &group, 30_000);
        remove_group(&group);
    }
    wait_until("it is forgotten", SHORT, || daemon.names().is_empty());
    assert_eq!(
        daemon.state().daemon.counters.apply_failures,
        0,
        "{}",
        daemon.log()
    );
    daemon.stop();
}

#[test]
fn recreated_cgroup_inherits_nothing_from_its_predecessor() {
    let mut host = Host::shared();
    let web = of_cgroup(&shown(&host.group("web")));
    let web = rule("web", &web, "headroom = \"30%\"");
    let group = host.base().child("job-same");
    let jobs = rule(
        "jobs",
        &of_cgroup(&format!("{}/job-*", host.base_path())),
        "class = \"batch\"",
    );
    let mut daemon = Daemon::ready(&host, &(web + &jobs));
    daemon.restart();
    for _ in 0..3 {
        daemon.send(Signal::SIGSTOP);
        group.create().unwrap();
        // The found values differ from those of a new cgroup.
        group.write_weight(50).unwrap();
        let found = Bandwidth::of("70ms/100ms".parse().unwrap(), None);
        group.write_cpu_max(&found.into()).unwrap();
        daemon.send(Signal::SIGCONT);
        wait_until("it is a batch group", SHORT, || is_idle(&group));
        // All has been written when it answers; it gets both events at once.
        daemon.state();
        daemon.send(Signal::SIGSTOP);
        remove_group(&group);
        group.create().unwrap();
        daemon.send(Signal::SIGCONT);
        wait_until("it is a batch group again", SHORT, || is_idle(&group));
        daemon.end();
        assert_eq!(group.read_weight().unwrap(), 100, "{}", daemon.log());
        assert_eq!(quota_us(&group), -1, "{}", daemon.log());
        remove_group(&group);
        daemon.restart();
    }
    daemon.stop();
}

#[test]
fn a_renamed_cgroup_goes_by_its_new_name() {
    let mut host = Host::shared();
    if host.is_v2() {
        println!("SKIPPED: cgroup v2 has no renaming");
        return;
    }
    host.group("bystander");
    let daemon = Daemon::start(&host, &jobs(&host));
    let group = host.base().child("other");
    group.create().unwrap();
    let renamed = host.base().child("job-renamed");
    for (from, to) in group.folders().iter().zip(renamed.folders()) {
        std::fs::rename(from, to).unwrap();
    }
    wait_for_quota(&daemon, &renamed, 30_000);
    remove_group(&renamed);
    wait_until("it is forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn a_group_whose_processes_end_stays_for_the_next() {
    let mut host = Host::shared();
    let home = host.group("home");
    let sleeper = Sleeper::new(&format!("plimsoll-next-{}", std::process::id()));
    let matches = format!("executable = \"{}\"", sleeper.path());
    let daemon = Daemon::start(&host, &rule("next", &matches, "quota = \"40ms/100ms\""));
    for _ in 0..5 {
        let running = host.start_in(&home, sleeper.words());
        wait_until_in(&daemon, running.pid(), "next");
        running.kill_hard();
    }
    wait_until("nobody is left", SHORT, || {
        host.normal("next").all_processes().unwrap().is_empty()
    });
    assert_eq!(quota_us(&host.normal("next")), 40_000);
    assert_eq!(daemon.names(), ["next"]);
    daemon.stop();
}

#[test]
fn own_cgroup_that_is_removed_externally_is_created_again() {
    let mut host = Host::shared();
    host.group("home");
    let sleeper = Sleeper::new(&format!("plimsoll-again-{}", std::process::id()));
    let matches = format!("executable = \"{}\"", sleeper.path());
    let daemon = Daemon::start(&host, &rule("again", &matches, "quota = \"40ms/100ms\""));
    let group = host.normal("again");
    wait_for_quota(&daemon, &group, 40_000);
    let before = std::fs::metadata(group.cpu_file("")).unwrap();
    remove_once(&group);
    wait_until("it is there again", SHORT, || {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(group.cpu_file("")).is_ok_and(|now| now.ino() != before.ino())
    });
    wait_for_quota(&daemon, &group, 40_000);
    daemon.stop();
}

/// Removes a cgroup, which may be created again. Removes the watched folder last, because the
/// daemon then removes the others.
fn remove_once(group: &plimsoll_cgroupfs::CpuGroup) {
    for folder in group.folders().into_iter().rev() {
        for child in crate::common::folders_below(&folder) {
            let _ = std::fs::remove_dir(child);
        }
        std::fs::remove_dir(folder).unwrap();
    }
}

#[test]
fn a_thousand_groups_are_in_force_after_a_reload_and_shown() {
    const GROUPS: usize = 1_000;
    let mut host = Host::shared();
    let many = host.group("many");
    many.enable_children().unwrap();
    for index in 0..GROUPS {
        many.child(format!("g{index}")).create().unwrap();
    }
    let pattern = format!("{}/many/*", host.base_path());
    let mut daemon = Daemon::ready(
        &host,
        &rule("many", &of_cgroup(&pattern), "class = \"batch\""),
    );
    daemon.take_as_before();
    daemon.write("");
    daemon.restart();
    daemon.write(&rule("many", &of_cgroup(&pattern), "class = \"batch\""));
    daemon.reload().good();
    assert_eq!(daemon.names().len(), GROUPS);
    assert!(is_idle(&many.child("g0")) && is_idle(&many.child("g999")));
    assert_eq!(
        daemon.group(&shown(&many.child("g7"))).unwrap().group,
        "many"
    );
    daemon.stop();
}
