//! Runs a scenario on this machine, and collects the results.

use std::cell::OnceCell;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CpuStat, Hierarchy};
use plimsoll_engine::enforcer::Sample;
use plimsoll_load::{
    Burn, BurnConfig, BurnReport, NeedReport, ServiceReport, SteadyReport, Stop, StormReport,
    WakeReport,
};
use plimsoll_sim::scenario::{Run, Scenario, Workload};
use serde::de::DeserializeOwned;

use super::commands::GroupCommand;
use crate::cli::EnforcerChoice;
use crate::error::{CommandError, Result, WorkloadError};
use crate::meter::Meter;
use crate::nested::{Ended, Leash, Running};
use crate::output::Progress;
use crate::owner::Owner;

/// Time limit for groups to start; loading a scheduler takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which groups are checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time within which a signal to all processes of a session may end groups
/// before it reaches this process.
const SIGNAL_SPREAD: Duration = Duration::from_millis(200);
/// Duration for which one burner runs alone to calibrate a CPU.
const CALIBRATION: Duration = Duration::from_millis(500);

/// This machine.
pub struct Machine {
    hierarchy: Arc<Hierarchy>,
    program: PathBuf,
    enforcer: EnforcerChoice,
    cpus: u32,
    /// Units that a burner completes in a second of CPU time when it runs
    /// alone; calibrated on first use.
    units_per_second: OnceCell<f64>,
}

/// Results of a scenario on this machine.
#[derive(Debug, Clone)]
pub struct RealOutcome {
    /// Whether it reached its planned end.
    pub complete: bool,
    /// Time measured.
    pub measured: Duration,
    /// Utilisation of the machine, other programs included.
    pub busy_ratio: f64,
    /// In the order of the scenario.
    pub groups: Vec<RealGroup>,
    /// Warnings of `run`.
    pub notes: Vec<String>,
}

/// Results of a group on this machine. Its own figures exclude the warm-up.
#[derive(Debug, Clone)]
pub struct RealGroup {
    /// CPU time used ÷ time measured.
    pub cpus_used: f64,
    /// The kernel's counters, if it has a quota.
    pub bandwidth: Option<CpuStat>,
    /// Reports of its workloads, in the order of the scenario; `None` for a
    /// workload that printed none.
    pub work: Vec<Option<RealWork>>,
    /// Commands that ran, as a user would type them.
    pub commands: Vec<String>,
}

/// The report of a workload.
#[derive(Debug, Clone)]
pub enum RealWork {
    /// Report of requests.
    Service(Box<ServiceReport>),
    /// Report of burners, and the units that one of them completes alone in a
    /// second of CPU time.
    Burn(BurnReport, f64),
    /// Report of short-lived processes.
    Storm(StormReport),
    /// Report of a fixed amount of CPU time.
    Need(NeedReport),
    /// Report of a fixed share of the machine.
    Steady(SteadyReport),
    /// Report of periodic wake-ups.
    Wake(WakeReport),
}

/// Running groups of a scenario.
struct RunningGroups {
    commands: Vec<GroupCommand>,
    running: Vec<Running>,
    /// Pipes to the launchers; closing them ends the groups.
    pipes: Vec<ChildStdin>,
}

