//! Floods of cgroups.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, wait_until};
use crate::rig::{Daemon, of_cgroup, quota_us, remove_group, rule, wait_for_quota};

fn text(host: &Host) -> String {
    let pattern = format!("{}/many/*", host.base_path());
    rule("many", &of_cgroup(&pattern), "quota = \"30ms/100ms\"")
}

/// Parent of many cgroups.
fn many(host: &mut Host) -> CpuGroup {
    let many = host.group("many");
    many.enable_children().unwrap();
    many
}

#[test]
fn cgroup_removed_between_match_and_write_is_no_failure() {
    const ROUNDS: usize = 60;
    let mut host = Host::new();
    let many = many(&mut host);
    let daemon = Daemon::start(&host, &text(&host));
    thread::scope(|scope| {
        for actor in 0..4 {
            let many = &many;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let group = many.child(format!("r-{actor}-{}", round % 3));
                    group.create().unwrap();
                    // Some are removed before, some after, some during the match.
                    for _ in 0..16 * (round % 32) {
                        if quota_us(&group) == 30_000 {
                            break;
                        }
                    }
                    remove_group(&group);
                }
            });
        }
    });
    wait_until("all are forgotten", || daemon.names().is_empty());
    let counters = daemon.state().daemon.counters;
    assert_eq!(counters.apply_failures, 0, "{}", daemon.log());
    // A remaining cgroup is still limited.
    let stays = many.child("stays");
    stays.create().unwrap();
    wait_for_quota(&daemon, &stays, 30_000);
    remove_group(&stays);
    wait_until("it is forgotten", || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn event_queue_overflow_misses_no_cgroup() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let mut host = Host::new();
    let many = many(&mut host);
    let daemon = Daemon::start(&host, &text(&host));
    let gone = many.child("gone");
    gone.create().unwrap();
    wait_for_quota(&daemon, &gone, 30_000);
    daemon.send(Signal::SIGSTOP);
    remove_group(&gone);
    // The kernel reports each twice.
    let folder = many.cpu_file("x");
    for _ in 0..limit / 2 + 100 {
        fs::create_dir(&folder).unwrap();
        fs::remove_dir(&folder).unwrap();
    }
    let late: Vec<CpuGroup> = (0..20)
        .map(|index| many.child(format!("late-{index}")))
        .collect();
    for group in &late {
        group.create().unwrap();
    }
    daemon.send(Signal::SIGCONT);
    for group in &late {
        wait_for_quota(&daemon, group, 30_000);
    }
    let counters = daemon.state().daemon.counters;
    assert!(counters.events_lost >= 1, "{counters:?}");
    wait_until("what has gone is forgotten", || {
        daemon.names().len() == late.len()
    });
    for group in &late {
        remove_group(group);
    }
    wait_until("all are forgotten", || daemon.names().is_empty());
    daemon.stop();
}
