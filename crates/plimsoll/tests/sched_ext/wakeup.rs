//! A normal task that wakes up on a CPU that runs batch work has it at once.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};
use plimsoll_engine::cgroup::CpuGroup;

use crate::common::{ms, nr_cpus};
use crate::rig::{Rig, rig};

/// A burner's slice is 4 ms: most wake-ups come in the middle of one.
const LOAD: &str = "wake --every 3ms --duration 3s --json";
const ROUNDS: usize = 5;

fn bind(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

fn bytes_through(mut from: File, mut to: File, count: usize) {
    let mut byte = [0];
    for _ in 0..count {
        from.read_exact(&mut byte).unwrap();
        to.write_all(&byte).unwrap();
    }
}

/// What it costs two ordinary threads on one CPU to hand a byte over, in microseconds: one switch
/// from task to task, with the system calls that make it.
fn context_switch_us(cpu: usize) -> f64 {
    const BYTES: usize = 2_000;
    let ((there_out, there_in), (back_out, back_in)) = (pipe().unwrap(), pipe().unwrap());
    let echo = thread::spawn(move || {
        bind(cpu);
        bytes_through(there_out.into(), back_in.into(), BYTES);
    });
    let begin = thread::spawn(move || {
        bind(cpu);
        let mut first: File = there_in.into();
        let begun = Instant::now();
        first.write_all(&[1]).unwrap();
        let mut last: File = back_out.into();
        bytes_through(last.try_clone().unwrap(), first, BYTES - 1);
        last.read_exact(&mut [0]).unwrap();
        begun.elapsed()
    });
    let took = begin.join().unwrap();
    echo.join().unwrap();
    took.as_secs_f64() * 1e6 / (2 * BYTES) as f64
}

/// How late a sleeper on a CPU runs, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Late {
    p50: f64,
    p99: f64,
}

fn late(rig: &Rig, group: &CpuGroup, cpu: usize) -> Late {
    let load = rig.fair_load(group, 1 << cpu, LOAD);
    let report = load.finish(Duration::from_secs(20)).good().json();
    let us = |name: &str| report["latency"][name].as_f64().unwrap();
    Late {
        p50: us("p50_us"),
        p99: us("p99_us"),
    }
}

#[test]
fn a_wakeup_on_a_cpu_with_batch_work_is_as_fast_as_on_an_idle_one() {
    let Some(mut rig) = rig() else { return };
    let cpu = nr_cpus() - 1;
    let main = rig.host.group("main");
    let switch_us = context_switch_us(cpu);
    let work = rig.batch_burners("work", "", 1 << cpu, 1);
    let burner = rig.host.batch("work").all_processes().unwrap()[0];
    let tell = |signal| kill(Pid::from_raw(burner), signal).unwrap();
    let mut seen = Vec::new();
    let good = (0..ROUNDS).any(|_| {
        tell(Signal::SIGSTOP);
        thread::sleep(ms(100));
        let idle = late(&rig, &main, cpu);
        tell(Signal::SIGCONT);
        thread::sleep(ms(100));
        let batch = late(&rig, &main, cpu);
        seen.push((idle, batch));
        batch.p99 <= 1.1 * idle.p99 + switch_us
    });
    println!("a switch takes {switch_us:.1} us; how late wake-ups are alone and beside batch, us:");
    for (idle, batch) in &seen {
        println!(
            "p50 {:.0} and {:.0}, p99 {:.0} and {:.0}",
            idle.p50, batch.p50, idle.p99, batch.p99
        );
    }
    assert!(good, "{seen:?}");
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}
