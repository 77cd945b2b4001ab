//! Headroom in the kernel's scheduler, by its own counters, and its reaction.

use plimsoll_cgroupfs::CpuGroup;

use crate::clock::sleep_ms;
use crate::common::{nr_cpus, wait_until};
use crate::daemon_rig::{Daemon, of_cgroup, remove_group, rule, shown};
use crate::figure::{SPEC_3, near};
use crate::reaction::{SCHED_EXT, measure};
use crate::scheduler_rig::{all_cpus, rig};

#[test]
fn headroom_table() {
    let rig = rig();
    let main = rig.group("main");
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), nr_cpus());
    let tolerance = 1.0 / nr_cpus() as f64;
    // The first seconds of the counters have the work of loading the scheduler.
    sleep_ms(2_000);
    for percent in [0, 20, 30, 40, 50, 60, 70, 80] {
        let load = (percent > 0).then(|| {
            let load = format!("steady --percent {percent} --duration 80000s");
            rig.fair_load(&main, all_cpus(), &load)
        });
        // The counters are those of the last second.
        sleep_ms(2_200);
        let counters = &rig.host.show("side")["statistics"]["headroom"];
        let share = |name: &str| counters[name].as_f64().unwrap() / 1e4;
        // Normal work, including timers and kernel threads.
        let (batch, normal) = (share("side_ppm"), share("nonside_ppm"));
        let lawful = 100.0 - normal - (70.0 - normal).max(tolerance);
        let what = format!("idle time beside a service load of {percent} %");
        let idle = 100.0 - batch - normal;
        SPEC_3.figure(&what, idle, "% of the machine", near(lawful, 2.0));
        if let Some(load) = load {
            load.kill_hard();
        }
    }
    rig.assert_never_ejected();
    side.stop();
}

#[test]
fn reaction_under_run() {
    let rig = rig();
    let half = nr_cpus() / 2;
    let main = rig.group("main");
    let load = rig.fair_burners(&main, (1 << half) - 1, half);
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), nr_cpus());
    measure(SCHED_EXT, &load, &main, &rig.host.batch("side"));
    load.kill_hard();
    side.stop();
}

/// Reaction of a foreign batch cgroup beside 200 idle ones.
#[test]
fn reaction_under_a_daemon_with_200_idle_groups() {
    let rig = rig();
    let cpus = nr_cpus();
    let half = cpus / 2;
    let (main, job) = (rig.group("main"), rig.group("job-busy"));
    let idle = (0..200).map(|number| rig.host.base().child(format!("job-{number}")));
    let idle: Vec<CpuGroup> = idle.collect();
    idle.iter().for_each(|group| group.create().unwrap());
    let load = rig.fair_burners(&main, (1 << half) - 1, half);
    let side = rig.fair_burners(&job, all_cpus(), cpus);
    let jobs = of_cgroup(&format!("{}/job-*", rig.host.base_path()));
    let text = "enforcer = \"sched-ext\"\n".to_owned()
        + &rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule("jobs", &jobs, "class = \"batch\"");
    let mut daemon = Daemon::start(rig.host, &text);
    rig.wait_until_scheduled(&job);
    wait_until("all are in force", || rig.nr_slots() == idle.len() + 2);
    measure(SCHED_EXT, &load, &main, &job);
    rig.assert_never_ejected();
    daemon.end();
    load.kill_hard();
    side.kill_hard();
    idle.iter().for_each(remove_group);
}
