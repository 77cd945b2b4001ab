//! A periodic sleeper: the delay from a timer's wake-up until the task runs.

use std::time::Duration;

use plimsoll_load::clock::{now_ns, precise_timers, sleep_until};
use plimsoll_load::{Latency, nanos};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct WakeReport {
    /// Wake-ups that were due, with those that passed while an earlier one was delayed.
    pub wakeups: usize,
    pub latency: Latency,
}

/// Sleeps and wakes up in the calling thread.
pub fn run(every: Duration, duration: Duration) -> WakeReport {
    precise_timers();
    let start_ns = now_ns();
    let dues = (nanos(every)..=nanos(duration)).step_by(nanos(every).max(1) as usize);
    let delays: Vec<u64> = dues.map(|due_ns| wait_until(start_ns + due_ns)).collect();
    WakeReport {
        wakeups: delays.len(),
        latency: Latency::of(delays),
    }
}

/// Sleeps until the monotonic clock shows `due_ns`; returns the delay of the wake-up.
pub(super) fn wait_until(due_ns: u64) -> u64 {
    loop {
        let now = now_ns();
        if now >= due_ns {
            return now - due_ns;
        }
        sleep_until(due_ns);
    }
}
