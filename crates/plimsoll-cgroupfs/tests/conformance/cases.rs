//! Files of cgroups, and how each kernel treats them: the one in memory and those that Plimsoll runs
//! on. A test calls each case with a machine of its own.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use plimsoll_cgroupfs::events::{EventQueue, Interest, WatchEvent};
use plimsoll_cgroupfs::name::text_of;
use plimsoll_cgroupfs::{CgroupError, CpuGroup, CpuMax, Hierarchy, Version, os};

/// A machine with a cgroup for the cases.
pub trait Machine {
    fn hierarchy(&self) -> Arc<Hierarchy>;
    /// The cgroup in which [`group`](Self::group) creates others.
    fn base(&self) -> CpuGroup;
    fn group(&mut self, name: &str) -> CpuGroup;
    /// Removes an empty cgroup, as others do.
    fn remove(&mut self, group: &CpuGroup);
    /// Starts a process that sleeps.
    fn start_in(&mut self, group: &CpuGroup) -> i32;
    /// Ends it. Returns when it has gone.
    fn end(&mut self, pid: i32);
    /// Waits until something is so.
    fn wait_until(&self, what: &str, is_so: impl FnMut() -> bool);
}

/// Makes a test of each case: `$machine` creates the machine.
macro_rules! conformance {
    ($machine:expr) => {
        $crate::cases::conformance!($machine;
            kernel_accepts_every_step_between_two_bandwidths
            between_two_bandwidths_a_child_stays_within_its_parent
            every_weight_is_read_back_and_refused_by_an_idle_cgroup
            members_are_found_where_they_were_moved
            the_end_of_the_last_process_is_told_on_v2
            cgroups_that_come_or_go_and_written_files_are_told
            a_cgroup_of_any_name_is_found
            recreated_cgroup_is_a_different_one
        );
    };
    ($machine:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::cases::$case(&mut $machine);
            }
        )*
    };
}
pub(crate) use conformance;

fn errno(error: &CgroupError) -> i32 {
    error.os_error().unwrap_or_else(|| panic!("{error}"))
}

pub fn kernel_accepts_every_step_between_two_bandwidths(machine: &mut impl Machine) {
    let group = machine.group("g");
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
                let found = os::read(&path).unwrap();
                assert_eq!(found.trim_ascii(), text.as_bytes());
            }
        }
    }
    let burst_above_quota = max(Some(10_000), 100_000, 10_001);
    let error = group.write_cpu_max(&burst_above_quota).unwrap_err();
    assert_eq!(errno(&error), libc::EINVAL);
}

pub fn between_two_bandwidths_a_child_stays_within_its_parent(machine: &mut impl Machine) {
    let parent = machine.group("parent");
    parent.enable_children().unwrap();
    let child = parent.child("child");
    child.create().unwrap();
    let of = |quota, period_usec| CpuMax {
        quota_usec: Some(quota),
        period_usec,
        burst_usec: 0,
    };
    // v1 refuses a higher rate in a child than in its parent.
    parent.write_cpu_max(&of(50_000, 100_000)).unwrap();
    for next in [of(5_000, 10_000), of(500_000, 1_000_000), of(1_000, 2_000)] {
        child.write_cpu_max(&next).unwrap();
        assert_eq!(child.read_cpu_max().unwrap(), next);
    }
    let more = child.write_cpu_max(&of(60_000, 100_000));
    assert_eq!(
        more.is_ok(),
        machine.hierarchy().version() == Version::V2,
        "{more:?}"
    );
}

