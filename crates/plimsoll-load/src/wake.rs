//! Periodic sleeper. Measures the delay from a timer wake-up until the task
//! runs.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN, EVERY_RANGE};
use crate::report::{Ending, Latency, row};
use crate::stop::Stop;
use crate::units::{check_duration, nanos, seconds};
use crate::waits::Waits;

/// Settings of a periodic sleeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeConfig {
    /// Time between two wake-ups, see [`EVERY_RANGE`].
    pub every: Duration,
    /// Duration of the run, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
}

impl WakeConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        check_duration("every", self.every, EVERY_RANGE)?;
        check_duration("duration", self.duration, (DURATION_MIN, DURATION_MAX))
    }
}

/// Figures of the sleeper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WakeReport {
    /// Time between two wake-ups.
    pub every_us: f64,
    /// Time since the start.
    pub elapsed_seconds: f64,
    /// Number of wake-ups that were due, including those that passed while an
    /// earlier one was delayed.
    pub wakeups: u64,
    /// Time from a due wake-up until the task ran.
    pub latency: Latency,
    /// How the run ended.
    pub ending: Ending,
}

impl fmt::Display for WakeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(
            f,
            "wake-ups",
            format_args!("{}, every {} us", self.wakeups, self.every_us),
        )?;
        row(f, "elapsed", format_args!("{:.3} s", self.elapsed_seconds))?;
        self.latency.fmt_table(f)
    }
}

/// Sleeps and wakes in the calling thread until the duration is over or `stop`
/// is set. Calls `progress` after each wake-up with the time since the start.
///
/// # Errors
/// [`LoadError::Invalid`] for a setting out of range.
pub fn run(
    config: &WakeConfig,
    stop: &Stop,
    mut progress: impl FnMut(Duration),
) -> Result<WakeReport, LoadError> {
    config.validate()?;
    let mut latency = Waits::new()?;
    let every_ns = nanos(config.every);
    precise_timers();
    let start_ns = now_ns();
    let end_ns = start_ns.saturating_add(nanos(config.duration));
    let mut due_ns = start_ns.saturating_add(every_ns);
    while due_ns <= end_ns && !stop.is_set() {
        sleep_until(due_ns);
        let now = now_ns();
        // A signal may have ended the sleep.
        if now < due_ns {
            continue;
        }
        latency.add(now - due_ns);
        due_ns = due_ns.saturating_add(every_ns);
        progress(Duration::from_nanos(now - start_ns));
    }
    Ok(WakeReport {
        every_us: config.every.as_secs_f64() * 1e6,
        elapsed_seconds: seconds(now_ns() - start_ns),
        wakeups: latency.count(),
        latency: latency.latency(),
        ending: Ending::by(stop),
    })
}
