//! Foreign cgroups that start and end under a daemon.

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::enforcer::EnforcerKind;

use crate::common::{Running, wait_for, wait_until};
use crate::daemon::{jobs, with_class};
use crate::daemon_rig::{Daemon, is_idle, quota_us, remove_group, rule_of, shown};
use crate::rig::{Loan, rig};

/// Ends the daemon, and then the processes. Panics unless nothing is left.
fn finish(rig: &Loan, daemon: Daemon<'_>, processes: impl IntoIterator<Item = Running>) {
    rig.assert_never_ejected();
    daemon.stop();
    processes.into_iter().for_each(Running::kill_hard);
}

#[test]
fn batch_and_normal_cgroups_are_scheduled() {
    let rig = rig();
    let (early, web) = (rig.group("job-early"), rig.group("web"));
    let before = rig.fair_burners(&early, 1, 1);
    let beside = rig.fair_burners(&web, 2, 1);
    let knobs = "nice = 3, quota = \"20ms/100ms\", burst = \"100ms\"";
    let rules = jobs(&rig, "") + &rule_of("web", &web, knobs);
    let daemon = Daemon::start(rig.host, &rules);
    rig.wait_until_scheduled(&early);
    let late = rig.host.base().child("job-late");
    late.create().unwrap();
    wait_until("it is in force", || is_idle(&late));
    let after = rig.fair_burners(&late, 2, 1);
    rig.wait_until_scheduled(&late);
    rig.wait_until_scheduled(&web);
    rig.assert_quota(&shown(&web), 20_000, 100_000);
    assert!(!is_idle(&web) && quota_us(&web) == -1);
    // Beside it, a command of root's joins the same scheduler.
    let own = rig.batch_burners("own", "", 1, 1);
    rig.wait_until_scheduled(&rig.host.batch("own"));
    assert_eq!(rig.nr_slots(), 4);
    let state = rig.state();
    assert_eq!(state.daemon.enforcer, EnforcerKind::SchedExt);
    let owner = i64::from(state.scheduler.unwrap().owner_pid);
    assert_eq!(owner, i64::from(daemon.pid()));
    wait_until("its time is counted", || {
        let statistics = rig.statistics(&shown(&late));
        statistics.batch.unwrap().total.run_usec > 0
    });
    rig.end("own", own);
    after.kill_hard();
    remove_group(&late);
    wait_until("it is forgotten", || daemon.group(&shown(&late)).is_none());
    wait_until("its slot is free", || rig.nr_slots() == 2);
    finish(&rig, daemon, [before, beside]);
}

#[test]
fn a_reload_changes_a_quota_and_is_refused_if_the_stock_kernel_has_no_such_burst() {
    let rig = rig();
    let job = rig.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let quota = |ms: u32| {
        let knobs = format!("quota = \"{ms}ms/100ms\", burst = \"250ms\"");
        jobs(&rig, &knobs)
    };
    let name = shown(&job);
    let daemon = Daemon::start(rig.host, "");
    for ms in [10, 20] {
        daemon.reload_with(&quota(ms));
        rig.wait_until_scheduled(&job);
        assert_eq!(quota_us(&job), -1, "the scheduler does it");
        rig.assert_quota(&name, u64::from(ms) * 1_000, 100_000);
    }
    let group = daemon.group(&name).unwrap();
    assert!(group.problem.is_none(), "{group:?}");
    // Limits that the stock kernel has not are reported when it is to take over.
    daemon.write(&format!("enforcer = \"cgroup\"\n{}", quota(20)));
    let refused = daemon.reload();
    assert_ne!(refused.code(), 0);
    assert!(refused.stderr.contains("burst"), "{refused:?}");
    rig.wait_until_scheduled(&job);
    rig.assert_quota(&name, 20_000, 100_000);
    rig.assert_never_ejected();
    daemon.reload_with("");
    wait_until("it is an ordinary cgroup", || !is_idle(&job));
    daemon.stop();
    load.kill_hard();
}

#[test]
fn slots_of_removed_cgroups_are_reused() {
    let rig = rig();
    let keeper = rig.group("job-0");
    let daemon = Daemon::start(rig.host, &jobs(&rig, ""));
    rig.wait_until_scheduled(&keeper);
    let path = shown(&keeper);
    let refused = rig
        .host
        .run(["set", &path, "--enforcer", "cgroup", "--cap", "9%"]);
    assert!(refused.refusal().contains("allowed: auto, sched-ext"));
    let job = rig.host.base().child("job-1");
    let mut slots = Vec::new();
    for _ in 0..3 {
        job.create().unwrap();
        wait_until("it is in force", || is_idle(&job));
        slots.push(wait_for("its slot", || rig.slot(&job))["slot"].clone());
        remove_group(&job);
        wait_until("it is forgotten", || daemon.group(&shown(&job)).is_none());
    }
    assert!(slots.iter().all(|slot| *slot == slots[0]), "{slots:?}");
    finish(&rig, daemon, []);
}

#[test]
fn nested_cgroup_belongs_to_a_later_parent_but_not_to_its_successor() {
    let rig = rig();
    let outer = rig.group("outer");
    outer.enable_children().unwrap();
    let (inner, other) = (rig.group("outer/inner"), rig.group("other"));
    let loads = [
        rig.fair_burners(&inner, 1, 1),
        rig.fair_burners(&other, 2, 1),
    ];
    let of = |group: &CpuGroup, percent: u32| {
        let knobs = with_class(&format!("quota = \"{percent}ms/100ms\""));
        rule_of(&format!("of-{percent}"), group, &knobs)
    };
    let slot_of = |group: &CpuGroup| rig.slot(group).unwrap()["slot"].as_u64();
    let parent_of = |group: &CpuGroup| rig.slot(group).unwrap()["parent"].as_u64();
    let daemon = Daemon::start(rig.host, &of(&inner, 20));
    rig.wait_until_scheduled(&inner);
    assert_eq!(parent_of(&inner), None);
    rig.assert_quota(&shown(&inner), 20_000, 100_000);
    daemon.reload_with(&(of(&inner, 20) + &of(&outer, 10)));
    assert_eq!(parent_of(&inner), slot_of(&outer));
    rig.assert_quota(&shown(&outer), 10_000, 100_000);
    // The other cgroup takes the place of the group that has ended.
    daemon.reload_with(&of(&inner, 20));
    assert!(rig.is_scheduled(&inner), "no gap is left");
    daemon.reload_with(&(of(&inner, 20) + &of(&other, 15)));
    rig.wait_until_scheduled(&other);
    assert_eq!(parent_of(&inner), None);
    rig.assert_quota(&shown(&inner), 20_000, 100_000);
    rig.assert_quota(&shown(&other), 15_000, 100_000);
    assert_eq!(rig.nr_slots(), 2);
    finish(&rig, daemon, loads);
}
