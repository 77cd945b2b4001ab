//! Exits of the scheduler by the kernel, and its reload.

use nix::sys::signal::Signal;

use crate::common::{Running, command_of, knob, threads_of, wait_until};
use crate::daemon::jobs;
use crate::daemon_rig::{Daemon, quota_us, shown};
use crate::rig::{Loan, Rig, rig, state, throw_out};

/// A group with a quota, and its command.
fn limited_group() -> (Loan, Running) {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    (rig, work)
}

/// Panics unless the owner reports the exit, and then the group is in the new scheduler.
fn expect_reload(rig: &Loan, nr_reloads: u64) {
    let group = rig.host.batch("work");
    wait_until("the exit is reported", || {
        rig.owner_log().matches("thrown out").count() as u64 == nr_reloads
    });
    let log = rig.owner_log().to_lowercase();
    assert!(log.contains("sysrq"), "{log}");
    // Meanwhile it stays in the background, and its file has its quota.
    assert_eq!(knob(&group.parent().unwrap(), "cpu.idle"), "1");
    assert_eq!(quota_us(&group), 30_000);
    rig.wait_until_reloaded(nr_reloads);
    // The slot of a command that has just ended may be there some seconds longer.
    wait_until("no other group has a slot", || rig.nr_slots() == 1);
    rig.wait_until_scheduled(&group);
    rig.assert_quota("work", 30_000, 100_000);
}

#[test]
fn an_exit_by_sysrq_is_reported_and_the_group_is_limited_again() {
    let (rig, work) = limited_group();
    throw_out();
    expect_reload(&rig, 1);
    let counts = || {
        let now = rig.statistics("work");
        [
            now.quota.unwrap().nr_periods,
            now.batch.unwrap().total.run_usec,
        ]
    };
    wait_until("it has run for a second", || counts()[1] > 1_000_000);
    let before = counts();
    // Only the owner keeps the group.
    work.send(Signal::SIGSTOP);
    throw_out();
    expect_reload(&rig, 2);
    let after = counts();
    assert!(after[0] > before[0] && after[1] > before[1], "they go on");
    work.send(Signal::SIGCONT);
    work.stop();
}

#[test]
fn the_next_owner_reports_an_exit_and_the_group_is_limited_again() {
    let (rig, work) = limited_group();
    rig.host.kill_owner();
    rig.batch_sleeper("other").stop();
    throw_out();
    expect_reload(&rig, 1);
    work.stop();
}

#[test]
fn groups_that_come_change_and_end_while_it_is_loaded_again_are_as_asked() {
    let (rig, work) = limited_group();
    let [comes, ends] = ["comes", "ends"].map(|name| rig.group(name));
    rig.set(&ends, "");
    throw_out();
    wait_until("the exit is reported", || {
        rig.owner_log().contains("thrown out")
    });
    rig.reset(&ends);
    let mut quota_ms = 30;
    // Changes come while the owner waits, while the kernel verifies, and while it attaches.
    loop {
        quota_ms = 50 - quota_ms;
        let quota = format!("{quota_ms}ms/100ms");
        rig.host.run(["set", "work", "--quota", &quota]).good();
        rig.set(&comes, &format!("--quota {quota}"));
        if rig.scheduler().state == "running" {
            break;
        }
    }
    rig.wait_until_reloaded(1);
    assert_eq!(rig.nr_slots(), 2);
    rig.assert_quota("work", quota_ms * 1000, 100_000);
    let in_force = rig.quota_in_force(&shown(&comes));
    assert_eq!(in_force, (quota_ms * 1000, 100_000));
    rig.reset(&comes);
    work.stop();
}

#[test]
fn the_guard_is_attached_while_no_scheduler_is_loaded() {
    let (rig, work) = limited_group();
    let guard = || rig.host.owner().expect("an owner runs").daemon.guard;
    assert!(guard().is_none(), "the fair class has no tasks");
    let is_attached = || {
        // Loading may be faster than the owner is asked.
        if state() == "enabled" {
            throw_out();
        }
        guard().is_some_and(|guard| guard.problem.is_none())
    };
    wait_until("the guard is attached", is_attached);
    wait_until("it is detached again", || {
        state() == "enabled" && guard().is_none()
    });
    work.stop();
}

/// Has the kernel end the scheduler. Returns while the owner loads it again, or at the latest when it
/// has.
fn throw_out_until_it_is_loaded(rig: &Rig) {
    let owner = rig.host.owner_pid();
    throw_out();
    let is_loading = |tid: &i32| command_of(*tid).as_deref() == Some("load");
    wait_until("the scheduler is loaded again", || {
        threads_of(owner).iter().any(is_loading) || rig.scheduler().nr_reloads > 0
    });
}

#[test]
fn nothing_is_left_if_the_last_group_ends_while_the_scheduler_is_loaded() {
    let (rig, work) = limited_group();
    throw_out_until_it_is_loaded(&rig);
    work.stop();
}

#[test]
fn a_reload_goes_to_the_stock_kernel_while_the_scheduler_is_loaded() {
    let rig = rig();
    let job = rig.group("job-1");
    let load = rig.fair_burners(&job, 1, 1);
    let groups = jobs(&rig, "quota = \"30ms/100ms\"");
    let text_of = |enforcer: &str| format!("enforcer = \"{enforcer}\"\n{groups}");
    let daemon = Daemon::start(rig.host, &text_of("sched-ext"));
    rig.wait_until_scheduled(&job);
    throw_out_until_it_is_loaded(&rig);
    daemon.reload_with(&text_of("cgroup"));
    assert_eq!(quota_us(&job), 30_000);
    wait_until("it is unloaded", || state() == "disabled");
    daemon.stop();
    load.kill_hard();
}

#[test]
fn it_reports_that_limits_of_normal_groups_are_not_in_force() {
    let rig = rig();
    let knobs = "--enforcer sched-ext --quota 30ms/100ms";
    let work = rig.host.sleeper("work", knobs);
    assert_eq!(rig.scheduler().state, "running");
    assert_eq!(rig.scheduler().loss, None);
    throw_out();
    wait_until("the loss is told", || {
        let told = rig.owner_log();
        told.contains("hold, and batch groups")
            && told.contains("group work: its limits, but for a quota")
            && told.contains("group work: its limits hold again")
    });
    rig.wait_until_reloaded(1);
    assert_eq!(rig.scheduler().loss, None);
    work.stop();
}
