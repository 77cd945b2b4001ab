//! Tests that the oldest supported kernel with sched_ext, 6.18, has to pass as well.

use std::fs;
use std::hint::spin_loop;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use nix::unistd::gettid;

use crate::common::{
    Host, Offline, SetOnDrop, binary, bind, memory_folder, nr_cpus, on_cpus, wait_until,
    with_own_mounts,
};
use crate::rig::{all_cpus, burners, rig};

#[test]
fn commands_that_end_at_the_same_time_leave_nothing_each_time() {
    let rig = rig();
    for _ in 0..2 {
        let first = rig.batch_sleeper("first");
        let second = rig.batch_burners("second", "--quota 20ms/100ms", 1, 1);
        rig.assert_quota("second", 20_000, 100_000);
        rig.assert_never_ejected();
        for command in [&first, &second] {
            command.send(nix::sys::signal::Signal::SIGTERM);
        }
        for command in [first, second] {
            command.finish();
        }
    }
}

#[test]
fn the_next_owner_runs_tasks_behind_normal_work_that_never_sleeps() {
    let rig = rig();
    let fair = rig.group("fair");
    let work = rig.batch_burners("work", "", all_cpus(), nr_cpus());
    rig.host.kill_owner();
    rig.batch_sleeper("other").stop();
    let tids = burners(&rig.host.batch("work"));
    let rivals = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    rig.wait_until_all_run(&tids);
    rig.assert_never_ejected();
    rivals.kill_hard();
    work.stop();
}

/// The calling thread becomes a real-time one.
fn become_real_time() {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is valid for the call, which changes the calling thread only.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

fn send(to: &mut PipeWriter) {
    to.write_all(b"x").unwrap();
}

/// Whether one more byte comes.
fn receive(from: &mut PipeReader) -> bool {
    from.read(&mut [0]).unwrap() == 1
}

/// A task that may run anywhere is woken for the first CPU, and at once a real-time task takes this
/// CPU until the other one has run.
fn race_with_a_real_time_task() {
    const ROUNDS: u64 = 20;
    let cpus = nr_cpus();
    let runs = &AtomicU64::new(0);
    let ((mut its_calls, mut to_task), (mut acks, mut from_task)) =
        (pipe().unwrap(), pipe().unwrap());
    let ((mut calls, mut to_rival), (mut ends, mut from_rival)) =
        (pipe().unwrap(), pipe().unwrap());
    let (tell, told) = channel();
    on_cpus(0b10, || {
        thread::scope(|scope| {
            scope.spawn(move || {
                tell.send(gettid().as_raw()).unwrap();
                while receive(&mut its_calls) {
                    runs.fetch_add(1, Ordering::Relaxed);
                    send(&mut from_task);
                }
            });
            scope.spawn(move || {
                bind(0, 0..1).unwrap();
                become_real_time();
                let mut awaited = 2;
                while receive(&mut calls) {
                    while runs.load(Ordering::Relaxed) < awaited {
                        spin_loop();
                    }
                    awaited += 2;
                    send(&mut from_rival);
                }
            });
            let task = told.recv().unwrap();
            for _ in 0..ROUNDS {
                bind(task, 0..1).unwrap();
                send(&mut to_task);
                assert!(receive(&mut acks));
                bind(task, 0..cpus).unwrap();
                send(&mut to_task);
                send(&mut to_rival);
                assert!(receive(&mut acks) && receive(&mut ends));
            }
            drop((to_task, to_rival));
        })
    });
}

#[test]
fn no_task_is_left_behind_a_real_time_task_that_took_its_cpu() {
    let rig = rig();
    let sleeper = rig.batch_sleeper("sleeper");
    race_with_a_real_time_task();
    rig.assert_never_ejected();
    // It preempts that, where it found the CPU idle before.
    let burner = rig.batch_burners("burner", "", 0b1, 1);
    race_with_a_real_time_task();
    rig.assert_never_ejected();
    burner.stop();
    sleeper.stop();
}

#[test]
fn batch_work_of_an_llc_that_a_real_time_task_has_to_itself_runs_elsewhere() {
    let rig = rig();
    let fair = rig.group("fair");
    let work = rig.batch_burners("work", "", all_cpus(), 2 * nr_cpus());
    let tids = burners(&rig.host.batch("work"));
    let rivals = rig.fair_burners(&fair, all_cpus(), 2 * nr_cpus());
    rig.wait_until_all_run(&tids);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            bind(0, 1..2).unwrap();
            become_real_time();
            while !ends.load(Ordering::Relaxed) {
                spin_loop();
            }
        });
        let _end = SetOnDrop(&ends);
        // Housekeeping finds those that have waited for 8 s.
        for _ in 0..3 {
            rig.wait_until_all_run(&tids);
        }
        rig.assert_never_ejected();
    });
    rivals.kill_hard();
    work.stop();
}

#[test]
fn an_idle_cpu_goes_offline_and_comes_back() {
    let rig = rig();
    let sleeper = rig.batch_sleeper("sleeper");
    for _ in 0..4 {
        drop(Offline::take(nr_cpus() - 1));
    }
    rig.assert_never_ejected();
    sleeper.stop();
}

/// The kernel waits for all tasks that last ran there, unless it takes them from their queues as
/// Linux 7.3 and cpuset do. The limit lets one go every 100 ms. They are overdue after 8 s, which is
/// 80 periods of the other group.
#[test]
fn a_cpu_goes_offline_before_a_limit_lets_its_tasks_run() {
    let control = "/sys/fs/cgroup/cgroup.subtree_control";
    let cpu = nr_cpus() - 1;
    assert!(cpu >= 1, "this takes two CPUs");
    let rig = rig();
    let other = rig.batch_burners("other", "--quota 1ms/100ms", 1, 1);
    let limited = rig.batch_burners("limited", "", 1 << cpu, 100);
    rig.wait_until_all_run(&burners(&rig.host.batch("limited")));
    rig.host.run(["set", "limited", "--cap", "0.1%"]).good();
    wait_until("the limit stops all", || {
        rig.debug()["cpus"][cpu]["state"] == "idle"
    });
    fs::write(control, "-cpuset").unwrap();
    let before = rig.quota("other").nr_periods;
    let offline = Offline::take(cpu);
    let nr_periods = rig.quota("other").nr_periods - before;
    assert!(nr_periods < 40, "{nr_periods} periods");
    drop(offline);
    wait_until("the CPU is back", || nr_cpus() == cpu + 1);
    fs::write(control, "+cpuset").unwrap();
    rig.assert_never_ejected();
    rig.end("limited", limited);
    other.stop();
}

/// The kernel verifies more of the program where there are more CPUs than bits in a word.
#[test]
fn nothing_keeps_it_from_loading_for_128_cpus() {
    let host = Host::new();
    let folder = memory_folder();
    let possible = folder.path().join("possible");
    fs::write(&possible, "0-127\n").unwrap();
    let script = "mount --bind \"$0\" /sys/devices/system/cpu/possible && exec \"$@\"";
    let mut command = with_own_mounts(script);
    command.arg(possible).arg(binary());
    command.args([
        "run",
        "--enforcer",
        "sched-ext",
        "--class",
        "batch",
        "--",
        "true",
    ]);
    host.confine(&mut command);
    host.spawn(command).finish().good();
}
