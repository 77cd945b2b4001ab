//! CPU burners: as much of a fixed unit of work as they get CPU time for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::clock::{CpuClock, now_ns, work};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN, THREADS_MAX};
use crate::machine::available_cpus;
use crate::openloop::spawn;
use crate::report::{Ending, row};
use crate::shared::{Board, Slot, fork_child, has_parent, wait_for};
use crate::units::{check_count, check_duration, micros, nanos, ratio, seconds};

/// Steps of the work chain in one unit, of 5 cycles or so each: one unit is about 15 µs of an
/// undisturbed CPU at 3 GHz. Part of the meaning of `units`: it must not change.
const ROUNDS_PER_UNIT: u32 = 10_000;
/// Units between two looks at the CPU clock and at the parent.
const UNITS_PER_LOOK: u64 = 16;
/// How often [`Burn::finish`] looks at the clock when nobody ends the burners earlier.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Settings of burners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BurnConfig {
    /// How many, 1 to [`THREADS_MAX`].
    pub burners: usize,
    /// Whether each is a process of its own instead of a thread.
    pub processes: bool,
    /// How long, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
}

impl Default for BurnConfig {
    /// A thread per CPU, for 10 s.
    fn default() -> Self {
        Self {
            burners: available_cpus().min(THREADS_MAX),
            processes: false,
            duration: Duration::from_secs(10),
        }
    }
}

impl BurnConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        check_count("threads", self.burners as u64, THREADS_MAX as u64)?;
        check_duration("duration", self.duration, (DURATION_MIN, DURATION_MAX))
    }
}

/// What burners have done, so far or in the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BurnReport {
    /// Number of burners.
    pub burners: usize,
    /// Whether they are processes.
    pub processes: bool,
    /// Time since the start.
    pub elapsed_seconds: f64,
    /// Units of work done. A unit is the same instructions in every run, so that two runs on one
    /// machine compare.
    pub units: u64,
    /// Units ÷ elapsed time.
    pub units_per_second: f64,
    /// CPU time used. Live figures are up to a quarter of a millisecond per burner behind.
    pub cpu_seconds: f64,
    /// CPU time ÷ elapsed time: the average number of CPUs in use.
    pub cpus_used: f64,
    /// Units of the burner with the fewest.
    pub units_least: u64,
    /// Units of the burner with the most.
    pub units_most: u64,
    /// The longest time in which one of the burners got nothing done: between two looks at the
    /// clock, less the time of a usual unit. Waits for the CPU count, and so does a machine that
    /// stands still.
    pub longest_gap_us: f64,
    /// How the run ended; `complete` in live figures.
    pub ending: Ending,
}

impl fmt::Display for BurnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.processes {
            "processes"
        } else {
            "threads"
        };
        row(f, "burners", format_args!("{} {kind}", self.burners))?;
        row(f, "elapsed", format_args!("{:.3} s", self.elapsed_seconds))?;
        let (cpu, cpus) = (self.cpu_seconds, self.cpus_used);
        row(
            f,
            "CPU",
            format_args!("{cpu:.3} s, {cpus:.3} CPUs on average"),
        )?;
        row(
            f,
            "work",
            format_args!(
                "{} units, {:.0} per second, {} to {} per burner",
                self.units, self.units_per_second, self.units_least, self.units_most
            ),
        )?;
        row(
            f,
            "longest gap",
            format_args!("{:.0} us", self.longest_gap_us),
        )
    }
}

/// Burners at work. Dropping it ends them.
#[derive(Debug)]
pub struct Burn {
    config: BurnConfig,
    started: Instant,
    board: Arc<Board>,
    crew: Crew,
}

#[derive(Debug)]
enum Crew {
    Threads(Vec<JoinHandle<()>>),
    Processes(Vec<Pid>),
}

