//! Keepers that are killed, and what tasks had before the scheduler got them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::signal::Signal;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;

use crate::common::{Running, tasks_below, wait_until};
use crate::rig::{Rig, SHORT, are_scheduled, describe, rig};

fn path_of(group: &CpuGroup) -> String {
    format!("/{}", group.path().display())
}

/// The slots that a cgroup has.
pub fn slots_of(rig: &Rig, group: &CpuGroup) -> usize {
    let id = fs::metadata(group.cpu_file("")).unwrap().ino();
    let debug = rig.debug();
    let groups = debug["groups"].as_array().unwrap();
    groups
        .iter()
        .filter(|group| group["cgroup_id"] == id)
        .count()
}

/// Starts `plimsoll set CGROUP --enforcer sched-ext …`.
fn keep(rig: &Rig, group: &CpuGroup, knobs: &str) -> Running {
    let path = path_of(group);
    let mut words = vec!["set", &path, "--enforcer", "sched-ext", "--class", "batch"];
    words.extend(knobs.split_whitespace());
    rig.host.start(words)
}

#[test]
fn a_cgroup_has_one_slot_and_none_when_its_keeper_is_killed() {
    let mut rig = rig();
    let foreign = rig.host.group("foreign");
    let lead = rig.batch("lead", "", &["sleep", "600"]);
    wait_until("it leads", SHORT, || {
        rig.host.batch("lead").is_populated().unwrap_or(false)
    });
    let guest = rig.host.start_in(&foreign, ["sleep", "600"]);
    let keeper = keep(&rig, &foreign, "--quota 20ms/100ms");
    wait_until("it is scheduled", SHORT, || are_scheduled(&[guest.pid()]));
    assert_eq!(slots_of(&rig, &foreign), 1);
    // Asked for again, its keeper changes it.
    let changed = keep(&rig, &foreign, "--quota 30ms/100ms")
        .finish(SHORT)
        .good();
    assert!(changed.stdout.contains("30ms/100ms"), "{changed:?}");
    assert_eq!(slots_of(&rig, &foreign), 1);
    let path = path_of(&foreign);
    let other = ["set", &path, "--enforcer", "cgroup", "--quota", "9ms/100ms"];
    let refused = rig.host.run(other);
    assert_eq!(refused.code(), 125);
    assert!(refused.one_line().contains("allowed: auto, sched-ext"));
    keeper.kill_hard();
    let took = wait_until("its slot is free", SHORT, || slots_of(&rig, &foreign) == 0);
    println!("free after {took:.1?}");
    let again = keep(&rig, &foreign, "--quota 40ms/100ms");
    wait_until("it has one again", SHORT, || slots_of(&rig, &foreign) == 1);
    again.stop().good();
    assert_eq!(slots_of(&rig, &foreign), 0);
    guest.kill_hard();
    lead.stop();
    rig.assert_nothing_left();
}

/// A process whose policy is SCHED_IDLE, and that starts two others once it is told.
fn idle_family(rig: &Rig, group: &CpuGroup, signal: &str) -> Running {
    let script = r#"until [ -e "$0" ]; do sleep 0.1; done; sleep 600 & sleep 600 & wait"#;
    let family = rig.host.start_in(group, ["sh", "-c", script, signal]);
    tasks::set_policy(family.pid(), libc::SCHED_IDLE).unwrap();
    family
}

#[test]
fn tasks_and_their_children_get_back_the_policy_that_they_had() {
    let mut rig = rig();
    let foreign = rig.host.group("foreign");
    let scratch = tempfile::tempdir().unwrap();
    for is_killed in [false, true] {
        let signal = scratch.path().join(is_killed.to_string());
        let family = idle_family(&rig, &foreign, &signal.to_string_lossy());
        let keeper = keep(&rig, &foreign, "");
        wait_until("it is scheduled", SHORT, || are_scheduled(&[family.pid()]));
        fs::write(&signal, "").unwrap();
        wait_until("its children are there", SHORT, || {
            tasks_below(&foreign).len() == 3 && are_scheduled(&tasks_below(&foreign))
        });
        if is_killed {
            keeper.kill_hard();
            rig.host.run(["restore"]).good();
        } else {
            keeper.stop().good();
        }
        let tids = tasks_below(&foreign);
        let policies = tids.iter().map(|tid| tasks::policy_number(*tid));
        let all_idle = policies.flatten().all(|policy| policy == libc::SCHED_IDLE);
        assert!(tids.len() == 3 && all_idle, "{:?}", describe(&tids));
        for tid in tids {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(tid), Signal::SIGKILL);
        }
        drop(family);
        wait_until("they are gone", SHORT, || tasks_below(&foreign).is_empty());
    }
    rig.assert_nothing_left();
}
