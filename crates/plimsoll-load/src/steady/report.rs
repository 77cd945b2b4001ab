//! Report of a steady load.

use std::fmt;

use serde::Serialize;

use crate::profile::{Phase, Profile};
use crate::report::{Ending, row};
use crate::units::{micros, ratio, seconds};

/// Figures of a phase: an interval of constant load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PhaseReport {
    /// Start, after the start of the run.
    pub from_seconds: f64,
    /// End of the phase, or of the run if it was stopped in this phase.
    pub to_seconds: f64,
    /// Load asked for, in percent of the machine.
    pub percent_asked: f64,
    /// CPU time used in this phase ÷ (its length × CPUs), in percent.
    pub percent_achieved: f64,
    pub cpu_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SteadyReport {
    /// Number of CPUs, which is the number of threads.
    pub cpus: usize,
    pub grain_us: f64,
    pub elapsed_seconds: f64,
    /// Mean load asked for since the start, in percent of the machine.
    pub percent_asked: f64,
    /// Mean load achieved.
    pub percent_achieved: f64,
    pub cpu_seconds: f64,
    /// CPU time that was not available in time and was written off, see
    /// [`STEADY_DEBT_MAX`](crate::limits::STEADY_DEBT_MAX).
    pub written_off_seconds: f64,
    /// The phases begun so far.
    pub phases: Vec<PhaseReport>,
    /// How the run ended; `complete` in live figures.
    pub ending: Ending,
}

impl fmt::Display for SteadyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.cpus;
        row(
            f,
            "machine",
            format_args!("{cpus} CPUs, grain {:.0} us", self.grain_us),
        )?;
        row(f, "elapsed", format_args!("{:.3} s", self.elapsed_seconds))?;
        row(f, "CPU", format_args!("{:.3} s", self.cpu_seconds))?;
        let (asked, achieved) = (self.percent_asked, self.percent_achieved);
        row(
            f,
            "load",
            format_args!("{achieved:.2} % achieved, {asked:.2} % asked"),
        )?;
        for phase in self.phases.iter().filter(|_| self.phases.len() > 1) {
            row(
                f,
                "phase",
                format_args!(
                    "{:>8.3} to {:>8.3} s: {:.2} % achieved, {:.2} % asked",
                    phase.from_seconds,
                    phase.to_seconds,
                    phase.percent_achieved,
                    phase.percent_asked
                ),
            )?;
        }
        if self.written_off_seconds > 0.0 {
            row(
                f,
                "written off",
                format_args!("{:.3} s of CPU", self.written_off_seconds),
            )?;
        }
        Ok(())
    }
}

/// Counters of the threads.
pub(super) struct Figures {
    pub(super) cpus: usize,
    pub(super) grain_ns: u64,
    /// Time since the start, at most the duration of the run.
    pub(super) until_ns: u64,
    pub(super) used_ns: Vec<u64>,
    pub(super) written_off_ns: u64,
    pub(super) ending: Ending,
}

impl Figures {
    pub(super) fn report(self, profile: &Profile) -> SteadyReport {
        let until_ns = self.until_ns;
        let phases: Vec<PhaseReport> = profile
            .phases()
            .iter()
            .zip(&self.used_ns)
            .filter(|(phase, _)| phase.from_ns < until_ns)
            .map(|(phase, &used_ns)| phase_report(phase, used_ns, until_ns, self.cpus))
            .collect();
        let cpu_seconds = phases.iter().map(|p| p.cpu_seconds).sum();
        let elapsed_seconds = seconds(until_ns);
        SteadyReport {
            cpus: self.cpus,
            grain_us: micros(self.grain_ns),
            elapsed_seconds,
            percent_asked: 100.0 * ratio(profile.due_ns(until_ns) as f64, until_ns as f64),
            percent_achieved: 100.0 * ratio(cpu_seconds, elapsed_seconds * self.cpus as f64),
            cpu_seconds,
            written_off_seconds: seconds(self.written_off_ns),
            phases,
            ending: self.ending,
        }
    }
}

fn phase_report(phase: &Phase, used_ns: u64, until_ns: u64, cpus: usize) -> PhaseReport {
    let to_ns = phase.to_ns.min(until_ns);
    let cpu_seconds = seconds(used_ns);
    let capacity = seconds(to_ns - phase.from_ns) * cpus as f64;
    PhaseReport {
        from_seconds: seconds(phase.from_ns),
        to_seconds: seconds(to_ns),
        percent_asked: 100.0 * phase.share,
        percent_achieved: 100.0 * ratio(cpu_seconds, capacity),
        cpu_seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_of_all_cpus_and_of_the_phases_begun() {
        let profile = Profile::new(0.4, [(2_000, 0.6), (9_000, 0.1)].into_iter(), 10_000);
        let figures = Figures {
            cpus: 2,
            grain_ns: 2_000,
            until_ns: 4_000,
            used_ns: vec![1_600, 1_200, 0],
            written_off_ns: 0,
            ending: Ending::Stopped,
        };
        let report = figures.report(&profile);
        assert_eq!(report.phases.len(), 2);
        let percents = |p: &PhaseReport| (p.percent_asked.round(), p.percent_achieved.round());
        assert_eq!(percents(&report.phases[0]), (40.0, 40.0));
        assert_eq!(percents(&report.phases[1]), (60.0, 30.0));
        assert!((report.percent_asked - 50.0).abs() < 1e-9);
        assert!((report.percent_achieved - 35.0).abs() < 1e-9);
    }
}
