//! A scenario on this machine, and what it came to.

use std::cell::OnceCell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CpuStat, Hierarchy};
use plimsoll_engine::enforcer::Sample;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_load::{
    Burn, BurnConfig, BurnReport, NeedReport, ServiceReport, SteadyReport, Stop, StormReport,
    WakeReport,
};
use plimsoll_sim::scenario::{Run, Scenario, Workload};
use serde::de::DeserializeOwned;

use super::commands::GroupCommand;
use crate::cli::EnforcerChoice;
use crate::control::{self, Request};
use crate::error::{CommandError, Result};
use crate::meter::Meter;
use crate::nested::{Ended, Leash, Running};
use crate::output::Progress;

/// Groups are there in this time: loading a scheduler takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often groups are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// A signal to all processes of a session may reach the groups this much earlier.
const SIGNAL_SPREAD: Duration = Duration::from_millis(200);
/// For how long one burner runs alone to tell what a CPU can do.
const CALIBRATION: Duration = Duration::from_millis(500);

/// This machine.
pub struct Machine {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    program: PathBuf,
    enforcer: EnforcerChoice,
    cpus: u32,
    /// Units that a burner gets done in a second of CPU time when it is alone;
    /// measured when it is first needed.
    units_per_second: OnceCell<f64>,
}

/// What a scenario came to here.
#[derive(Debug, Clone)]
pub struct RealOutcome {
    /// Whether it came to its planned end.
    pub complete: bool,
    /// Time measured.
    pub measured: Duration,
    /// How busy the machine was, with whatever else ran on it.
    pub busy_ratio: f64,
    /// In the order of the scenario.
    pub groups: Vec<RealGroup>,
    /// What `run` warned of.
    pub notes: Vec<String>,
}

/// A group on the real machine. Its own figures are without the warm-up.
#[derive(Debug, Clone)]
pub struct RealGroup {
    /// CPU time used ÷ time measured.
    pub cpus_used: f64,
    /// The kernel's counts, where it has a quota.
    pub bandwidth: Option<CpuStat>,
    /// The reports of its workloads, in the order of the scenario; `None` of
    /// one that printed none.
    pub work: Vec<Option<RealWork>>,
    /// What was run, as a user would type it.
    pub commands: Vec<String>,
}

/// The report of a workload.
#[derive(Debug, Clone)]
pub enum RealWork {
    /// Of requests.
    Service(Box<ServiceReport>),
    /// Of burners, and what one of them does alone in a second of CPU time.
    Burn(BurnReport, f64),
    /// Of short processes.
    Storm(StormReport),
    /// Of a set amount of CPU time.
    Need(NeedReport),
    /// Of a set share of the machine.
    Steady(SteadyReport),
    /// Of periodic wake-ups.
    Wake(WakeReport),
}

/// The groups of a scenario while they are there.
struct Crowd {
    commands: Vec<GroupCommand>,
    running: Vec<Running>,
    /// What holds them; their end ends the groups.
    leashes: Vec<ChildStdin>,
}

