//! Tasks of the scheduler, and its complete removal.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{is_alive, ms, tasks_below, threads_of, wait_until};
use crate::rig::{
    SHORT, are_fair, are_scheduled, binary_word, burners, describe, rig, wait_for_threads,
};

/// Time until a task that enters or leaves a group has its policy.
const MOVED_MAX: Duration = Duration::from_millis(100);

#[test]
fn threads_and_forked_and_executed_children_are_scheduled() {
    let rig = rig();
    let script = r#""$0" load burn --threads 2 --duration 60s &
        "$0" load burn --threads 2 --processes --duration 60s &
        sh -c 'exec sleep 60' & wait"#;
    let work = rig.batch("family", "", &["sh", "-c", script, &binary_word()]);
    let group = rig.host.batch("family");
    // The shell, two loads with two burners each, and the sleeper.
    wait_until("all are there", SHORT, || {
        tasks_below(&group).len() >= 8 && burners(&group).len() == 2
    });
    let tids = tasks_below(&group);
    println!("{} tasks", tids.len());
    // The sweep finds a task within 100 ms; here all inherit the policy.
    assert!(are_scheduled(&tids), "{:?}", describe(&tids));
    // No other is.
    assert!(are_fair(&threads_of(work.pid())));
    rig.assert_never_ejected("family");
    rig.end("family", work);
    rig.assert_nothing_left();
}

#[test]
fn moved_process_gets_the_policy_until_it_leaves() {
    let mut rig = rig();
    let elsewhere = rig.host.group("elsewhere");
    let work = rig.batch("work", "", &["sleep", "600"]);
    let group = rig.host.batch("work");
    wait_until("it runs", SHORT, || group.is_populated().unwrap_or(false));
    let guest = rig.fair_load(&elsewhere, 1, "burn --threads 3 --duration 600s");
    let tids = wait_for_threads(guest.pid(), 4);
    let time_until = |holds: &dyn Fn() -> bool| {
        let start = Instant::now();
        wait_until("its policy has changed", SHORT, holds);
        start.elapsed()
    };
    let (mut came, mut left) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        group.add_process(guest.pid()).unwrap();
        came.push(time_until(&|| are_scheduled(&tids)));
        elsewhere.add_process(guest.pid()).unwrap();
        left.push(time_until(&|| are_fair(&tids)));
    }
    println!("scheduled after {came:.1?}, fair again after {left:.1?}");
    let all = came.iter().chain(&left);
    assert!(all.max() < Some(&MOVED_MAX), "{came:.1?}, {left:.1?}");
    guest.kill_hard();
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn a_released_group_leaves_nothing_in_the_kernel_and_its_tasks_are_fair() {
    let rig = rig();
    let knobs = "--quota 50ms/100ms --cpu-limit 80% --tolerance 3ms/100ms";
    let script = "sleep 60 & sleep 60 & exit 0";
    let work = rig.batch("family", knobs, &["sh", "-c", script]);
    wait_until("it says that it stays", SHORT, || {
        work.stderr().contains("run on")
    });
    let left = rig.host.batch("family").all_processes().unwrap();
    assert_eq!(left.len(), 2);
    assert!(are_scheduled(&left));
    work.stop().good();
    for pid in &left {
        assert!(is_alive(*pid));
    }
    assert!(are_fair(&left));
    rig.assert_nothing_left();
    for pid in left {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[test]
fn after_kill_9_of_the_owner_restore_undoes_everything() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 20ms/100ms --tolerance 5ms/100ms", 1, 2);
    let group = rig.host.batch("work");
    // The ext servers follow within the supervisor's 50 ms.
    thread::sleep(ms(500));
    let tids = tasks_below(&group);
    assert!(are_scheduled(&tids));
    rig.host.kill_owner();
    // Fail static: the tasks stay in SCHED_EXT, with `cpu.idle`.
    assert!(are_scheduled(&tids), "{:?}", describe(&tids));
    assert!(group.is_populated().unwrap());
    assert!(group.parent().unwrap().read_idle().unwrap());
    let said = rig.host.run(["restore"]).good();
    println!("{}", said.stdout.trim_end());
    assert!(tids.iter().all(|tid| is_alive(*tid)));
    assert!(are_fair(&tids), "{said:?}");
    rig.assert_nothing_left();
    work.stop();
}
