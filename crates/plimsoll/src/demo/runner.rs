//! Runs and measures phases.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::service::LINGER;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_load::{BurnReport, Document, ServiceReport, Stop};

use super::outcome::{Burners, DemoOutcome, PhaseResult, milliseconds, percent};
use super::scenario::{GRACE, Job, Part, Phase, Scenario, WARMUP};
use crate::error::{CommandError, Result};
use crate::meter::Meter;
use crate::nested::{Ended, Running};
use crate::output::Progress;
use crate::owner::Owner;

/// Interval at which the commands of a phase are checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time for the burners to start before the service does.
const LEAD: Duration = Duration::from_millis(150);
/// Time beyond its own duration after which a service counts as hung.
const PATIENCE: Duration = Duration::from_secs(15);
/// Minimum duration in seconds of an interrupted phase to be reported.
const SHORTEST: f64 = 1.0;

/// Waits until no owner runs, or for longer than an owner lingers. Returns false if one still runs:
/// it has other groups, or a configuration file.
pub fn until_owner_ends(stop: &Stop) -> Result<bool> {
    let runtime = RuntimeFolder::of_this_user();
    let end = Instant::now() + 2 * LINGER;
    while Owner::at(&runtime)?.is_some() {
        if stop.is_set() || Instant::now() > end {
            return Ok(false);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(true)
}

fn is_scheduler_loaded() -> bool {
    std::fs::read_to_string("/sys/kernel/sched_ext/state")
        .is_ok_and(|state| state.trim() == "enabled")
}

pub struct Runner<'a> {
    program: PathBuf,
    hierarchy: &'a Arc<Hierarchy>,
    cpus: u32,
    stop: &'a Stop,
    scenario: &'a Scenario,
    progress: Progress,
}

/// Finished commands of a phase.
struct Finished {
    service: Ended,
    burners: Option<Ended>,
    meter: Meter,
    /// Start of the measurement, up to the time to start a process.
    begin: Instant,
}

impl<'a> Runner<'a> {
    /// `cpus`: number of CPUs of the machine.
    pub fn new(
        hierarchy: &'a Arc<Hierarchy>,
        cpus: u32,
        stop: &'a Stop,
        scenario: &'a Scenario,
    ) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(CommandError::io("demo: cannot find plimsoll itself"))?;
        Ok(Self {
            program,
            hierarchy,
            cpus,
            stop,
            scenario,
            progress: Progress::new(),
        })
    }

    /// Runs all phases, or those until an interruption.
    pub fn run(mut self, outcome: &mut DemoOutcome) -> Result<()> {
        let mut is_unguarded = false;
        let count = self.scenario.phases.len();
        for (phase, number) in self.scenario.phases.iter().zip(1..) {
            if self.stop.is_set() {
                break;
            }
            let name = format!("{number}/{count}  {:<36}", phase.label());
            if phase.is_unguarded() != is_unguarded {
                is_unguarded = phase.is_unguarded();
                // The next one has the variable of this phase.
                until_owner_ends(self.stop)?;
            }
            let finished = self.until_service_ends(phase, &name)?;
            let Some(result) = self.result(phase, &finished)? else {
                break;
            };
            self.progress.keep(&format!(
                "{name}  p99 {}, machine {} busy",
                milliseconds(result.latency.p99_us),
                percent(result.busy_ratio)
            ));
            let both = [Some(&finished.service), finished.burners.as_ref()];
            let warnings = both.into_iter().flatten().flat_map(Ended::warnings);
            for warning in warnings.map(str::to_owned) {
                if !outcome.notes.contains(&warning) {
                    outcome.notes.push(warning);
                }
            }
            match phase.part {
                Part::Neighbours => outcome.phases.push(result),
                Part::Bursts => outcome.bursts.push(result),
            }
        }
        Ok(())
    }

    /// Starts the commands of a phase, of which `name` tells the user, and samples the machine
    /// until its service ends or the demo is interrupted. On every exit, all commands are ended.
    fn until_service_ends(&mut self, phase: &Phase, name: &str) -> Result<Finished> {
        let mut meter = Meter::start(self.hierarchy, self.cpus)?;
        let start = |job: &Job| {
            let what = format!("demo: phase {}: the {}", phase.key, job.role.name());
            let arguments = job.arguments(&self.program);
            Running::start(&self.program, arguments, job.variable(), what)
        };
        let mut burners = phase.burners.as_ref().map(start).transpose()?;
        if let Some(burners) = &mut burners {
            let end = Instant::now() + PATIENCE;
            while phase.is_scheduled()
                && !is_scheduler_loaded()
                && Instant::now() < end
                && !self.stop.is_set()
                && !burners.has_ended()?
            {
                thread::sleep(LOOK_EVERY);
            }
            thread::sleep(LEAD);
        }
        meter.sample()?;
        let mut service = start(&phase.service)?;
        let begin = Instant::now() + WARMUP;
        let end = begin + self.scenario.phase;
        while !self.stop.is_set() && !service.has_ended()? {
            if let Some(early) = burners.take_if(|burners| burners.has_ended().unwrap_or(true)) {
                return Err(early.finish()?.failure());
            }
            if Instant::now() > end + GRACE + PATIENCE {
                return Err(CommandError::ServiceTooLong { phase: phase.key });
            }
            if meter.tick()? {
                let left = end.saturating_duration_since(Instant::now());
                self.progress.show(|| {
                    let (left, busy) = (left.as_secs_f64().ceil(), 100.0 * meter.latest());
                    format!("{name}  {left:>2.0} s left   machine {busy:>3.0} % busy")
                });
            }
            thread::sleep(LOOK_EVERY);
        }
        // Ends both together, because neither is measured without the other.
        service.ask_to_end()?;
        let burners = burners.map(Running::finish).transpose()?;
        let service = service.finish()?;
        meter.sample()?;
        Ok(Finished {
            service,
            burners,
            meter,
            begin,
        })
    }

    /// Results of a phase; `None` if it was interrupted before it was measured.
    fn result(&self, phase: &Phase, finished: &Finished) -> Result<Option<PhaseResult>> {
        let report: Option<Document<ServiceReport>> = finished.service.report();
        let Some(report) = report.map(|document| document.report) else {
            return self.nothing(&finished.service);
        };
        if report.requests == 0 || self.stop.is_set() && report.measured_seconds < SHORTEST {
            return self.nothing(&finished.service);
        }
        let burners = match &finished.burners {
            None => None,
            Some(ended) => match ended.report::<Document<BurnReport>>() {
                Some(document) => Some(Burners::of(&document.report)),
                // Other work has left them no time to start.
                None if ended.was_terminated() => Some(Burners::default()),
                None => return self.nothing(ended),
            },
        };
        let measured = Duration::try_from_secs_f64(report.measured_seconds).unwrap_or_default();
        let (busy_series, busy_ratio) = finished.meter.window(finished.begin, measured);
        let used_ns = |ended: &Ended| ended.statistics().map_or(0, |s| s.usage_usec * 1000);
        let known_ns = used_ns(&finished.service) + finished.burners.as_ref().map_or(0, used_ns);
        let jobs = [phase.burners.as_ref(), Some(&phase.service)];
        Ok(Some(PhaseResult {
            key: phase.key.into(),
            title: phase.title.into(),
            label: phase.label(),
            knobs: phase.knobs(),
            commands: jobs
                .into_iter()
                .flatten()
                .map(|job| job.command())
                .collect(),
            measured_seconds: report.measured_seconds,
            requests: report.requests,
            failures: report.failures,
            latency: report.latency,
            p99_ratio: None,
            expected_p99_ratio: None,
            busy_ratio,
            others_ratio: finished.meter.remainder(known_ns),
            burners,
            throttling: finished.service.statistics().and_then(|s| s.quota),
            headroom: finished
                .burners
                .as_ref()
                .and_then(|b| b.statistics()?.headroom),
            series: report.series,
            busy_series,
        }))
    }

    /// Handles a command without a report, which is an error unless it was
    /// interrupted.
    fn nothing(&self, ended: &Ended) -> Result<Option<PhaseResult>> {
        if self.stop.is_set() {
            return Ok(None);
        }
        Err(ended.failure())
    }
}
