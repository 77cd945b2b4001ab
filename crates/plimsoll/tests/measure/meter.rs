//! Shares of the machine, by exact counters.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Host, Running, busy_ns, nr_cpus, tasks_below, wait_until};

/// Batch work's tolerance of 1 ms in 100 ms, in percent of the machine.
pub fn tolerance() -> f64 {
    1.0 / nr_cpus() as f64
}

/// Shares of the machine over some time, in percent.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    pub side: f64,
    pub idle: f64,
}

/// Shares of batch groups and of idle time over some time.
pub fn shares(side: &[CpuGroup], time: Duration) -> Shares {
    let read = || {
        let side: u64 = side.iter().map(|side| side.usage_ns().unwrap()).sum();
        (Instant::now(), busy_ns(), side)
    };
    let before = read();
    thread::sleep(time);
    let after = read();
    let capacity = (after.0 - before.0).as_nanos() as f64 * nr_cpus() as f64;
    let percent = |ns: u64| 100.0 * ns as f64 / capacity;
    Shares {
        side: percent(after.2 - before.2),
        idle: 100.0 - percent(after.1 - before.1),
    }
}

/// Burners in a group under headroom; they run when this returns.
pub fn start_side(host: &Host, name: &str, headroom: &str, knobs: &str) -> Running {
    // Two for each CPU, because the stock kernel may leave two batch threads on one CPU behind
    // normal work while the other CPU is idle.
    let threads = 2 * nr_cpus();
    let running = host.start_load(
        &format!("--name {name} --class batch --headroom {headroom} {knobs}"),
        &format!("burn --threads {threads} --duration 80000s"),
    );
    let group = host.batch(name);
    wait_until("batch work runs", || {
        tasks_below(&group).len() > threads + 1
    });
    running
}
