//! Reaction of foreign batch cgroups to a service under a daemon.

use plimsoll_cgroupfs::CpuGroup;

use super::{
    assert_never_ejected, jobs, main_with, remove_all, slots_of_groups, wait_until_scheduled,
};
use crate::common::reaction::{SCHED_EXT, is_prompt};
use crate::common::{nr_cpus, wait_until};
use crate::daemon_rig::{Daemon, SHORT};
use crate::rig::{all_cpus, burners, rig};

#[test]
fn batch_cgroups_yield_within_5_ms_and_resume_within_100_ms() {
    reaction(0);
}

#[test]
fn batch_cgroups_yield_within_5_ms_beside_200_others() {
    reaction(200);
}

/// Number of idle batch groups of the daemon.
fn reaction(others: usize) {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let half = cpus / 2;
    let (main, job) = (rig.host.group("main"), rig.host.group("job-busy"));
    let idle = (0..others).map(|number| rig.host.base().child(format!("job-{number}")));
    let idle: Vec<CpuGroup> = idle.collect();
    idle.iter().for_each(|group| group.create().unwrap());
    let load = rig.fair_burners(&main, (1 << half) - 1, half);
    let side = rig.fair_burners(&job, all_cpus(), cpus);
    let text_of = main_with(&main, "30%") + &jobs(&rig, "");
    let daemon = Daemon::start(&rig.host, &text_of);
    wait_until("all are in force", SHORT, || {
        slots_of_groups(&rig) == others + 1
    });
    wait_until_scheduled(&daemon, &job);
    assert_eq!(is_prompt(SCHED_EXT, &load, &main, &job), [true; 2]);
    assert!(burners(&job).len() == cpus);
    assert_never_ejected(&daemon);
    daemon.stop();
    load.kill_hard();
    side.kill_hard();
    remove_all(&idle);
    rig.assert_nothing_left();
}