impl Machine {
    /// This machine; groups are enforced by `enforcer`.
    pub fn new(hierarchy: Arc<Hierarchy>, enforcer: EnforcerChoice) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(CommandError::io("bench: cannot find plimsoll itself"))?;
        Ok(Self {
            hierarchy,
            runtime: RuntimeFolder::of_this_user(),
            program,
            enforcer,
            cpus: u32::try_from(plimsoll_load::available_cpus()).unwrap_or(u32::MAX),
            units_per_second: OnceCell::new(),
        })
    }

    /// Runs a scenario; `None` if somebody asked for an end before anything was
    /// measured, or ended the groups too. Whatever happens, nothing runs on.
    pub fn run(
        &self,
        run: &Run,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Option<RealOutcome>> {
        match self.measure(run, stop, progress) {
            Err(_) if stop.wait(SIGNAL_SPREAD) => Ok(None),
            outcome => outcome,
        }
    }

    fn measure(
        &self,
        run: &Run,
        stop: &Stop,
        progress: &mut Progress,
    ) -> Result<Option<RealOutcome>> {
        self.calibrate(&run.scenario)?;
        let name = run.variant.as_deref().unwrap_or("scenario");
        let mut crowd = self.gather(&run.scenario)?;
        if !self.wait_for_groups(&mut crowd, stop)? {
            return Ok(None);
        }
        let mut meter = Meter::start(&self.hierarchy, self.cpus)?;
        let started = Instant::now();
        crowd.start()?;
        let warmed_up = started + Duration::from_nanos(run.scenario.warmup_ns);
        let planned = warmed_up + Duration::from_nanos(run.scenario.duration_ns);
        let mut wait = |until: Instant, crowd: &mut Crowd| {
            crowd.wait(
                until,
                stop,
                |left| {
                    progress.show(|| {
                        format!("{name}: {:.0} s left on this machine", left.as_secs_f64())
                    });
                },
                planned,
            )
        };
        if !wait(warmed_up, &mut crowd)? {
            return Ok(None);
        }
        let (begin, before) = (Instant::now(), self.samples(&mut crowd)?);
        meter.sample()?;
        let complete = wait(planned, &mut crowd)?;
        let (end, after) = (Instant::now(), self.samples(&mut crowd)?);
        meter.sample()?;
        let measured = end - begin;
        let (_, busy_ratio) = meter.window(begin, measured + LOOK_EVERY);
        let ended = crowd.finish()?;
        let mut outcome = RealOutcome {
            complete,
            measured,
            busy_ratio,
            groups: Vec::new(),
            notes: Vec::new(),
        };
        let samples = before.iter().zip(&after);
        let groups = run.scenario.groups.iter().zip(ended).zip(samples);
        for ((group, (command, ended)), (before, after)) in groups {
            outcome.notes.extend(ended.warnings().map(str::to_owned));
            outcome.groups.push(RealGroup {
                cpus_used: usage_between(before, after).as_secs_f64() / measured.as_secs_f64(),
                bandwidth: bandwidth_between(before, after),
                work: self.work(&group.workloads, &ended, complete)?,
                commands: command.shown(),
            });
        }
        outcome.notes.sort();
        outcome.notes.dedup();
        Ok(Some(outcome))
    }

    /// Measures what a CPU can do, if that has not been done and is needed.
    fn calibrate(&self, scenario: &Scenario) -> Result<()> {
        let workloads = scenario.groups.iter().flat_map(|group| &group.workloads);
        let mut burners = workloads.filter(|workload| matches!(workload, Workload::Burn(_)));
        if burners.next().is_none() || self.units_per_second.get().is_some() {
            return Ok(());
        }
        let alone = Burn::start(&BurnConfig {
            burners: 1,
            processes: false,
            duration: CALIBRATION,
        })?;
        let report = alone.finish()?;
        // Set once: this is the only place.
        let _ = self
            .units_per_second
            .set(report.units as f64 / report.cpu_seconds.max(1e-9));
        Ok(())
    }

    /// Makes the groups; what they will run waits for a word.
    fn gather(&self, scenario: &Scenario) -> Result<Crowd> {
        let commands = GroupCommand::of(scenario, self.enforcer);
        let mut crowd = Crowd {
            running: Vec::with_capacity(commands.len()),
            leashes: Vec::with_capacity(commands.len()),
            commands,
        };
        for (command, group) in crowd.commands.iter().zip(&scenario.groups) {
            let what = format!("bench: group {}", group.name);
            let arguments = command.arguments(&self.program);
            let mut running = Running::start(&self.program, arguments, what, Leash::Stdin)?;
            crowd.leashes.extend(running.take_leash());
            crowd.running.push(running);
        }
        Ok(crowd)
    }

    /// Waits until all groups answer. `false`: somebody asked for an end.
    fn wait_for_groups(&self, crowd: &mut Crowd, stop: &Stop) -> Result<bool> {
        let end = Instant::now() + PATIENCE;
        loop {
            crowd.check()?;
            let mut all_there = true;
            for command in &crowd.commands {
                let there = control::ask(&self.runtime, &command.name, Request::Show);
                all_there &= matches!(there, Ok(Some(_)));
            }
            if all_there {
                return Ok(true);
            }
            if Instant::now() > end {
                let problem = "bench: the groups were not there in a minute";
                return Err(CommandError::Other(problem.into()));
            }
            if stop.wait(LOOK_EVERY) {
                return Ok(false);
            }
        }
    }

    /// What each group has used so far.
    fn samples(&self, crowd: &mut Crowd) -> Result<Vec<Sample>> {
        let names = crowd.commands.iter().map(|command| command.name.clone());
        let mut samples = Vec::with_capacity(crowd.commands.len());
        for name in names.collect::<Vec<_>>() {
            let state = control::ask(&self.runtime, &name, Request::Show)?;
            match state.and_then(|state| state.statistics) {
                Some(sample) => samples.push(sample),
                None => {
                    crowd.check()?;
                    let problem = format!("bench: group {name} is not there any more");
                    return Err(CommandError::Other(problem));
                }
            }
        }
        Ok(samples)
    }

    /// Reads the reports of a group's workloads. Those of a run that was ended
    /// early may be missing.
    fn work(
        &self,
        workloads: &[Workload],
        ended: &Ended,
        complete: bool,
    ) -> Result<Vec<Option<RealWork>>> {
        let mut lines = ended.output().lines();
        let units = self.units_per_second.get().copied().unwrap_or(1.0);
        let work: Vec<_> = workloads
            .iter()
            .map(|workload| report(workload, lines.next().unwrap_or_default(), units))
            .collect();
        if complete && work.iter().any(Option::is_none) {
            return Err(ended.failure());
        }
        Ok(work)
    }
}

