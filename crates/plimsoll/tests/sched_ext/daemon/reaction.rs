//! How soon batch cgroups of others make room for a main group, through the daemon.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use plimsoll_engine::cgroup::CpuGroup;

use super::{
    assert_never_ejected, jobs, main_with, remove_all, slots_of_groups, tell_cost,
    wait_until_scheduled,
};
use crate::common::{ms, nr_cpus, wait_until};
use crate::daemon_rig::{Daemon, SHORT};
use crate::rig::{all_cpus, burners, rig, stamped};

#[test]
fn batch_cgroups_make_room_within_5_ms_and_come_back_within_100_ms() {
    reaction(0);
}

#[test]
fn so_they_do_beside_200_others() {
    reaction(200);
}

/// Over the 100 ms that begin 5 ms after the main load has jumped, and 100 ms after it fell.
fn reaction(others: usize) {
    const STEPS: usize = 8;
    const ATTEMPTS: usize = 3;
    let Some(mut rig) = rig() else { return };
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let half = cpus / 2;
    let (main, job) = (rig.host.group("main"), rig.host.group("job-busy"));
    let idle = (0..others).map(|number| rig.host.base().child(&format!("job-{number}")));
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
    let over_100_ms = |wait: Duration| {
        thread::sleep(wait);
        let (start, before) = stamped(|| job.usage_ns().unwrap());
        thread::sleep(ms(100));
        let (end, after) = stamped(|| job.usage_ns().unwrap());
        100.0 * (after - before) as f64 / ((end - start).as_nanos() as f64 * cpus as f64)
    };
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let mut tries = Vec::new();
    // Of 70 % without main load, 20 % are left beside half of the CPUs. The machine's own work
    // takes a few.
    let good = (0..ATTEMPTS).any(|_| {
        let (mut free, mut jumped) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            load.send(Signal::SIGSTOP);
            free.push(over_100_ms(ms(100)));
            thread::sleep(ms(800));
            load.send(Signal::SIGCONT);
            jumped.push(over_100_ms(ms(5)));
            thread::sleep(ms(800));
        }
        println!("main gone: {free:.1?}; main back: {jumped:.1?}");
        let (free, jumped) = (median(free), median(jumped));
        tries.push((free, jumped));
        (60.0..=72.0).contains(&free) && (10.0..=22.0).contains(&jumped)
    });
    println!("batch work beside {others} others, percent with main gone and back: {tries:.1?}");
    assert!(good, "{tries:.1?}: {}", daemon.log());
    assert!(burners(&job).len() == cpus);
    tell_cost(&daemon);
    assert_never_ejected(&daemon);
    daemon.stop();
    load.kill_hard();
    side.kill_hard();
    remove_all(&idle);
    rig.assert_nothing_left();
}
