//! Latencies below a turn of the emulator, which delays interrupts between CPUs but not on a
//! single one.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};
use plimsoll_cgroupfs::CpuGroup;

use crate::clock::{ended, sleep_ms};
use crate::common::nr_cpus;
use crate::figure::{ANY, SPEC_2};
use crate::lab::lab_load;
use crate::scheduler_rig::{Rig, all_cpus, rig};

/// Workload that wakes up every 3 ms. A burner's slice is 4 ms: most wake-ups come in the middle of
/// one.
const LOAD: &str = "wake --every 3ms --duration 2s";

fn bytes_through(mut from: File, mut to: File, count: usize) {
    let mut byte = [0];
    for _ in 0..count {
        from.read_exact(&mut byte).unwrap();
        to.write_all(&byte).unwrap();
    }
}

/// The cost of handing a byte from one ordinary thread to another on one CPU, in microseconds: a
/// switch from task to task, with the system calls that make it.
fn context_switch_us() -> f64 {
    const BYTES: usize = 2_000;
    let ((there_out, there_in), (back_out, back_in)) = (pipe().unwrap(), pipe().unwrap());
    let echo = thread::spawn(move || {
        bytes_through(there_out.into(), back_in.into(), BYTES);
    });
    let begin = thread::spawn(move || {
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

/// The p99 of the wake-up delay of a sleeper, in microseconds.
fn p99(rig: &Rig, group: &CpuGroup) -> f64 {
    let report = ended(rig.host.start_in(group, lab_load(LOAD))).json();
    report["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn wakeup_on_a_cpu_with_batch_work() {
    let rig = rig();
    assert_eq!(nr_cpus(), 1, "this takes one CPU");
    let main = rig.group("main");
    let switch_us = context_switch_us();
    let work = rig.batch_burners("work", "", all_cpus(), 1);
    let burner = rig.host.batch("work").all_processes().unwrap()[0];
    let tell = |signal| kill(Pid::from_raw(burner), signal).unwrap();
    tell(Signal::SIGSTOP);
    sleep_ms(100);
    let idle = p99(&rig, &main);
    tell(Signal::SIGCONT);
    sleep_ms(100);
    let batch = p99(&rig, &main);
    let what = "p99 of a wakeup on a CPU with batch work, beyond 1.1 times that on an idle one";
    SPEC_2.figure(what, batch - 1.1 * idle, "us", -ANY..=switch_us);
    rig.assert_never_ejected();
    work.stop();
}
