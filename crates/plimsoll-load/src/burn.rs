//! CPU burners: run as many units of fixed work as their CPU time allows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::clock::{CpuClock, now_ns, work};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN};
use crate::machine::{one_per_cpu, spawn, threads};
use crate::report::Ending;
use crate::stop::Stop;
use crate::units::{micros, nanos, ratio, seconds, time_between};

/// Steps of the work chain in one unit, of about 5 cycles each: one unit takes
/// about 15 µs on an undisturbed CPU at 3 GHz. Part of the definition of
/// `units`, so it must not change.
const ROUNDS_PER_UNIT: u32 = 10_000;
/// Units between two checks of the CPU clock.
const UNITS_PER_LOOK: u64 = 16;
const REPORT_EVERY_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct BurnArgs {
    /// Number of burners, 1 to 1024 [default: one per CPU]
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        allow_hyphen_values = true
    )]
    threads: Option<usize>,
    /// Duration of the run, up to 24h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = time_between(DURATION_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    duration: Duration,
    /// Also print an object of intermediate figures at this interval, 10ms or
    /// more
    #[arg(
        long,
        value_name = "TIME",
        value_parser = time_between(REPORT_EVERY_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    report_every: Option<Duration>,
}

/// Figures of burners, during a run or at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BurnReport {
    pub burners: usize,
    pub elapsed_seconds: f64,
    /// Units of work done. A unit is the same instructions in every run, so
    /// that runs on one machine can be compared.
    pub units: u64,
    /// Units ÷ elapsed time.
    pub units_per_second: f64,
    /// CPU time used. Live figures lag by up to a quarter of a millisecond per
    /// burner.
    pub cpu_seconds: f64,
    /// CPU time ÷ elapsed time: the average number of CPUs in use.
    pub cpus_used: f64,
    /// Units of the burner with the fewest.
    pub units_least: u64,
    /// Units of the burner with the most.
    pub units_most: u64,
    /// Longest time in which one of the burners made no progress: the time
    /// between two checks of the clock, less that of a typical unit. It
    /// includes waits for the CPU, and pauses of the whole machine.
    pub longest_gap_us: f64,
    /// How the run ended; `complete` in live figures.
    pub ending: Ending,
}

/// Burners, and what they share.
#[derive(Debug)]
struct Crew {
    started: Instant,
    /// Set when they are to end, each after its current unit.
    is_over: AtomicBool,
    slots: Vec<Slot>,
}

/// Counters of a burner, on a cache line (and its prefetched neighbour) of
/// their own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Slot {
    units: AtomicU64,
    cpu_ns: AtomicU64,
    /// Longest time without progress, in ns.
    gap_ns: AtomicU64,
}

/// Runs burners to their end, or until `stop` is set. Calls `tell` with the
/// figures so far at the interval of the settings.
///
/// # Errors
/// [`LoadError::Io`] if a thread can't be started; those of `tell`.
pub fn run(
    config: &BurnArgs,
    stop: &Stop,
    tell: impl FnMut(BurnReport) -> Result<(), LoadError>,
) -> Result<BurnReport, LoadError> {
    let burners = config.threads.unwrap_or_else(one_per_cpu);
    let crew = Crew {
        started: Instant::now(),
        is_over: AtomicBool::new(false),
        slots: std::iter::repeat_with(Slot::default)
            .take(burners)
            .collect(),
    };
    let end_ns = now_ns().saturating_add(nanos(config.duration));
    let elapsed = thread::scope(|scope| {
        let started = crew.slots.iter().try_for_each(|slot| {
            let work = || slot.burn_until(end_ns, &crew.is_over);
            spawn(scope, stop, "load-burner", work).map(drop)
        });
        let elapsed = started.and_then(|()| crew.watch(config, stop, tell));
        crew.is_over.store(true, Ordering::Relaxed);
        elapsed
    })?;
    let mut report = crew.report(elapsed);
    if elapsed < config.duration {
        report.ending = Ending::Stopped;
    }
    Ok(report)
}

impl Crew {
    /// Waits for the end, and returns the time until then.
    fn watch(
        &self,
        config: &BurnArgs,
        stop: &Stop,
        mut tell: impl FnMut(BurnReport) -> Result<(), LoadError>,
    ) -> Result<Duration, LoadError> {
        let every = config.report_every.unwrap_or(Duration::MAX);
        loop {
            let left = config.duration.saturating_sub(self.started.elapsed());
            if left.is_zero() || stop.wait(every.min(left)) {
                return Ok(self.started.elapsed());
            }
            if every <= left {
                tell(self.report(self.started.elapsed()))?;
            }
        }
    }

    fn report(&self, elapsed: Duration) -> BurnReport {
        let elapsed_seconds = elapsed.as_secs_f64();
        let slots = || self.slots.iter();
        let units_of = |slot: &Slot| slot.units.load(Ordering::Relaxed);
        let units = slots().map(units_of).sum();
        let cpu_ns = slots()
            .map(|slot| slot.cpu_ns.load(Ordering::Relaxed))
            .sum();
        BurnReport {
            burners: self.slots.len(),
            elapsed_seconds,
            units,
            units_per_second: ratio(units as f64, elapsed_seconds),
            cpu_seconds: seconds(cpu_ns),
            cpus_used: ratio(seconds(cpu_ns), elapsed_seconds),
            units_least: slots().map(units_of).min().unwrap_or(0),
            units_most: slots().map(units_of).max().unwrap_or(0),
            longest_gap_us: micros(
                slots()
                    .map(|slot| slot.gap_ns.load(Ordering::Relaxed))
                    .max()
                    .unwrap_or(0),
            ),
            ending: Ending::Complete,
        }
    }
}

impl Slot {
    /// Main loop of a burner.
    fn burn_until(&self, end_ns: u64, stop: &AtomicBool) {
        let from_ns = CpuClock::Thread.now_ns();
        let mut state = from_ns;
        let mut units = 0;
        let (mut looked_ns, mut usual_ns) = (now_ns(), u64::MAX);
        loop {
            if units % UNITS_PER_LOOK == 0 {
                let cpu_ns = CpuClock::Thread.now_ns() - from_ns;
                self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
                if now_ns() >= end_ns {
                    break;
                }
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            state = work(state, ROUNDS_PER_UNIT);
            units += 1;
            self.units.store(units, Ordering::Relaxed);
            // The fastest unit so far counts as the typical one.
            let ns = now_ns();
            let unit_ns = ns.saturating_sub(looked_ns);
            looked_ns = ns;
            usual_ns = usual_ns.min(unit_ns);
            self.gap_ns.fetch_max(unit_ns - usual_ns, Ordering::Relaxed);
        }
        let cpu_ns = CpuClock::Thread.now_ns() - from_ns;
        self.cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burners_count_their_work_and_can_be_stopped() {
        let stop = Stop::default();
        let config = BurnArgs {
            threads: Some(2),
            duration: Duration::from_secs(3_600),
            report_every: Some(Duration::from_millis(10)),
        };
        let report = run(&config, &stop, |so_far| {
            if so_far.units_least >= 300 {
                stop.set(15);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(report.ending, Ending::Stopped);
        assert!(report.units >= 600 && report.units_least >= 300);
        assert!(report.units_most >= report.units_least);
        assert!(report.cpu_seconds > 0.0);
    }
}