impl Crowd {
    /// The word at which all workloads begin.
    fn start(&mut self) -> Result<()> {
        for leash in &mut self.leashes {
            leash
                .write_all(b"\n")
                .map_err(CommandError::io("bench: cannot start a group"))?;
        }
        Ok(())
    }

    /// The failure of a group that has ended, if one has.
    fn check(&mut self) -> Result<()> {
        for index in 0..self.running.len() {
            if self.running[index].has_ended()? {
                return Err(self.running.swap_remove(index).finish()?.failure());
            }
        }
        Ok(())
    }

    /// Waits until a moment. `false`: somebody asked for an end before it.
    fn wait(
        &mut self,
        until: Instant,
        stop: &Stop,
        mut progress: impl FnMut(Duration),
        planned: Instant,
    ) -> Result<bool> {
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(true);
            }
            progress(planned.saturating_duration_since(now));
            let left = until.saturating_duration_since(now);
            if stop.wait(left.min(LOOK_EVERY)) {
                return Ok(false);
            }
            // A group that a signal from the terminal has ended is no failure.
            if let Err(failure) = self.check() {
                return if stop.is_set() {
                    Ok(false)
                } else {
                    Err(failure)
                };
            }
        }
    }

    /// Ends all groups and takes what they printed.
    fn finish(mut self) -> Result<Vec<(GroupCommand, Ended)>> {
        // The end of a leash is told by the reader's end of the pipe.
        self.leashes.clear();
        let end = Instant::now() + PATIENCE;
        for running in &mut self.running {
            while Instant::now() < end && !running.has_ended()? {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        let commands = std::mem::take(&mut self.commands);
        let ended = self.running.drain(..).map(Running::finish);
        commands
            .into_iter()
            .zip(ended)
            .map(|(command, ended)| Ok((command, ended?)))
            .collect()
    }
}

/// The report of a workload from its line of JSON.
fn report(workload: &Workload, line: &str, units_per_second: f64) -> Option<RealWork> {
    fn read<T: DeserializeOwned>(line: &str) -> Option<T> {
        let document: plimsoll_load::Document<T> = serde_json::from_str(line).ok()?;
        Some(document.report)
    }
    Some(match workload {
        Workload::Service(_) => RealWork::Service(Box::new(read(line)?)),
        Workload::Burn(_) => RealWork::Burn(read(line)?, units_per_second),
        Workload::Storm(_) => RealWork::Storm(read(line)?),
        Workload::Need(_) => RealWork::Need(read(line)?),
        Workload::Steady(_) => RealWork::Steady(read(line)?),
        Workload::Wake(_) => RealWork::Wake(read(line)?),
    })
}

fn usage_between(before: &Sample, after: &Sample) -> Duration {
    Duration::from_micros(after.usage_usec.saturating_sub(before.usage_usec))
}

/// What was counted meanwhile.
fn bandwidth_between(before: &Sample, after: &Sample) -> Option<CpuStat> {
    let (before, after) = (before.quota?, after.quota?);
    Some(CpuStat {
        nr_periods: after.nr_periods.saturating_sub(before.nr_periods),
        nr_throttled: after.nr_throttled.saturating_sub(before.nr_throttled),
        throttled_usec: after.throttled_usec.saturating_sub(before.throttled_usec),
        nr_bursts: after.nr_bursts.saturating_sub(before.nr_bursts),
        burst_usec: after.burst_usec.saturating_sub(before.burst_usec),
    })
}
