//! Limits during and after a reload of the scheduler.

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::left_behind::slots_of;
use crate::rig::{SHORT, assert_quotas, rig};

/// Makes the kernel end the scheduler.
fn throw_out() {
    std::fs::write("/proc/sysrq-trigger", "S").unwrap();
}

#[test]
fn group_is_in_the_new_scheduler_as_soon_as_that_runs() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    let group = rig.host.batch("work");
    let scheduler = || rig.host.show("work")["statistics"]["scheduler"].clone();
    // Only the owner keeps the group.
    work.send(Signal::SIGSTOP);
    throw_out();
    wait_until("it is loaded again", SHORT, || {
        let now = scheduler();
        now["state"] == "running" && now["nr_reloads"] == 1
    });
    assert_eq!(slots_of(&rig, &group), 1);
    assert_quotas("in the new scheduler", &[&group], &[30.0]);
    wait_until("the counters go on", SHORT, || {
        let quota = &rig.host.show("work")["statistics"]["quota"];
        quota["nr_periods"].as_u64().unwrap_or(0) >= 20
    });
    assert_eq!(slots_of(&rig, &group), 1);
    work.send(Signal::SIGCONT);
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn mode_all_reports_that_limits_of_normal_groups_are_not_in_force() {
    let rig = rig();
    let mut words = vec!["run", "--enforcer", "sched-ext", "--mode", "all"];
    words.extend([
        "--name",
        "work",
        "--quota",
        "30ms/100ms",
        "--",
        "sleep",
        "600",
    ]);
    let work = rig.host.start(words);
    wait_until("it runs", SHORT, || {
        rig.host.normal("work").is_populated().unwrap_or(false)
    });
    let scheduler = || rig.host.show("work")["statistics"]["scheduler"].clone();
    assert_eq!(scheduler()["state"], "running");
    assert!(scheduler().get("loss").is_none());
    throw_out();
    wait_until("it is shown", SHORT, || {
        let now = scheduler();
        let loss = now["loss"].as_str().unwrap_or_default();
        now["nr_reloads"] == 1 || loss.contains("no limit of a normal group holds")
    });
    wait_until("it is told", SHORT, || {
        let told = rig.owner_log();
        told.contains("no limit of a normal group holds")
            && told.contains("group work: its limits do not hold")
            && told.contains("group work: its limits hold again")
    });
    println!("{}", rig.owner_log());
    work.stop();
    rig.assert_nothing_left();
}
