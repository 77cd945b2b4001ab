//! A task that uses a fixed amount of CPU time: the rate that it achieves under a cap.

use std::time::Duration;

use plimsoll_load::clock::{now_ns, precise_timers, sleep_until, use_cpu};
use plimsoll_load::nanos;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct NeedReport {
    pub elapsed_seconds: f64,
    /// CPU time by the thread's own clock.
    pub cpu_seconds: f64,
    /// CPU time ÷ elapsed time: 1 is a whole CPU.
    pub rate: f64,
}

/// Uses CPU time in the calling thread, in pieces with a `rest` after each.
pub fn run(cpu: Duration, piece: Duration, rest: Duration) -> NeedReport {
    precise_timers();
    let from_ns = now_ns();
    let mut used_ns = 0;
    while used_ns < nanos(cpu) {
        used_ns += use_cpu(nanos(piece.min(cpu)));
        if !rest.is_zero() {
            sleep_until(now_ns() + nanos(rest));
        }
    }
    let elapsed_ns = (now_ns() - from_ns).max(1);
    NeedReport {
        elapsed_seconds: elapsed_ns as f64 / 1e9,
        cpu_seconds: used_ns as f64 / 1e9,
        rate: used_ns as f64 / elapsed_ns as f64,
    }
}
