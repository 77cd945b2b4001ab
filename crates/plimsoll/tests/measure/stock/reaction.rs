//! SPEC 3, reaction: by quotas, 30 ms after a jump of the service load.

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, nr_cpus, wait_until};
use crate::daemon_rig::{Daemon, is_idle, of_cgroup, quota_us, remove_group, rule, shown};
use crate::meter::start_side;
use crate::reaction::{QUOTAS, measure};

/// The load of one CPU of two.
fn half() -> String {
    format!("burn --threads {} --duration 80000s", nr_cpus().div_ceil(2))
}

#[test]
fn reaction_under_run() {
    let mut host = Host::new();
    let main = host.group("main");
    let load = host.start_load_in(&main, &half());
    let _side = start_side(&host, "side", "30%", "");
    measure(QUOTAS, &load, &main, &host.batch("side"));
    load.kill_hard();
}

fn under_a_daemon(others: usize) {
    let mut host = Host::new();
    let (main, job) = (host.group("main"), host.group("job-busy"));
    let other = |number| host.base().child(format!("job-{number}"));
    let idle: Vec<CpuGroup> = (0..others).map(other).collect();
    idle.iter().for_each(|group| group.create().unwrap());
    let load = host.start_load_in(&main, &half());
    let burners = format!("burn --threads {} --duration 80000s", nr_cpus());
    let side = host.start_load_in(&job, &burners);
    let jobs = of_cgroup(&format!("{}/job-*", host.base_path()));
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule("jobs", &jobs, "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    wait_until("all are in force", || {
        idle.iter().all(is_idle) && quota_us(&job) > 0
    });
    measure(QUOTAS, &load, &main, &job);
    daemon.stop();
    load.kill_hard();
    side.kill_hard();
    idle.iter().for_each(remove_group);
}

#[test]
fn reaction_under_a_daemon() {
    under_a_daemon(0);
}

#[test]
fn reaction_under_a_daemon_with_200_idle_groups() {
    under_a_daemon(200);
}
