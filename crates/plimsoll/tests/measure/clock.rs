//! Times, and the increase of counters over a time.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{Finished, Running, task_ns, tasks_below, wait_for};

/// Measured time of a rate: 20 periods of a quota.
pub const MEASURED: Duration = Duration::from_secs(2);

pub fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub fn sleep_ms(count: u64) {
    thread::sleep(ms(count));
}

/// Increase of counters over some time, in percent of it: of one CPU, for nanoseconds.
pub fn rates(time: Duration, mut read: impl FnMut() -> Vec<u64>) -> Vec<f64> {
    let (start, before) = (Instant::now(), read());
    thread::sleep(time);
    let (elapsed, after) = (start.elapsed().as_nanos() as f64, read());
    let risen = after.iter().zip(&before).map(|(now, then)| now - then);
    risen.map(|ns| 100.0 * ns as f64 / elapsed).collect()
}

/// Usage of groups over some time, each in percent of one CPU.
pub fn rates_of(groups: &[&CpuGroup], time: Duration) -> Vec<f64> {
    rates(time, || {
        let all = groups.iter().map(|group| group.usage_ns().unwrap());
        all.collect()
    })
}

/// Usage of a group over some time, in percent of one CPU.
pub fn rate_of(group: &CpuGroup, time: Duration) -> f64 {
    rates_of(&[group], time)[0]
}

/// Usage of tasks over some time, each in percent of one CPU; of one that has ended, 0.
pub fn rates_of_tasks(tids: &[i32], time: Duration) -> Vec<f64> {
    let mut last = vec![0; tids.len()];
    rates(time, || {
        for (ns, tid) in last.iter_mut().zip(tids) {
            *ns = task_ns(*tid).unwrap_or(*ns);
        }
        last.clone()
    })
}

/// The least and the most of the rates of tasks of a cgroup, once so many of them spin under a cap
/// per task.
pub fn rates_of_spinning_tasks(group: &CpuGroup, nr_tasks: usize) -> [f64; 2] {
    let spinning = wait_for("all tasks spin", || {
        let tids = tasks_below(group);
        let rates = rates_of_tasks(&tids, Duration::from_millis(500));
        let spinning = tids.iter().zip(rates).filter(|(_, rate)| *rate > 15.0);
        let spinning: Vec<i32> = spinning.map(|(tid, _)| *tid).collect();
        (spinning.len() == nr_tasks).then_some(spinning)
    });
    let rates = rates_of_tasks(&spinning, MEASURED);
    [
        rates.iter().copied().fold(f64::INFINITY, f64::min),
        rates.iter().copied().fold(0.0, f64::max),
    ]
}

/// The time until a condition holds, in milliseconds. The limit of the guest's time for a test
/// ends a wait in vain.
pub fn ms_until(mut holds: impl FnMut() -> bool) -> f64 {
    let start = Instant::now();
    while !holds() {
        sleep_ms(1);
    }
    start.elapsed().as_secs_f64() * 1e3
}

/// Waits for the end of a long run. The limit of the guest's time for a test ends a wait in vain.
pub fn ended(mut running: Running) -> Finished {
    while running.is_running() {
        sleep_ms(20);
    }
    running.finish().good()
}
