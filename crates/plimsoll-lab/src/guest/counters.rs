//! Exact counters over a window of time.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::batch::{BatchProgress, GuestBatch};
use super::group::ROOT;
use super::text::text;
use crate::error::{LabError, Result};
use crate::results::Figures;

#[derive(Debug)]
pub struct Window {
    begun: Instant,
    ran_ns: u64,
    controller_ns: u64,
    batch: BatchProgress,
}

impl Window {
    pub fn open(batch: &GuestBatch) -> Result<Self> {
        Ok(Self {
            begun: Instant::now(),
            ran_ns: ran_ns()?,
            controller_ns: controller_ns(batch),
            batch: batch.progress()?,
        })
    }

    /// Returns figures of the machine over the window.
    pub fn close(self, batch: &GuestBatch) -> Result<Figures> {
        let elapsed_ns = self.begun.elapsed().as_nanos() as f64;
        let cpus = cpus()?;
        let busy = (ran_ns()? - self.ran_ns) as f64 / (elapsed_ns * cpus);
        let mut figures = Figures::new();
        figures.insert("idle_share".to_owned(), round(1.0 - busy, 1e5));
        if batch.is_there() {
            let now = batch.progress()?;
            let seconds = now.at_seconds - self.batch.at_seconds;
            let share = (now.cpu_seconds - self.batch.cpu_seconds) / (seconds * cpus);
            let rate = (now.units - self.batch.units) / seconds;
            figures.insert("batch_share".to_owned(), round(share, 1e5));
            figures.insert("batch_units_per_second".to_owned(), round(rate, 10.0));
        }
        if batch.controller().is_some() {
            let cost = (controller_ns(batch) - self.controller_ns) as f64 / elapsed_ns;
            figures.insert("controller_cpus".to_owned(), round(cost, 1e5));
        }
        Ok(figures)
    }
}

/// Sums the run time of all cgroups, which includes ended tasks, and of the threads in the root,
/// where kernel threads are. Exact to a tick. (`/proc/stat` samples at ticks; `/proc/schedstat`
/// counts a thread only when it is switched.)
fn ran_ns() -> Result<u64> {
    let root = Path::new(ROOT);
    let mut sum_ns = 0;
    for entry in fs::read_dir(root).map_err(LabError::file(root))?.flatten() {
        if entry.path().is_dir() {
            sum_ns += used_ns(&entry.path().join("cpu.stat"))?;
        }
    }
    for thread in text(root.join("cgroup.threads"))?.lines() {
        // A thread that has just ended has used almost nothing.
        sum_ns += thread_ns(&Path::new("/proc").join(thread)).unwrap_or(0);
    }
    Ok(sum_ns)
}

/// CPU time of a cgroup.
fn used_ns(cpu_stat: &Path) -> Result<u64> {
    let stat = text(cpu_stat)?;
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "));
    let used_us: Option<u64> = line.and_then(|word| word.parse().ok());
    used_us
        .map(|us| us * 1000)
        .ok_or_else(|| LabError::Guest(format!("{} has no usage_usec", cpu_stat.display())))
}

/// CPU time of a thread, from its folder in `/proc`.
fn thread_ns(folder: &Path) -> Option<u64> {
    text(folder.join("schedstat"))
        .ok()?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

pub fn cpus() -> Result<f64> {
    let count = std::thread::available_parallelism();
    count
        .map(|count| count.get() as f64)
        .map_err(|error| LabError::Guest(error.to_string()))
}

/// CPU time of the process that controls batch work, all threads; 0 if there is none.
fn controller_ns(batch: &GuestBatch) -> u64 {
    let Some(pid) = batch.controller() else {
        return 0;
    };
    let tasks = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let files = tasks.into_iter().flatten().flatten();
    files.filter_map(|task| thread_ns(&task.path())).sum()
}

/// Rounds to a fraction of one, so that equal figures have equal text.
pub fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}
