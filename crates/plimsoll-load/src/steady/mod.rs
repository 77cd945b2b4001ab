//! Synthetic load: a fixed share of the whole machine, in steps over time.

mod pace;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{CpuClock, burn_from, now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN, GRAIN_RANGE, STEPS_MAX};
use crate::machine::{allowed_cpus, pin_to};
use crate::openloop::spawn;
use crate::profile::Profile;
use crate::report::Ending;
use crate::units::{check_count, check_duration, check_number, nanos, show};

use pace::Pace;
use report::{Figures, SteadyReport};

/// Interval at which [`Steady::finish`] checks whether the run was stopped.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Range of the load, in percent of the machine.
const PERCENT_RANGE: (f64, f64) = (0.0, 100.0);

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Time of the change, after the start.
    pub at: Duration,
    /// Load after the change, in percent of the machine, 0 to 100.
    pub percent: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SteadyConfig {
    /// Load at the start, in percent of all CPUs that the affinity mask allows, 0 to 100.
    pub percent: f64,
    /// Changes, in order of time, at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Period in which a thread runs its share once, see [`GRAIN_RANGE`].
    pub grain: Duration,
    /// Duration of the run, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
}

impl SteadyConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        check_number("percent", self.percent, PERCENT_RANGE, " percent")?;
        check_duration("grain", self.grain, GRAIN_RANGE)?;
        check_duration("duration", self.duration, (DURATION_MIN, DURATION_MAX))?;
        check_count(
            "number of steps + 1",
            self.steps.len() as u64 + 1,
            STEPS_MAX as u64 + 1,
        )?;
        let mut earlier = Duration::ZERO;
        for step in &self.steps {
            check_number("step-to", step.percent, PERCENT_RANGE, " percent")?;
            if step.at <= earlier || step.at >= self.duration {
                let allowed = "later than the step before and earlier than the end of the run";
                return Err(LoadError::invalid("step-at", show(step.at), allowed));
            }
            earlier = step.at;
        }
        Ok(())
    }

    fn profile(&self) -> Profile {
        let steps = self.steps.iter().map(|s| (nanos(s.at), s.percent / 100.0));
        Profile::new(self.percent / 100.0, steps, nanos(self.duration))
    }
}

/// Running steady load; dropping it ends the load.
#[derive(Debug)]
pub struct Steady {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    cpus: usize,
    origin_ns: u64,
    profile: Profile,
    grain_ns: u64,
    stop: AtomicBool,
    /// CPU time used in each phase, in ns, all threads.
    used_ns: Vec<AtomicU64>,
    written_off_ns: AtomicU64,
}

impl Steady {
    /// Starts a thread on each CPU, bound to it, which spreads the load evenly.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if a thread can't be
    /// started.
    pub fn start(config: &SteadyConfig) -> Result<Self, LoadError> {
        config.validate()?;
        let cpus = allowed_cpus();
        let profile = config.profile();
        let mut steady = Self {
            shared: Arc::new(Shared {
                cpus: cpus.len(),
                origin_ns: now_ns(),
                used_ns: profile.phases().iter().map(|_| AtomicU64::new(0)).collect(),
                profile,
                grain_ns: nanos(config.grain),
                stop: AtomicBool::new(false),
                written_off_ns: AtomicU64::new(0),
            }),
            threads: Vec::with_capacity(cpus.len()),
        };
        let count = cpus.len() as u64;
        for (index, cpu) in (0..).zip(cpus) {
            let shared = Arc::clone(&steady.shared);
            let pace = Pace::new(config, index, count);
            steady.threads.push(spawn("load-steady", move || {
                // Refused only if the CPU has just gone offline; then the
                // kernel places the thread.
                let _ = pin_to(cpu);
                shared.hold(pace);
            })?);
        }
        Ok(steady)
    }

    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the duration is over or [`Steady::stop`] was called.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.elapsed_ns() >= self.shared.profile.end_ns()
            || self.shared.stop.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn snapshot(&self) -> SteadyReport {
        self.report(self.shared.elapsed_ns(), Ending::Complete)
    }

    /// Waits for the end, then reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if a thread panicked.
    pub fn finish(mut self) -> Result<SteadyReport, LoadError> {
        while !self.is_over() {
            std::thread::sleep(LOOK_EVERY);
        }
        let until_ns = self.shared.elapsed_ns();
        let ending = if until_ns < self.shared.profile.end_ns() {
            Ending::Stopped
        } else {
            Ending::Complete
        };
        for thread in self.threads.drain(..) {
            thread
                .join()
                .map_err(|_| LoadError::ThreadDied { role: "load" })?;
        }
        Ok(self.report(until_ns, ending))
    }

    fn report(&self, until_ns: u64, ending: Ending) -> SteadyReport {
        let shared = &self.shared;
        let load = |ns: &AtomicU64| ns.load(Ordering::Relaxed);
        let figures = Figures {
            cpus: shared.cpus,
            grain_ns: shared.grain_ns,
            until_ns: until_ns.min(shared.profile.end_ns()),
            used_ns: shared.used_ns.iter().map(load).collect(),
            written_off_ns: load(&shared.written_off_ns),
            ending,
        };
        figures.report(&shared.profile)
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn elapsed_ns(&self) -> u64 {
        now_ns().saturating_sub(self.origin_ns)
    }

    /// Main loop of a thread.
    fn hold(&self, mut pace: Pace) {
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
            self.used_ns[step.phase].fetch_add(burnt.cpu_ns - used_ns, Ordering::Relaxed);
            used_ns = burnt.cpu_ns;
            if used_ns >= step.due_ns {
                sleep_until(self.origin_ns + step.until_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::wait_until;

    /// 40 % for 10 s in grains of 2 ms.
    pub(super) fn config() -> SteadyConfig {
        SteadyConfig {
            percent: 40.0,
            steps: Vec::new(),
            grain: Duration::from_millis(2),
            duration: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_stopped_load_reports_the_phases_begun() {
        let long = SteadyConfig {
            steps: vec![Step {
                at: Duration::from_secs(3_000),
                percent: 1.0,
            }],
            duration: Duration::from_secs(3_600),
            ..config()
        };
        let steady = Steady::start(&long).unwrap();
        wait_until("it has begun", || steady.snapshot().cpu_seconds > 0.0);
        steady.stop();
        let report = steady.finish().unwrap();
        assert_eq!((report.ending, report.phases.len()), (Ending::Stopped, 1));
    }
}
