//! Nice levels of the threads of a cgroup.

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::nice;
use plimsoll_engine::undo::UndoReport;

use crate::common::{Host, wait_until};
use crate::rig::shown;

/// The knobs that a test asks for on a foreign cgroup.
fn policy(group: &CpuGroup, json: &str) -> GroupPolicy {
    GroupPolicy {
        name: shown(group),
        first: None,
        subject: String::new(),
        knobs: serde_json::from_str(json).unwrap(),
        is_scheduled: false,
    }
}

/// The engine without a daemon; nothing was left to it.
fn start(host: &Host) -> CgroupEnforcer {
    let runtime = RuntimeFolder::at(host.runtime());
    let (enforcer, left) = CgroupEnforcer::adopting(host.hierarchy(), &runtime).unwrap();
    assert_eq!(left, UndoReport::default());
    enforcer
}

fn levels(pids: &[i32]) -> Vec<i32> {
    pids.iter().map(|pid| nice(*pid).unwrap()).collect()
}

/// Nice level of the tests and their children.
fn own() -> i32 {
    nice(std::process::id().cast_signed()).unwrap()
}

#[test]
fn only_the_threads_of_a_cgroup_have_its_nice_level() {
    let mut host = Host::new();
    let vm = host.group("vm");
    let process = host.start_load_in(&vm, "burn --threads 2 --duration 600s");
    wait_until("it has its threads", || vm.threads().unwrap().len() >= 4);
    let emulator = vm.child("em");
    emulator.create().unwrap();
    if host.is_v2() {
        emulator.make_threaded().unwrap();
        vm.enable_children().unwrap();
    }
    let threads = vm.threads().unwrap();
    let is_other = |tid: &&i32| **tid != process.pid();
    let thread = *threads.iter().find(is_other).unwrap();
    emulator.add_thread(thread).unwrap();
    let others: Vec<i32> = threads.into_iter().filter(|tid| *tid != thread).collect();
    let target = shown(&emulator);
    for is_removed in [true, false] {
        let mut enforcer = start(&host);
        for json in [r#"{"nice": "5"}"#, r#"{"nice": "6"}"#] {
            enforcer.put(&policy(&emulator, json)).unwrap();
        }
        assert_eq!(levels(&[thread]), [6]);
        assert_eq!(levels(&others), vec![own(); others.len()]);
        assert_eq!(enforcer.sample(&target, false).unwrap().processes, 1);
        match is_removed {
            true => drop(enforcer.remove(&target).unwrap()),
            false => assert_eq!(enforcer.undo().problems, [""; 0]),
        }
        assert_eq!(levels(&[thread]), [own()], "{is_removed}");
    }
    let shown = host.run(["show", &target, "--json"]).good().json();
    assert_eq!(shown["cgroup"]["processes"], 1);
    process.kill_hard();
    crate::rig::remove_group(&emulator);
}
