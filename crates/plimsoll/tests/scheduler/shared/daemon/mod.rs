//! Foreign cgroups that start and end under a daemon, which follows another file in each test.

use plimsoll_engine::enforcer::EnforcerKind;

use super::with_daemon;
use crate::common::{wait_for, wait_until};
use crate::daemon::jobs;
use crate::daemon_rig::{is_idle, quota_us, remove_group, rule_of, shown};
use crate::rig::{Rig, state};

mod nested;

/// Has the daemon follow a file without groups of a test. Panics unless nothing is left.
fn finish(rig: &Rig) {
    rig.assert_never_ejected();
    rig.reload("");
    rig.assert_nothing_left();
}

#[test]
fn batch_and_normal_cgroups_are_scheduled() {
    let rig = with_daemon();
    let (early, web) = (rig.group("job-early"), rig.group("web"));
    let before = rig.fair_burners(&early, 1, 1);
    let beside = rig.host.start_in(&web, ["sleep", "100000"]);
    rig.reload(&(jobs(&rig, "") + &rule_of("web", &web, "nice = 3")));
    assert_eq!(state(), "enabled");
    rig.wait_until_scheduled(&early);
    let late = rig.host.base().child("job-late");
    late.create().unwrap();
    wait_until("it is in force", || is_idle(&late));
    let after = rig.fair_burners(&late, 2, 1);
    rig.wait_until_scheduled(&late);
    rig.wait_until_scheduled(&web);
    assert!(!is_idle(&web));
    // Beside it, a command of root's joins the same scheduler.
    let own = rig.batch_burners("own", "", 1, 1);
    rig.wait_until_scheduled(&rig.host.batch("own"));
    assert_eq!(rig.nr_slots(), 4);
    let state = rig.state();
    assert_eq!(state.daemon.enforcer, EnforcerKind::SchedExt);
    let owner = i64::from(state.scheduler.unwrap().owner_pid);
    assert_eq!(owner, i64::from(rig.daemon().pid()));
    wait_until("its time is counted", || {
        let statistics = rig.statistics(&shown(&late));
        statistics.batch.unwrap().total.run_usec > 0
    });
    rig.end("own", own);
    after.kill_hard();
    remove_group(&late);
    wait_until("it is forgotten", || {
        rig.daemon().group(&shown(&late)).is_none()
    });
    wait_until("its slot is free", || rig.nr_slots() == 2);
    rig.reload("");
    before.kill_hard();
    beside.kill_hard();
    finish(&rig);
}

#[test]
fn a_reload_changes_a_quota_and_is_refused_if_the_stock_kernel_has_no_such_burst() {
    let rig = with_daemon();
    let job = rig.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let quota = |ms: u32| {
        let knobs = format!("quota = \"{ms}ms/100ms\", burst = \"250ms\"");
        jobs(&rig, &knobs)
    };
    let name = shown(&job);
    for ms in [10, 20] {
        rig.reload(&quota(ms));
        rig.wait_until_scheduled(&job);
        assert_eq!(quota_us(&job), -1, "the scheduler does it");
        rig.assert_quota(&name, u64::from(ms) * 1_000, 100_000);
    }
    let group = rig.daemon().group(&name).unwrap();
    assert!(group.problem.is_none(), "{group:?}");
    // Limits that the stock kernel has not are reported when it is to take over.
    let stock = format!("enforcer = \"cgroup\"\n{}", rig.file(&quota(20)));
    rig.daemon().write(&stock);
    let refused = rig.daemon().reload();
    assert_ne!(refused.code(), 0);
    assert!(refused.stderr.contains("burst"), "{refused:?}");
    rig.wait_until_scheduled(&job);
    rig.assert_quota(&name, 20_000, 100_000);
    rig.reload("");
    wait_until("it is an ordinary cgroup", || !is_idle(&job));
    load.kill_hard();
    finish(&rig);
}

#[test]
fn slots_of_removed_cgroups_are_reused() {
    let rig = with_daemon();
    rig.reload(&jobs(&rig, ""));
    let job = rig.host.base().child("job-1");
    let mut slots = Vec::new();
    for _ in 0..3 {
        job.create().unwrap();
        wait_until("it is in force", || is_idle(&job));
        slots.push(wait_for("its slot", || rig.slot(&job))["slot"].clone());
        remove_group(&job);
        wait_until("it is forgotten", || {
            rig.daemon().group(&shown(&job)).is_none()
        });
    }
    assert!(slots.iter().all(|slot| *slot == slots[0]), "{slots:?}");
    finish(&rig);
}
