//! Tasks that each use a fixed amount of CPU time. Measures the rate that they
//! achieve under a cap.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::{CpuClock, burn, now_ns};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, THREADS_MAX};
use crate::openloop::spawn;
use crate::report::{Ending, row};
use crate::stop::Stop;
use crate::units::{check_count, check_duration, nanos, ratio, seconds};

/// Interval at which a run checks whether it was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Settings of a run of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedConfig {
    /// CPU time that each task needs, 1 µs to [`DURATION_MAX`].
    pub cpu: Duration,
    /// Number of tasks (threads) that run at once, 1 to [`THREADS_MAX`].
    pub tasks: usize,
}

impl NeedConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        check_duration("need", self.cpu, (Duration::from_micros(1), DURATION_MAX))?;
        check_count("tasks", self.tasks as u64, THREADS_MAX as u64)
    }
}

/// Figures of one task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// Time from the task's first to its last instruction.
    pub elapsed_seconds: f64,
    /// CPU time used, by the thread's own clock.
    pub cpu_seconds: f64,
    /// CPU time ÷ elapsed time: 1 is a whole CPU.
    pub rate: f64,
}

/// Figures of all tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NeedReport {
    /// CPU time that each task needed.
    pub need_seconds: f64,
    /// Time from the first start to the last end.
    pub elapsed_seconds: f64,
    /// CPU time of all tasks.
    pub cpu_seconds: f64,
    /// CPU time of all tasks ÷ elapsed time.
    pub rate: f64,
    /// Each task.
    pub tasks: Vec<TaskReport>,
    /// How the run ended.
    pub ending: Ending,
}

impl fmt::Display for NeedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.tasks.len();
        row(
            f,
            "need",
            format_args!("{:.6} s of CPU, {count} tasks", self.need_seconds),
        )?;
        row(f, "elapsed", format_args!("{:.6} s", self.elapsed_seconds))?;
        row(f, "CPU", format_args!("{:.6} s", self.cpu_seconds))?;
        row(
            f,
            "rate",
            format_args!("{:.2} % of a CPU", 100.0 * self.rate),
        )?;
        if count > 1 {
            let rates = || self.tasks.iter().map(|t| 100.0 * t.rate);
            let (least, most) = (
                rates().fold(f64::MAX, f64::min),
                rates().fold(0.0, f64::max),
            );
            row(
                f,
                "rate per task",
                format_args!("{least:.2} to {most:.2} %"),
            )?;
        }
        Ok(())
    }
}

/// A task's start and end on the monotonic clock, and its CPU time.
struct Ran {
    from_ns: u64,
    to_ns: u64,
    cpu_ns: u64,
}

/// Runs the tasks to their end, or until `stop` is set. Meanwhile calls
/// `progress` some 20 times a second with the time since the start.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if a
/// thread can't be
/// started.
pub fn run(
    config: &NeedConfig,
    stop: &Stop,
    mut progress: impl FnMut(Duration),
) -> Result<NeedReport, LoadError> {
    config.validate()?;
    let halt = Halt(Arc::default());
    let started = Instant::now();
    let demand_ns = nanos(config.cpu);
    let waiting = std::thread::current();
    let tasks = (0..config.tasks)
        .map(|_| {
            let (halt, waiting) = (Arc::clone(&halt.0), waiting.clone());
            spawn("load-task", move || {
                let ran = task(demand_ns, &halt);
                waiting.unpark();
                ran
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    while !tasks.iter().all(std::thread::JoinHandle::is_finished) {
        std::thread::park_timeout(LOOK_EVERY);
        progress(started.elapsed());
        if stop.is_set() {
            halt.0.store(true, Ordering::Relaxed);
        }
    }
    let ran = tasks
        .into_iter()
        .map(|t| t.join().map_err(|_| LoadError::ThreadDied { role: "task" }))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(report(config, &ran))
}

/// Ends the tasks when dropped, for instance if the last one fails to start.
struct Halt(Arc<AtomicBool>);

impl Drop for Halt {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn task(demand_ns: u64, halt: &AtomicBool) -> Ran {
    let from_ns = now_ns();
    let burnt = burn(CpuClock::Thread, demand_ns, halt);
    Ran {
        from_ns,
        to_ns: now_ns(),
        cpu_ns: burnt.cpu_ns,
    }
}

fn report(config: &NeedConfig, ran: &[Ran]) -> NeedReport {
    let first_ns = ran.iter().map(|r| r.from_ns).min().unwrap_or(0);
    let last_ns = ran.iter().map(|r| r.to_ns).max().unwrap_or(0);
    let cpu_ns: u64 = ran.iter().map(|r| r.cpu_ns).sum();
    let complete = ran.iter().all(|r| r.cpu_ns >= nanos(config.cpu));
    let task = |r: &Ran| TaskReport {
        elapsed_seconds: seconds(r.to_ns - r.from_ns),
        cpu_seconds: seconds(r.cpu_ns),
        rate: ratio(r.cpu_ns as f64, (r.to_ns - r.from_ns) as f64),
    };
    NeedReport {
        need_seconds: config.cpu.as_secs_f64(),
        elapsed_seconds: seconds(last_ns - first_ns),
        cpu_seconds: seconds(cpu_ns),
        rate: ratio(cpu_ns as f64, (last_ns - first_ns) as f64),
        tasks: ran.iter().map(task).collect(),
        ending: if complete {
            Ending::Complete
        } else {
            Ending::Stopped
        },
    }
}
