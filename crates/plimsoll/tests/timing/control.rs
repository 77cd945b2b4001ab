//! SPEC 3, reaction: the controller of headroom goes on while the service is busy.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Host, nr_cpus, wait_until};
use crate::measured::assert_within;
use crate::rig::{Daemon, SHORT, of_cgroup, quota_us, rule, shown};

/// Number of processes that are moved at once.
fn nr_processes() -> usize {
    match std::env::var_os("PLIMSOLL_TEST_LONG") {
        Some(_) => 10_000,
        None => 1_000,
    }
}

const LATE_USEC: u64 = 10_000;

/// Number of times that the control loop has run.
pub fn times_run(daemon: &Daemon) -> f64 {
    let delays = daemon.state().daemon.control_delay;
    delays.counts.iter().sum::<u64>() as f64
}

/// Number of times that the control loop was late.
pub fn times_late(daemon: &Daemon) -> f64 {
    let delays = daemon.state().daemon.control_delay;
    println!("{delays:?}");
    let in_time = delays
        .bounds_usec
        .partition_point(|bound| *bound <= LATE_USEC);
    delays.counts[in_time..].iter().sum::<u64>() as f64
}

#[test]
fn the_control_loop_is_never_10_ms_late_while_many_processes_or_a_fork_storm_are_moved() {
    let mut host = Host::alone();
    let (main, job) = (host.group("main"), host.group("job"));
    let threads = nr_cpus();
    let burners = host.start_load_in(&job, &format!("burn --threads {threads} --duration 600s"));
    let text = rule("main", &of_cgroup(&shown(&main)), "headroom = \"30%\"")
        + &rule("jobs", &of_cgroup(&shown(&job)), "class = \"batch\"");
    let daemon = Daemon::start(&host, &text);
    wait_until("it is limited", SHORT, || quota_us(&job) > 0);
    let before = times_late(&daemon);

    let many_processes = nr_processes();
    let script =
        format!("i=0; while [ $i -lt {many_processes} ]; do sleep 600 & i=$((i+1)); done; wait");
    let many = host.start([
        "run", "--name", "many", "--weight", "50", "--", "sh", "-c", &script,
    ]);
    let group = host.normal("many");
    let are_there = || {
        group
            .all_processes()
            .is_ok_and(|all| all.len() > many_processes)
    };
    wait_until("all are there", Duration::from_secs(120), are_there);
    let start = Instant::now();
    let knobs = "--class batch --cap 50% --quota 80ms/100ms";
    host.run(["set", "many"].into_iter().chain(knobs.split(' ')))
        .good();
    println!(
        "{many_processes} processes were moved in {:?}",
        start.elapsed()
    );
    let moved = &host.show("many")["statistics"]["processes"];
    assert!(moved.as_u64() > Some(many_processes as u64), "{moved}");
    assert_within(
        "late while many are moved",
        times_late(&daemon) - before,
        0.0,
        0.0,
    );

    let load = "storm --processes 100000 --parallel 8 --cpu-each 1ms";
    let storm = host.start_load("--name storm --weight 50", load);
    let group = host.normal("storm");
    wait_until("it storms", SHORT, || {
        group.all_processes().is_ok_and(|all| all.len() > 4)
    });
    let start = Instant::now();
    host.run(["set", "storm"].into_iter().chain(knobs.split(' ')))
        .good();
    println!("the storm was moved in {:?}", start.elapsed());
    assert_within(
        "late while a storm is moved",
        times_late(&daemon) - before,
        0.0,
        0.0,
    );

    storm.kill_hard();
    many.kill_hard();
    let batch = host.batch("any").parent().unwrap();
    for pid in batch.all_processes().unwrap() {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    wait_until("both have ended", SHORT, || {
        batch.all_processes().map_or(true, |all| all.is_empty())
    });
    daemon.stop();
    burners.kill_hard();
}