pub fn every_weight_is_read_back_and_refused_by_an_idle_cgroup(machine: &mut impl Machine) {
    let group = machine.group("g");
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

pub fn members_are_found_where_they_were_moved(machine: &mut impl Machine) {
    let (first, second) = (machine.group("first"), machine.group("second"));
    assert!(first.processes().unwrap().is_empty());
    let pid = machine.start_in(&first);
    assert_eq!(first.processes().unwrap(), [pid]);
    for group in [&second, &first, &second] {
        group.add_process(pid).unwrap();
        assert_eq!(group.processes().unwrap(), [pid]);
        assert_eq!(group.threads().unwrap(), [pid]);
        assert_eq!(machine.hierarchy().cgroup_of(pid).unwrap(), group.path());
        assert_eq!(
            machine.hierarchy().folders_of(pid).unwrap(),
            group.folders()
        );
    }
    assert!(first.all_processes().unwrap().is_empty());
    let mut all = machine.base().all_processes().unwrap();
    all.retain(|other| *other == pid);
    assert_eq!(all, [pid]);
    assert_eq!(machine.base().all_threads().unwrap(), [pid]);
    machine.end(pid);
    assert!(second.processes().unwrap().is_empty());
    // The process has ended.
    first.add_process(pid).unwrap();
    let error = machine.hierarchy().folders_of(pid).unwrap_err().to_string();
    assert_eq!(error, format!("{pid}: no such process"));
}

pub fn the_end_of_the_last_process_is_told_on_v2(machine: &mut impl Machine) {
    let (group, inner) = (machine.group("outer"), machine.group("outer/inner"));
    let (first, last) = (machine.start_in(&inner), machine.start_in(&inner));
    machine.end(first);
    let file = machine
        .hierarchy()
        .cpu_folder(group.path())
        .join("cgroup.events");
    let mut queue = EventQueue::new(Interest::Folders).unwrap();
    // After the beginning of the first, which is told, too.
    let watch = queue.watch_file(&file);
    machine.end(last);
    if machine.hierarchy().version() == Version::V1 {
        assert_eq!(watch.unwrap_err().kind(), ErrorKind::NotFound);
        return;
    }
    let changed = WatchEvent::Changed(watch.unwrap());
    machine.wait_until("it is told", || queue.read().unwrap().contains(&changed));
    machine.remove(&inner);
    machine.remove(&group);
}

pub fn cgroups_that_come_or_go_and_written_files_are_told(machine: &mut impl Machine) {
    let group = machine.group("parent");
    let folder = machine.hierarchy().cpu_folder(group.path());
    let queue = |interest| EventQueue::new(interest).unwrap();
    let (mut tree, mut writes) = (queue(Interest::Folders), queue(Interest::Writes));
    let (below, inside) = (tree.watch(&folder).unwrap(), writes.watch(&folder).unwrap());
    let child = group.child("child");
    child.create().unwrap();
    let came = WatchEvent::Came(below.clone(), "child".into());
    assert_eq!(tree.read().unwrap(), [came]);
    let mut files = vec![group.weight_setting(200).0];
    group.write_weight(200).unwrap();
    if machine.hierarchy().version() == Version::V2 {
        files.push(group.subtree_control());
        group.enable_children().unwrap();
    }
    let written = files.iter().map(|file| {
        let name = file.file_name().unwrap().to_owned();
        WatchEvent::Written(inside.clone(), name)
    });
    assert_eq!(writes.read().unwrap(), written.collect::<Vec<_>>());
    machine.remove(&child);
    let went = WatchEvent::Went(below, "child".into());
    assert_eq!(tree.read().unwrap(), [went]);
}

pub fn a_cgroup_of_any_name_is_found(machine: &mut impl Machine) {
    let parent = machine.group("parent");
    assert!(parent.children().unwrap().is_empty());
    let names: [&[u8]; 4] = [b"plain", b"b\\x2d c", b"\xff\xfe", b"x:y"];
    for name in names {
        let child = parent.child(OsStr::from_bytes(name));
        child.create().unwrap();
        let pid = machine.start_in(&parent);
        child.add_process(pid).unwrap();
        let place = machine.hierarchy().cgroup_of(pid).unwrap();
        assert_eq!(place, child.path());
        assert_eq!(parent.all_processes().unwrap(), [pid]);
        let below = text_of(&place);
        let inside = text_of(machine.hierarchy().cpu_folder(&place));
        for target in [&below, &format!("/{below}/"), &inside] {
            assert_eq!(machine.hierarchy().resolve(target).unwrap(), place);
        }
        machine.end(pid);
    }
    let inside = text_of(parent.path());
    for target in [
        "",
        "/",
        "/..",
        "/nowhere",
        &format!("{inside}/plain/../plain"),
    ] {
        let error = machine.hierarchy().resolve(target).unwrap_err().to_string();
        assert_eq!(error, format!("{target}: no such cgroup"));
    }
    let children = parent.children().unwrap();
    let name_of = |child: &CpuGroup| child.path().file_name().unwrap().as_bytes().to_owned();
    let mut found: Vec<Vec<u8>> = children.iter().map(name_of).collect();
    found.sort();
    let mut expected = names.map(<[u8]>::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}

pub fn recreated_cgroup_is_a_different_one(machine: &mut impl Machine) {
    let group = machine.group("g");
    let first = group.clone().bound().unwrap();
    first.check_exists().unwrap();
    first.write_weight(200).unwrap();
    machine.remove(&group);
    assert!(first.check_exists().unwrap_err().is_gone());
    assert!(group.stat().unwrap_err().is_gone());
    assert!(group.children().unwrap_err().is_gone());
    group.create().unwrap();
    assert!(first.check_exists().unwrap_err().is_gone());
    assert!(first.write_weight(300).unwrap_err().is_gone());
    assert_eq!(group.read_weight().unwrap(), 100);
}
