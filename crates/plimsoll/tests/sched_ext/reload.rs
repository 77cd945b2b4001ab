//! What holds while the scheduler is loaded again, and from when on it holds.

use nix::sys::signal::Signal;

use crate::common::wait_until;
use crate::left_behind::slots_of;
use crate::rig::{SHORT, assert_quotas, rig};

/// Has the kernel throw the scheduler out.
fn throw_out() {
    std::fs::write("/proc/sysrq-trigger", "S").unwrap();
}

#[test]
fn groups_are_in_the_new_scheduler_before_their_keepers_have_looked() {
    let rig = rig();
    let lead = rig.batch("lead", "", &["sleep", "600"]);
    wait_until("it leads", SHORT, || {
        rig.host.batch("lead").is_populated().unwrap_or(false)
    });
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    let group = rig.host.batch("work");
    // From here on it looks after nothing.
    work.send(Signal::SIGSTOP);
    throw_out();
    wait_until("it is loaded again", SHORT, || {
        let shown = rig.host.show("lead");
        let scheduler = &shown["statistics"]["scheduler"];
        scheduler["state"] == "running" && scheduler["nr_reloads"] == 1
    });
    assert_eq!(slots_of(&rig, &group), 1);
    let limited = |when: &str| assert_quotas(when, &[&group], &[30.0]);
    limited("without its keeper");
    work.send(Signal::SIGCONT);
    wait_until("it counts on", SHORT, || {
        let quota = &rig.host.show("work")["statistics"]["quota"];
        quota["nr_periods"].as_u64().unwrap_or(0) >= 20
    });
    assert_eq!(slots_of(&rig, &group), 1);
    limited("with its keeper");
    work.stop();
    lead.stop();
    rig.assert_nothing_left();
}

#[test]
fn in_mode_all_it_is_told_that_limits_of_normal_groups_do_not_hold() {
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
        let told = work.stderr();
        told.contains("no limit of a normal group holds")
            && told.contains("group work: its limits do not hold")
            && told.contains("group work: its limits hold again")
    });
    println!("{}", work.stderr().trim_end());
    work.stop();
    rig.assert_nothing_left();
}
