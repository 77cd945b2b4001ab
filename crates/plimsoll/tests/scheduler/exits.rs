//! Exits of the scheduler by the kernel, and its reload.

use nix::sys::signal::Signal;

use crate::common::{Running, knob, wait_until};
use crate::rig::{Loan, rig, throw_out};

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
    // Meanwhile it stays in the background.
    assert_eq!(knob(&group.parent().unwrap(), "cpu.idle"), "1");
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
    let before = rig.quota("work").nr_periods;
    // Only the owner keeps the group.
    work.send(Signal::SIGSTOP);
    throw_out();
    expect_reload(&rig, 2);
    assert!(rig.quota("work").nr_periods > before, "the counters go on");
    work.send(Signal::SIGCONT);
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn the_next_owner_reports_an_exit_and_the_group_is_limited_again() {
    let (rig, work) = limited_group();
    rig.host.kill_owner();
    rig.batch_sleeper("other").stop();
    throw_out();
    expect_reload(&rig, 1);
    work.stop();
    rig.assert_nothing_left();
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
        told.contains("no limit holds, but batch groups")
            && told.contains("group work: its limits do not hold")
            && told.contains("group work: its limits hold again")
    });
    rig.wait_until_reloaded(1);
    assert_eq!(rig.scheduler().loss, None);
    work.stop();
    rig.assert_nothing_left();
}
