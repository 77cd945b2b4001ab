//! Policies and slots: which tasks and cgroups the scheduler has, and what they have afterwards.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;

use crate::common::{Running, is_alive, tasks_below, threads_of, wait_until};
use crate::daemon_rig::{kill_all, shown};
use crate::rig::{
    Rig, all_cpus, are_fair, are_scheduled, binary_word, burners, cgroup_id, describe,
};
use crate::shared::with_command;

#[test]
fn threads_and_forked_and_executed_children_are_scheduled() {
    let rig = with_command();
    let script = r#""$0" load burn --threads 2 --duration 80000s &
        "$0" load burn --threads 2 --processes --duration 80000s &
        sh -c 'exec sleep 100000' & wait"#;
    let work = rig.batch("family", "", &["sh", "-c", script, &binary_word()]);
    let group = rig.host.batch("family");
    // The shell, two loads with two burners each, and the sleeper.
    wait_until("all are there", || {
        tasks_below(&group).len() >= 8 && burners(&group).len() == 2
    });
    let tids = tasks_below(&group);
    // Nobody has to find them: all inherit the policy.
    assert!(are_scheduled(&tids), "{:?}", describe(&tids));
    // No other is.
    assert!(are_fair(&threads_of(work.pid())));
    rig.assert_never_ejected();
    rig.end("family", work);
    rig.assert_nothing_left();
}

/// As left by an owner that was killed during the boost.
#[test]
fn boost_without_an_owner_is_ended() {
    let rig = with_command();
    let work = rig.batch_burners("work", "", all_cpus(), 1);
    let tid = burners(&rig.host.batch("work"))[0];
    tasks::boost(tid).unwrap();
    assert_eq!(tasks::policy_number(tid), Some(tasks::BOOSTED));
    wait_until("it is the scheduler's again", || are_scheduled(&[tid]));
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn tasks_that_outlive_their_command_are_scheduled_until_it_releases_them() {
    let rig = with_command();
    let knobs = "--quota 50ms/100ms --cpu-limit 80% --tolerance 3ms/100ms";
    let script = "sleep 100000 & sleep 100000 & exit 0";
    let work = rig.batch("family", knobs, &["sh", "-c", script]);
    wait_until("it says that it stays", || work.stderr().contains("run on"));
    let left = rig.host.batch("family").all_processes().unwrap();
    assert_eq!(left.len(), 2);
    assert!(are_scheduled(&left));
    work.stop().good();
    assert!(left.iter().all(|pid| is_alive(*pid)));
    assert!(are_fair(&left));
    rig.assert_nothing_left();
    for pid in left {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
}

/// The slots that a cgroup has.
fn slots_of(rig: &Rig, group: &CpuGroup) -> usize {
    let id = cgroup_id(group);
    rig.slots().into_iter().filter(|slot| *slot == id).count()
}

#[test]
fn a_cgroup_has_one_slot_until_it_is_reset() {
    let rig = with_command();
    let foreign = rig.group("foreign");
    let guest = rig.host.start_in(&foreign, ["sleep", "100000"]);
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
    assert_eq!(rig.quota_in_force(&path), (40_000, 100_000));
    rig.reset(&foreign);
    assert!(are_fair(&[guest.pid()]));
    guest.kill_hard();
    rig.assert_nothing_left();
}

/// A process with the policy SCHED_IDLE that starts two others on request.
fn idle_family(rig: &Rig, group: &CpuGroup, signal: &str) -> Running {
    let script = r#"until [ -e "$0" ]; do sleep 0.1; done; sleep 100000 & sleep 100000 & wait"#;
    let family = rig.host.start_in(group, ["sh", "-c", script, signal]);
    tasks::set_policy(family.pid(), libc::SCHED_IDLE).unwrap();
    family
}

#[test]
fn tasks_and_their_children_get_their_former_policy_back() {
    let rig = with_command();
    let foreign = rig.group("foreign");
    let scratch = tempfile::tempdir().unwrap();
    let signal = scratch.path().join("signal");
    let family = idle_family(&rig, &foreign, &signal.to_string_lossy());
    rig.set(&foreign, "");
    assert!(are_scheduled(&[family.pid()]));
    fs::write(&signal, "").unwrap();
    wait_until("its children are there", || {
        tasks_below(&foreign).len() == 3 && are_scheduled(&tasks_below(&foreign))
    });
    rig.reset(&foreign);
    let tids = tasks_below(&foreign);
    let policies = tids.iter().map(|tid| tasks::policy_number(*tid));
    let all_idle = policies.flatten().all(|policy| policy == libc::SCHED_IDLE);
    assert!(tids.len() == 3 && all_idle, "{:?}", describe(&tids));
    kill_all(&tids);
    drop(family);
    rig.assert_nothing_left();
}
