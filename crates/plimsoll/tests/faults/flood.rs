//! Floods of cgroups.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, native_or_vm, patience, wait_until};
use crate::rig::{Daemon, SHORT, of_cgroup, quota_us, remove_group, rule, wait_for_quota};

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

fn remove_all(groups: &[CpuGroup]) {
    for group in groups {
        for folder in group.folders() {
            let _ = fs::remove_dir(folder);
        }
    }
}

#[test]
fn all_of_a_thousand_new_cgroups_a_second_are_limited_and_none_is_left() {
    let (rate, seconds) = native_or_vm((1_000, 4), (100, 4));
    let mut host = Host::shared();
    let many = many(&mut host);
    let daemon = Daemon::start(&host, &text(&host));
    let start = Instant::now();
    let mut groups = Vec::new();
    for index in 0..rate * seconds {
        let due = start + Duration::from_secs(1) * index / rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let group = many.child(format!("f-{index}"));
        group.create().unwrap();
        groups.push(group);
    }
    let created = start.elapsed();
    let deadline = Instant::now() + patience(3 * SHORT);
    for group in &groups {
        while quota_us(group) != 30_000 {
            assert!(
                Instant::now() < deadline,
                "{:?}: {}",
                group.path(),
                daemon.log()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
    println!(
        "{} cgroups came within {created:.1?}; all were limited {:.1?} later",
        groups.len(),
        start.elapsed() - created
    );
    let state = daemon.state();
    assert_eq!(state.groups.len(), groups.len());
    assert!(
        state.daemon.resident_bytes < 64 << 20,
        "{}",
        state.daemon.resident_bytes
    );
    remove_all(&groups);
    wait_until("all are forgotten", 2 * SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn cgroup_removed_between_match_and_write_is_no_failure() {
    let time = native_or_vm(Duration::from_secs(5), Duration::from_secs(10));
    let mut host = Host::shared();
    let many = many(&mut host);
    let daemon = Daemon::start(&host, &text(&host));
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for actor in 0..4 {
            let (many, stop, count) = (&many, &stop, &count);
            scope.spawn(move || {
                let mut number: u64 = 0;
                while !stop.load(Ordering::Relaxed) {
                    let group = many.child(format!("r-{actor}-{}", number % 3));
                    group.create().unwrap();
                    // Some are removed before, some after, some during the match.
                    thread::sleep(Duration::from_micros(97 * (number % 61)));
                    remove_group(&group);
                    number += 1;
                }
                count.fetch_add(number, Ordering::Relaxed);
            });
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    println!("{} cgroups came and went", count.load(Ordering::Relaxed));
    wait_until("all are forgotten", SHORT, || daemon.names().is_empty());
    let counters = daemon.state().daemon.counters;
    assert_eq!(counters.apply_failures, 0, "{}", daemon.log());
    // A remaining cgroup is still limited.
    let stays = many.child("stays");
    stays.create().unwrap();
    wait_for_quota(&daemon, &stays, 30_000);
    remove_group(&stays);
    wait_until("it is forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}

#[test]
fn event_queue_overflow_misses_no_cgroup() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    let mut host = Host::shared();
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
    let state = daemon.state();
    assert!(
        state.daemon.counters.events_lost >= 1,
        "{:?}",
        state.daemon.counters
    );
    assert_eq!(
        state.groups.len(),
        late.len(),
        "one that has gone is still there"
    );
    remove_all(&late);
    wait_until("all are forgotten", SHORT, || daemon.names().is_empty());
    daemon.stop();
}