impl Burn {
    /// Starts the burners.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if a thread or process
    /// can't be started.
    pub fn start(config: &BurnConfig) -> Result<Self, LoadError> {
        config.validate()?;
        let mut burn = Self {
            config: config.clone(),
            started: Instant::now(),
            board: Arc::new(Board::new(config.burners)?),
            crew: if config.processes {
                Crew::Processes(Vec::with_capacity(config.burners))
            } else {
                Crew::Threads(Vec::with_capacity(config.burners))
            },
        };
        let end_ns = now_ns().saturating_add(nanos(config.duration));
        for index in 0..config.burners {
            burn.hire(index, end_ns)?;
        }
        Ok(burn)
    }

    fn hire(&mut self, index: usize, end_ns: u64) -> Result<(), LoadError> {
        let board = Arc::clone(&self.board);
        match &mut self.crew {
            Crew::Threads(threads) => threads.push(spawn("load-burner", move || {
                toil(&board, &board.slots()[index], end_ns, || true);
            })?),
            Crew::Processes(children) => {
                let parent = Pid::this();
                let slot = &board.slots()[index];
                // SAFETY: `toil` is arithmetic, atomics, clock_gettime and getppid.
                let child = unsafe {
                    fork_child(|| {
                        toil(&board, slot, end_ns, || has_parent(parent));
                        true
                    })
                };
                children.push(child.map_err(|e| LoadError::io("starting a process", e))?);
            }
        }
        Ok(())
    }

    /// Figures so far.
    #[must_use]
    pub fn snapshot(&self) -> BurnReport {
        let elapsed_seconds = self.started.elapsed().as_secs_f64();
        let slots = || self.board.slots().iter();
        let units_of = |slot: &Slot| slot.units.load(Ordering::Relaxed);
        let units = slots().map(units_of).sum();
        let cpu_ns = slots()
            .map(|slot| slot.cpu_ns.load(Ordering::Relaxed))
            .sum();
        BurnReport {
            burners: self.config.burners,
            processes: self.config.processes,
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

    /// Time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the burners now; each finishes its present unit.
    pub fn stop(&self) {
        self.board.stop().store(true, Ordering::Relaxed);
    }

    /// Whether the time is over or [`Burn::stop`] was called.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.started.elapsed() >= self.config.duration || self.board.stop().load(Ordering::Relaxed)
    }

    /// Waits until the burners have ended, then reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if a burner ended abnormally.
    pub fn finish(mut self) -> Result<BurnReport, LoadError> {
        while !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
        }
        let stopped = self.board.stop().load(Ordering::Relaxed);
        self.stop();
        let elapsed = self.started.elapsed();
        self.dismiss()?;
        let mut report = self.snapshot();
        report.elapsed_seconds = elapsed.as_secs_f64();
        report.units_per_second = ratio(report.units as f64, report.elapsed_seconds);
        report.cpus_used = ratio(report.cpu_seconds, report.elapsed_seconds);
        if stopped {
            report.ending = Ending::Stopped;
        }
        Ok(report)
    }

    fn dismiss(&mut self) -> Result<(), LoadError> {
        let died = LoadError::ThreadDied { role: "burner" };
        let mut all_well = true;
        match &mut self.crew {
            Crew::Threads(threads) => {
                for thread in threads.drain(..) {
                    all_well &= thread.join().is_ok();
                }
            }
            Crew::Processes(children) => {
                for child in children.drain(..) {
                    all_well &= wait_for(child)?.success;
                }
            }
        }
        if all_well { Ok(()) } else { Err(died) }
    }
}

impl Drop for Burn {
    fn drop(&mut self) {
        self.stop();
        // Reaps processes that `finish` has not; there is no one to tell of a failure.
        let _ = self.dismiss();
    }
}

