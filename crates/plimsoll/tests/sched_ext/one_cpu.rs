//! Latencies below a turn of the emulator, which delays interrupts between CPUs but not on a
//! single one: `crates/plimsoll/tests/in-vm --cpus 1 --filter one_cpu:: sched_ext`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{ms, nr_cpus};
use crate::rig::{Rig, all_cpus, assert_within, rig};

/// A burner's slice is 4 ms: most wake-ups come in the middle of one.
const LOAD: &str = "wake --every 3ms --duration 2s --json";

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

/// Wake-up delay of a sleeper on a CPU, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Late {
    p50: f64,
    p99: f64,
}

fn late(rig: &Rig, group: &CpuGroup) -> Late {
    let load = rig.fair_load(group, all_cpus(), LOAD);
    let report = load.finish(Duration::from_secs(20)).good().json();
    let us = |name: &str| report["latency"][name].as_f64().unwrap();
    Late {
        p50: us("p50_us"),
        p99: us("p99_us"),
    }
}

#[test]
fn a_wakeup_on_a_cpu_with_batch_work_is_as_fast_as_on_an_idle_one() {
    let mut rig = rig();
    assert_eq!(nr_cpus(), 1, "this takes one CPU");
    let main = rig.host.group("main");
    let switch_us = context_switch_us();
    let work = rig.batch_burners("work", "", all_cpus(), 1);
    let burner = rig.host.batch("work").all_processes().unwrap()[0];
    let tell = |signal| kill(Pid::from_raw(burner), signal).unwrap();
    tell(Signal::SIGSTOP);
    thread::sleep(ms(100));
    let idle = late(&rig, &main);
    tell(Signal::SIGCONT);
    thread::sleep(ms(100));
    let batch = late(&rig, &main);
    println!("a switch takes {switch_us:.1} us");
    println!(
        "p50 alone {:.1} us, beside batch {:.1} us",
        idle.p50, batch.p50
    );
    let most = 1.1 * idle.p99 + switch_us;
    assert_within("p99 beside batch, us", batch.p99, 0.0..=most);
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}
