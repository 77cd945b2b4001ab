//! Slots of cgroups, and former policies of scheduled tasks.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;

use crate::common::{Running, tasks_below, wait_until};
use crate::daemon_rig::{kill_all, shown};
use crate::rig::{Rig, SHORT, are_fair, are_scheduled, describe, rig};

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

#[test]
fn a_cgroup_has_one_slot_until_it_is_reset_or_restored() {
    let mut rig = rig();
    let foreign = rig.host.group("foreign");
    let guest = rig.host.start_in(&foreign, ["sleep", "600"]);
    let other = rig.batch("other", "", &["sleep", "600"]);
    wait_until("the other group is there", SHORT, || {
        rig.host.batch("other").is_populated().unwrap_or(false)
    });
    rig.set(&foreign, "--quota 20ms/100ms");
    assert!(are_scheduled(&[guest.pid()]));
    assert_eq!(slots_of(&rig, &foreign), 1);
    let changed = rig.set(&foreign, "--quota 30ms/100ms");
    assert!(changed.stdout.contains("30ms/100ms"), "{changed:?}");
    assert_eq!(slots_of(&rig, &foreign), 1);
    let path = shown(&foreign);
    let words = ["set", &path, "--enforcer", "cgroup", "--quota", "9ms/100ms"];
    let refused = rig.host.run(words);
    assert_eq!(refused.code(), 125);
    assert!(refused.one_line().contains("allowed: auto, sched-ext"));
    rig.reset(&foreign);
    assert_eq!(slots_of(&rig, &foreign), 0);
    rig.set(&foreign, "--quota 40ms/100ms");
    assert_eq!(slots_of(&rig, &foreign), 1);
    rig.host.kill_owner();
    assert!(are_scheduled(&[guest.pid()]));
    rig.host.run(["restore"]).good();
    assert!(are_fair(&[guest.pid()]));
    guest.kill_hard();
    rig.assert_nothing_left();
    other.stop();
}

/// A process with the policy SCHED_IDLE that starts two others on request.
fn idle_family(rig: &Rig, group: &CpuGroup, signal: &str) -> Running {
    let script = r#"until [ -e "$0" ]; do sleep 0.1; done; sleep 600 & sleep 600 & wait"#;
    let family = rig.host.start_in(group, ["sh", "-c", script, signal]);
    tasks::set_policy(family.pid(), libc::SCHED_IDLE).unwrap();
    family
}

#[test]
fn tasks_and_their_children_get_their_former_policy_back() {
    let mut rig = rig();
    let foreign = rig.host.group("foreign");
    let scratch = tempfile::tempdir().unwrap();
    for is_killed in [false, true] {
        let signal = scratch.path().join(is_killed.to_string());
        let family = idle_family(&rig, &foreign, &signal.to_string_lossy());
        rig.set(&foreign, "");
        assert!(are_scheduled(&[family.pid()]));
        fs::write(&signal, "").unwrap();
        wait_until("its children are there", SHORT, || {
            tasks_below(&foreign).len() == 3 && are_scheduled(&tasks_below(&foreign))
        });
        if is_killed {
            rig.host.kill_owner();
            rig.host.run(["restore"]).good();
        } else {
            rig.reset(&foreign);
        }
        let tids = tasks_below(&foreign);
        let policies = tids.iter().map(|tid| tasks::policy_number(*tid));
        let all_idle = policies.flatten().all(|policy| policy == libc::SCHED_IDLE);
        assert!(tids.len() == 3 && all_idle, "{:?}", describe(&tids));
        kill_all(&tids);
        drop(family);
        wait_until("they are gone", SHORT, || tasks_below(&foreign).is_empty());
    }
    rig.assert_nothing_left();
}