/// A burner. Async-signal-safe if `go_on` is.
fn toil(board: &Board, slot: &Slot, end_ns: u64, go_on: impl Fn() -> bool) {
    let from_ns = CpuClock::Thread.now_ns();
    let mut state = from_ns;
    let mut units = 0;
    let (mut looked_ns, mut usual_ns) = (now_ns(), u64::MAX);
    loop {
        if units % UNITS_PER_LOOK == 0 {
            let cpu_ns = CpuClock::Thread.now_ns() - from_ns;
            slot.cpu_ns.store(cpu_ns, Ordering::Relaxed);
            if now_ns() >= end_ns || !go_on() {
                break;
            }
        }
        if board.stop().load(Ordering::Relaxed) {
            break;
        }
        state = work(state, ROUNDS_PER_UNIT);
        units += 1;
        slot.units.store(units, Ordering::Relaxed);
        // The fastest unit so far is the usual one.
        let ns = now_ns();
        let unit_ns = ns.saturating_sub(looked_ns);
        looked_ns = ns;
        usual_ns = usual_ns.min(unit_ns);
        slot.gap_ns.fetch_max(unit_ns - usual_ns, Ordering::Relaxed);
    }
    let cpu_ns = CpuClock::Thread.now_ns() - from_ns;
    slot.cpu_ns.store(cpu_ns, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, kill};

    use super::*;

    fn burn_until(processes: bool, units: u64) -> BurnReport {
        let burn = Burn::start(&BurnConfig {
            burners: 2,
            processes,
            duration: Duration::from_secs(3_600),
        })
        .unwrap();
        while burn.snapshot().units_least < units {
            std::thread::sleep(Duration::from_millis(1));
        }
        burn.stop();
        burn.finish().unwrap()
    }

    #[test]
    fn threads_and_processes_count_their_work_and_can_be_stopped() {
        for processes in [false, true] {
            let report = burn_until(processes, 300);
            assert_eq!(report.ending, Ending::Stopped);
            assert!(report.units >= 600 && report.units_least >= 300);
            assert!(report.units_most >= report.units_least);
            assert!(report.cpu_seconds > 0.0);
        }
    }

    #[test]
    fn work_is_proportional_to_cpu_time() {
        // The same unit costs about the same CPU time as thread and as process.
        let [threads, processes] = [false, true].map(|kind| {
            let report = burn_until(kind, 2_000);
            report.units as f64 / report.cpu_seconds
        });
        assert!(
            (0.3..3.0).contains(&(threads / processes)),
            "{threads} {processes}"
        );
    }

    #[test]
    fn a_burner_that_is_stopped_for_a_while_tells_the_gap() {
        let burn = Burn::start(&BurnConfig {
            burners: 1,
            processes: true,
            duration: Duration::from_secs(3_600),
        })
        .unwrap();
        let Crew::Processes(children) = &burn.crew else {
            panic!("not a process")
        };
        let child = children[0];
        while burn.snapshot().units < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        kill(child, Signal::SIGSTOP).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let before = burn.snapshot();
        kill(child, Signal::SIGCONT).unwrap();
        while burn.snapshot().units < before.units + 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        burn.stop();
        let gap_us = burn.finish().unwrap().longest_gap_us;
        // The child may have run on for a moment after the signal was sent.
        assert!(gap_us > 250_000.0, "{gap_us}");
        assert!(gap_us > before.longest_gap_us, "{gap_us}");
    }

    #[test]
    fn the_end_comes_by_itself() {
        let report = Burn::start(&BurnConfig {
            burners: 1,
            processes: true,
            duration: Duration::from_millis(20),
        })
        .unwrap()
        .finish()
        .unwrap();
        assert_eq!(report.ending, Ending::Complete);
        assert!(report.elapsed_seconds >= 0.02);
    }

    #[test]
    fn bad_settings_are_refused() {
        let good = BurnConfig::default();
        assert!(
            Burn::start(&BurnConfig {
                burners: 0,
                ..good.clone()
            })
            .is_err()
        );
        assert!(
            Burn::start(&BurnConfig {
                burners: THREADS_MAX + 1,
                ..good.clone()
            })
            .is_err()
        );
        assert!(
            Burn::start(&BurnConfig {
                duration: Duration::ZERO,
                ..good
            })
            .is_err()
        );
    }
}
