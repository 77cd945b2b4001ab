//! Synthetic load: a fixed share of the whole machine.

mod args;
mod pace;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use serde::Serialize;

use crate::clock::{CpuClock, burn_from, now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::machine::{allowed_cpus, pin_to, spawn};
use crate::report::Ending;
use crate::stop::Stop;
use crate::units::{micros, nanos, ratio, seconds};

pub use args::SteadyArgs;

use pace::Pace;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SteadyReport {
    /// Number of CPUs, which is the number of threads.
    pub cpus: usize,
    pub grain_us: f64,
    pub elapsed_seconds: f64,
    /// Load asked for, in percent of the machine.
    pub percent_asked: f64,
    /// CPU time used ÷ (elapsed time × CPUs), in percent.
    pub percent_achieved: f64,
    pub cpu_seconds: f64,
    /// CPU time that was not available in time and was written off, see
    /// [`STEADY_DEBT_MAX`](crate::limits::STEADY_DEBT_MAX).
    pub written_off_seconds: f64,
    pub ending: Ending,
}

#[derive(Debug)]
struct Shared {
    config: SteadyArgs,
    cpus: usize,
    origin_ns: u64,
    stop: AtomicBool,
    /// CPU time used by all threads, in ns.
    used_ns: AtomicU64,
    written_off_ns: AtomicU64,
}

/// Holds the load to its end, or until `stop` is set, with a thread bound to
/// each CPU.
///
/// # Errors
/// [`LoadError::Io`] if a thread can't be started.
pub fn run(config: &SteadyArgs, stop: &Stop) -> Result<SteadyReport, LoadError> {
    let cpus = allowed_cpus();
    let shared = Shared {
        config: config.clone(),
        cpus: cpus.len(),
        origin_ns: now_ns(),
        stop: AtomicBool::new(false),
        used_ns: AtomicU64::new(0),
        written_off_ns: AtomicU64::new(0),
    };
    let (until_ns, ending) = thread::scope(|scope| {
        let started = cpus.iter().zip(0..).try_for_each(|(&cpu, index)| {
            let pace = Pace::new(config, index, cpus.len() as u64);
            let shared = &shared;
            let hold = move || shared.hold(cpu, pace);
            spawn(scope, stop, "load-steady", hold).map(drop)
        });
        let ending = if started.is_err() || stop.wait(config.duration) {
            shared.stop.store(true, Ordering::Relaxed);
            Ending::Stopped
        } else {
            Ending::Complete
        };
        started.map(|()| (shared.elapsed_ns(), ending))
    })?;
    Ok(shared.report(until_ns, ending))
}

impl Shared {
    fn elapsed_ns(&self) -> u64 {
        now_ns().saturating_sub(self.origin_ns)
    }

    fn end_ns(&self) -> u64 {
        nanos(self.config.duration)
    }

    fn report(&self, until_ns: u64, ending: Ending) -> SteadyReport {
        let elapsed_seconds = seconds(until_ns.min(self.end_ns()));
        let cpu_seconds = seconds(self.used_ns.load(Ordering::Relaxed));
        SteadyReport {
            cpus: self.cpus,
            grain_us: micros(nanos(self.config.grain)),
            elapsed_seconds,
            percent_asked: self.config.percent,
            percent_achieved: 100.0 * ratio(cpu_seconds, elapsed_seconds * self.cpus as f64),
            cpu_seconds,
            written_off_seconds: seconds(self.written_off_ns.load(Ordering::Relaxed)),
            ending,
        }
    }

    /// Main loop of the thread of a CPU.
    fn hold(&self, cpu: usize, mut pace: Pace) {
        // Refused only if the CPU has just gone offline; then the kernel places the thread.
        let _ = pin_to(cpu);
        precise_timers();
        let base_ns = CpuClock::Thread.now_ns();
        let mut used_ns = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(step) = pace.next_step(self.elapsed_ns(), used_ns) else {
                break;
            };
            self.written_off_ns
                .fetch_add(step.written_off_ns, Ordering::Relaxed);
            let burnt = burn_from(CpuClock::Thread, base_ns, step.target_ns, &self.stop);
            self.used_ns
                .fetch_add(burnt.cpu_ns - used_ns, Ordering::Relaxed);
            used_ns = burnt.cpu_ns;
            if used_ns >= step.due_ns {
                sleep_until(self.origin_ns + step.until_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 40 % for 10 s in grains of 2 ms.
    pub(super) fn config() -> SteadyArgs {
        SteadyArgs {
            percent: 40.0,
            grain: Duration::from_millis(2),
            duration: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_stopped_load_reports_the_time_until_then() {
        let long = SteadyArgs {
            duration: Duration::from_secs(3_600),
            ..config()
        };
        let stop = Stop::default();
        stop.set(15);
        let report = run(&long, &stop).unwrap();
        assert_eq!(report.ending, Ending::Stopped);
        assert!(report.elapsed_seconds < 3_600.0);
    }

    #[test]
    fn percentage_is_of_all_cpus() {
        let shared = Shared {
            config: config(),
            cpus: 2,
            origin_ns: 0,
            stop: AtomicBool::new(false),
            used_ns: AtomicU64::new(2_800_000_000),
            written_off_ns: AtomicU64::new(0),
        };
        let report = shared.report(4_000_000_000, Ending::Stopped);
        assert!((report.percent_achieved - 35.0).abs() < 1e-9);
    }
}
