//! SPEC 3, reaction: idle time is back at the headroom within 30 ms of a jump of the service load,
//! and batch work uses the free time within 100 ms of its fall.

use plimsoll_cgroupfs::CpuGroup;

use crate::common::reaction::{QUOTAS, is_prompt};
use crate::common::{Host, nr_cpus, wait_until};
use crate::measured::start_side;
use crate::rig::{Daemon, SHORT, is_idle, of_cgroup, quota_us, remove_group, rule, shown};

/// The load of one CPU of two.
fn half() -> String {
    format!("burn --threads {} --duration 600s", nr_cpus().div_ceil(2))
}

#[test]
fn idle_time_is_back_30_ms_and_room_100_ms_after_the_load_changes_under_run() {
    let mut host = Host::alone();
    let main = host.group("main");
    let load = host.start_load_in(&main, &half());
    let side = start_side(&host, "side", "30%", "");
    let found = is_prompt(QUOTAS, &load, &main, &host.batch("side"));
    load.kill_hard();
    side.stop();
    assert_eq!(found, [true; 2]);
}

fn under_a_daemon(others: usize) -> [bool; 2] {
    let mut host = Host::alone();
    let cpus = nr_cpus();
    let (main, job) = (host.group("main"), host.group("job-busy"));
    let other = |number| host.base().child(format!("job-{number}"));
    let idle: Vec<CpuGroup> = (0..others).map(other).collect();
    idle.iter().for_each(|group| group.create().unwrap());
    let load = host.start_load_in(&main, &half());
    let side = host.start_load_in(&job, &format!("burn --threads {cpus} --duration 600s"));
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule(
            "jobs",
            &of_cgroup(&format!("{}/job-*", host.base_path())),
            "class = \"batch\"",
        );
    let daemon = Daemon::start(&host, &text);
    wait_until("all are in force", SHORT, || {
        idle.iter().all(is_idle) && quota_us(&job) > 0
    });
    let found = is_prompt(QUOTAS, &load, &main, &job);
    println!("{:?}", daemon.state().daemon.control_delay);
    daemon.stop();
    load.kill_hard();
    side.kill_hard();
    idle.iter().for_each(remove_group);
    found
}

#[test]
fn idle_time_is_back_30_ms_and_room_100_ms_after_the_load_changes_under_a_daemon() {
    assert_eq!(under_a_daemon(0), [true; 2]);
}

#[test]
fn idle_time_is_back_30_ms_and_room_100_ms_after_the_load_changes_beside_200_idle_groups() {
    assert_eq!(under_a_daemon(200), [true; 2]);
}