impl Machine {
    /// Creates the machine; `enforcer` enforces the knobs of groups.
    pub fn new(hierarchy: Arc<Hierarchy>, enforcer: EnforcerChoice) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(CommandError::io("bench: cannot find plimsoll itself"))?;
        Ok(Self {
            hierarchy,
            program,
            enforcer,
            cpus: u32::try_from(plimsoll_load::available_cpus()).unwrap_or(u32::MAX),
            units_per_second: OnceCell::new(),
        })
    }

    /// Runs a scenario. `None` if it was interrupted before the measurement, or
    /// together with the groups. On every exit, all groups are ended.
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
        let mut crowd = self.create_groups(&run.scenario)?;
        if !self.wait_for_groups(&mut crowd, stop)? {
            return Ok(None);
        }
        let mut meter = Meter::start(&self.hierarchy, self.cpus)?;
        let started = Instant::now();
        crowd.start()?;
        let warmed_up = started + Duration::from_nanos(run.scenario.warmup_ns);
        let planned = warmed_up + Duration::from_nanos(run.scenario.duration_ns);
        let mut wait = |until: Instant, crowd: &mut RunningGroups| {
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

    /// Calibrates a CPU, if needed and not done before.
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
        // Cannot fail, because this is the only place that sets it.
        let _ = self
            .units_per_second
            .set(report.units as f64 / report.cpu_seconds.max(1e-9));
        Ok(())
    }

    /// Creates the groups; their workloads wait for the start command.
    fn create_groups(&self, scenario: &Scenario) -> Result<RunningGroups> {
        let commands = GroupCommand::of(scenario, self.enforcer);
        let mut crowd = RunningGroups {
            running: Vec::with_capacity(commands.len()),
            pipes: Vec::with_capacity(commands.len()),
            commands,
        };
        for (command, group) in crowd.commands.iter().zip(&scenario.groups) {
            let what = format!("bench: group {}", group.name);
            let arguments = command.arguments(&self.program);
            let mut running = Running::start(&self.program, arguments, what, Leash::Stdin)?;
            crowd.pipes.extend(running.take_leash());
            crowd.running.push(running);
        }
        Ok(crowd)
    }

    /// Waits until all groups answer. Returns `false` if interrupted.
    fn wait_for_groups(&self, crowd: &mut RunningGroups, stop: &Stop) -> Result<bool> {
        let end = Instant::now() + PATIENCE;
        loop {
            crowd.check()?;
            let mut all_there = true;
            for command in &crowd.commands {
                all_there &= sample_of(&command.name)?.is_some();
            }
            if all_there {
                return Ok(true);
            }
            if Instant::now() > end {
                return Err(WorkloadError::GroupsNotStarted.into());
            }
            if stop.wait(LOOK_EVERY) {
                return Ok(false);
            }
        }
    }

    /// Usage of each group so far.
    fn samples(&self, crowd: &mut RunningGroups) -> Result<Vec<Sample>> {
        let names = crowd.commands.iter().map(|command| command.name.clone());
        let mut samples = Vec::with_capacity(crowd.commands.len());
        for name in names.collect::<Vec<_>>() {
            match sample_of(&name)? {
                Some(sample) => samples.push(sample),
                None => {
                    crowd.check()?;
                    return Err(WorkloadError::GroupEnded { group: name }.into());
                }
            }
        }
        Ok(samples)
    }

    /// Reads the reports of a group's workloads. Reports of an interrupted run
    /// may be missing.
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

impl RunningGroups {
    /// Starts all workloads.
    fn start(&mut self) -> Result<()> {
        for leash in &mut self.pipes {
            leash
                .write_all(b"\n")
                .map_err(CommandError::io("bench: cannot start a group"))?;
        }
        Ok(())
    }

    /// Returns the error of a group that has ended, if one has.
    fn check(&mut self) -> Result<()> {
        for index in 0..self.running.len() {
            if self.running[index].has_ended()? {
                return Err(self.running.swap_remove(index).finish()?.failure());
            }
        }
        Ok(())
    }

    /// Waits until a time. Returns `false` if interrupted.
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
            // A group that was ended by a signal from the terminal is not a
            // failure.
            if let Err(failure) = self.check() {
                return if stop.is_set() {
                    Ok(false)
                } else {
                    Err(failure)
                };
            }
        }
    }

    /// Ends all groups and collects their output.
    fn finish(mut self) -> Result<Vec<(GroupCommand, Ended)>> {
        // Closing the pipe is what ends a launcher.
        self.pipes.clear();
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

/// What a group has used so far. `None`: it is not there yet, or not any more.
fn sample_of(name: &str) -> Result<Option<Sample>> {
    let owners = Owner::all()?.into_iter();
    let mut groups = owners.filter_map(|mut owner| owner.group(name).ok()?);
    Ok(groups.find_map(|group| group.statistics))
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

/// Bandwidth statistics between two samples.
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
