//! Tests of plimsoll-cgroupfs on real cgroups.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use crate::common::{Host, has_processes, max, wait_until, wait_until_busy};
use plimsoll_cgroupfs::name::text_of;
use plimsoll_cgroupfs::{CgroupError, CpuGroup, CpuMax};

fn errno(error: &CgroupError) -> i32 {
    error.os_error().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn kernel_accepts_every_step_between_two_bandwidths() {
    let mut host = Host::new();
    let group = host.group("g");
    assert!(group.has_burst());
    let max = |quota_usec, period_usec, burst_usec| CpuMax {
        quota_usec,
        period_usec,
        burst_usec,
    };
    let all = [
        max(None, 100_000, 0),
        max(Some(1_000), 1_000_000, 1_000),
        max(Some(1_000), 1_000, 0),
        max(Some(400_000), 100_000, 400_000),
        max(Some(400_000), 1_000_000, 3),
        max(Some(90_000), 30_000, 45_000),
    ];
    for old in &all {
        for new in &all {
            group.write_cpu_max(old).unwrap();
            group.write_cpu_max(new).unwrap();
            assert_eq!(group.read_cpu_max().unwrap(), *new, "from {old:?}");
            for (path, text) in group.cpu_max_settings(new) {
                assert_eq!(fs::read_to_string(path).unwrap().trim(), text);
            }
        }
    }
    let burst_above_quota = max(Some(10_000), 100_000, 10_001);
    let error = group.write_cpu_max(&burst_above_quota).unwrap_err();
    assert_eq!(errno(&error), libc::EINVAL);
}

#[test]
fn between_two_bandwidths_a_child_stays_within_its_parent() {
    let mut host = Host::new();
    let parent = host.group("parent");
    parent.enable_children().unwrap();
    let child = parent.child("child");
    child.create().unwrap();
    let of = |quota, period_usec| CpuMax {
        quota_usec: Some(quota),
        period_usec,
        burst_usec: 0,
    };
    // The same rate, because v1 refuses a higher one in a child.
    parent.write_cpu_max(&of(50_000, 100_000)).unwrap();
    for next in [of(5_000, 10_000), of(500_000, 1_000_000), of(1_000, 2_000)] {
        child.write_cpu_max(&next).unwrap();
        assert_eq!(child.read_cpu_max().unwrap(), next);
    }
    let more = child.write_cpu_max(&of(60_000, 100_000));
    assert_eq!(more.is_ok(), host.is_v2(), "{more:?}");
}

#[test]
fn every_weight_is_read_back_and_refused_by_an_idle_cgroup() {
    let mut host = Host::new();
    let group = host.group("g");
    for weight in [1, 2, 99, 100, 101, 5_000, 10_000] {
        group.write_weight(weight).unwrap();
        assert_eq!(group.read_weight().unwrap(), weight);
    }
    assert!(group.has_idle() && !group.read_idle().unwrap());
    group.write_idle(true).unwrap();
    group.write_idle(true).unwrap();
    assert!(group.read_idle().unwrap());
    assert_eq!(errno(&group.write_weight(50).unwrap_err()), libc::EINVAL);
    group.write_idle(false).unwrap();
    assert!(!group.read_idle().unwrap());
}

#[test]
fn members_are_found_where_they_were_moved() {
    let mut host = Host::new();
    let (first, second) = (host.group("first"), host.group("second"));
    assert!(!has_processes(&first));
    let sleeper = host.start_in(&first, ["sleep", "600"]);
    let pid = sleeper.pid();
    assert!(has_processes(&first));
    for group in [&second, &first, &second] {
        group.add_process(pid).unwrap();
        assert_eq!(group.processes().unwrap(), [pid]);
        assert_eq!(group.threads().unwrap(), [pid]);
        assert_eq!(host.hierarchy().cgroup_of(pid).unwrap(), group.path());
        assert_eq!(host.hierarchy().folders_of(pid).unwrap(), group.folders());
    }
    assert!(first.all_processes().unwrap().is_empty());
    let mut all = host.base().all_processes().unwrap();
    all.retain(|other| *other == pid);
    assert_eq!(all, [pid]);
    assert_eq!(host.base().all_threads().unwrap(), [pid]);
    sleeper.stop();
    wait_until("it is empty", || !has_processes(&second));
    // The process has ended.
    first.add_process(pid).unwrap();
    let error = host.hierarchy().folders_of(pid).unwrap_err().to_string();
    assert_eq!(error, format!("{pid}: no such process"));
}

#[test]
fn a_cgroup_of_any_name_is_found() {
    let mut host = Host::new();
    let parent = host.group("parent");
    assert!(parent.children().unwrap().is_empty());
    let names: [&[u8]; 4] = [b"plain", b"b\\x2d c", b"\xff\xfe", b"x:y"];
    for name in names {
        let child = parent.child(OsStr::from_bytes(name));
        child.create().unwrap();
        let sleeper = host.start_in(&parent, ["sleep", "600"]);
        child.add_process(sleeper.pid()).unwrap();
        let place = host.hierarchy().cgroup_of(sleeper.pid()).unwrap();
        assert_eq!(place, child.path());
        assert_eq!(parent.all_processes().unwrap(), [sleeper.pid()]);
        assert_eq!(host.hierarchy().resolve(&text_of(&place)).unwrap(), place);
        sleeper.stop();
    }
    let children = parent.children().unwrap();
    let name_of = |child: &CpuGroup| child.path().file_name().unwrap().as_bytes().to_owned();
    let mut found: Vec<Vec<u8>> = children.iter().map(name_of).collect();
    found.sort();
    let mut expected = names.map(<[u8]>::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn recreated_cgroup_is_a_different_one() {
    let mut host = Host::new();
    let group = host.group("g");
    let first = group.clone().bound().unwrap();
    first.check_exists().unwrap();
    first.write_weight(200).unwrap();
    for folder in group.folders() {
        fs::remove_dir(folder).unwrap();
    }
    assert!(first.check_exists().unwrap_err().is_gone());
    assert!(group.stat().unwrap_err().is_gone());
    assert!(group.children().unwrap_err().is_gone());
    group.create().unwrap();
    assert!(first.check_exists().unwrap_err().is_gone());
    assert!(first.write_weight(300).unwrap_err().is_gone());
    assert_eq!(group.read_weight().unwrap(), 100);
}

#[test]
fn counters_follow_usage_and_end_with_the_cgroup() {
    let mut host = Host::new();
    let group = host.group("g");
    let counter = group.usage_counter().unwrap();
    let start_ns = counter.read_ns().unwrap();
    let load = host.start_load_in(&group, "burn --threads 1 --duration 600s");
    group.write_cpu_max(&max("1ms/10ms")).unwrap();
    wait_until_busy(&group);
    wait_until("it is throttled", || {
        group.stat().unwrap().throttled_usec > 0
    });
    let (first, usage, second) = (counter.read_ns(), group.usage_ns(), counter.read_ns());
    let usage_ns = usage.unwrap();
    assert!(first.unwrap() <= usage_ns && usage_ns <= second.unwrap());
    assert!(usage_ns > start_ns);
    let stat = group.stat().unwrap();
    assert!(0 < stat.nr_throttled && stat.nr_throttled <= stat.nr_periods);
    assert!(stat.throttled_usec > 0);
    load.stop();
    wait_until("it can be removed", || {
        let mut folders = group.folders().into_iter();
        folders.all(|folder| !folder.exists() || fs::remove_dir(folder).is_ok())
    });
    assert!(counter.read_ns().unwrap_err().is_gone());
}
