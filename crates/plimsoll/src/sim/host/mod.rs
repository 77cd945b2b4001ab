//! `plimsoll sim host`: runs a scenario in the host simulator.
//!
//! | file | subject |
//! | --- | --- |
//! | `drive` | running the simulation to its end, or until it is interrupted |
//! | `watch` | observers of the simulation |
//! | `timeline` | Chrome trace of all runs of tasks |
//! | `usage` | utilisation of the machine over time |
//! | `outcome` | results; the JSON schema |
//! | `table` | tables on the terminal |
//! | `plot` | pictures |

pub mod drive;
pub mod outcome;
mod plot;
pub mod table;
mod timeline;
mod usage;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_load::Stop;
use plimsoll_sim::scenario::{Overrides, Run, ScenarioFile};

use crate::error::{Result, UsageError};
use crate::output::{self, Picture, Progress};
use outcome::{Outcome, RunOutcome, SCHEMA};
use timeline::TimelineFile;
use usage::Usage;
use watch::Watch;

/// Examples at the end of the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll sim host scenarios/burst.toml
  plimsoll sim host scenarios/bt-1.toml --variant batch --seed 7 --duration 60s
  plimsoll sim host scenarios/burst.toml --trace-out burst.json --plot burst.svg

A trace opens in https://ui.perfetto.dev or chrome://tracing.";

/// A scenario, and overrides of its settings.
#[derive(Debug, Clone, clap::Args)]
pub struct ScenarioArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Run only this variant [default: all]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Seed; overrides the file's
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<u64>,
    /// Measured time, such as 30s; overrides the file's
    #[arg(long, value_name = "TIME", value_parser = plimsoll_load::cli::duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
}

impl ScenarioArgs {
    /// Reads the file and applies the overrides.
    pub fn read(&self) -> Result<ScenarioFile> {
        let overrides = Overrides {
            seed: self.seed,
            duration: self.duration,
        };
        let file = ScenarioFile::read(&self.file, overrides)?;
        match &self.variant {
            None => Ok(file),
            Some(name) => {
                let shown = self.file.display().to_string();
                Ok(file.only(&shown, name)?)
            }
        }
    }
}

/// Arguments of `sim host`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Write a trace of all runs of tasks to this file, in the Chrome trace
    /// format
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,
    /// Plot utilisation over time and latencies to this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs all variants of the scenario one after another, and prints the results.
pub fn run(args: &Args) -> Result<ExitCode> {
    let file = args.scenario.read()?;
    check_outputs(args)?;
    let picture = args.plot.as_deref().map(Picture::check).transpose()?;
    let mut timeline = match &args.trace_out {
        Some(path) => Some(TimelineFile::create(path, file.runs.len())?),
        None => None,
    };
    let stop = Stop::on_signals()?;
    let mut outcome = Outcome::new(&args.scenario.file, &file);
    let mut usages = Vec::new();
    let mut progress = Progress::new();
    let mut each = |run: &Run| -> Result<()> {
        let watch = Watch {
            timeline: timeline.as_mut().map(|file| file.begin(run)),
            usage: picture.is_some().then(|| Usage::of(&run.scenario)),
        };
        let (done, watch) = simulate(run, watch, &stop, file.runs.len(), &mut progress)?;
        usages.extend(watch.usage);
        outcome.runs.push(done);
        Ok(())
    };
    let mut runs = file.runs.iter().take_while(|_| !stop.is_set());
    let simulated = runs.try_for_each(&mut each);
    drop(progress);
    // Written even if a later step fails, so that the files hold the simulated
    // part.
    let written = write_files(timeline, picture, &outcome, &usages);
    simulated?;
    if !outcome.runs.is_empty() {
        print(&outcome, args.json)?;
    }
    written?;
    Ok(exit_code(&stop))
}

/// Refuses outputs that would overwrite the scenario or each other.
fn check_outputs(args: &Args) -> Result<()> {
    let outputs = [("trace-out", &args.trace_out), ("plot", &args.plot)];
    let mut taken = vec![canonical(&args.scenario.file)];
    for (field, path) in outputs {
        let Some(path) = path else { continue };
        if taken.contains(&canonical(path)) {
            let path = path.clone();
            return Err(UsageError::OutputTaken { field, path }.into());
        }
        taken.push(canonical(path));
    }
    Ok(())
}

/// Canonical path of a file that may not exist yet.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Ends the trace and draws the picture.
fn write_files(
    timeline: Option<TimelineFile>,
    picture: Option<Picture>,
    outcome: &Outcome,
    usages: &[Usage],
) -> Result<()> {
    let timeline = timeline.map_or(Ok(()), TimelineFile::finish);
    if let Some(picture) = picture.filter(|_| !outcome.runs.is_empty()) {
        picture.write(&plot::draw(outcome, usages)?)?;
    }
    timeline
}

/// Runs one scenario of a file.
fn simulate<'a>(
    run: &Run,
    watch: Watch<'a>,
    stop: &Stop,
    of: usize,
    progress: &mut Progress,
) -> Result<(RunOutcome, Watch<'a>)> {
    let name = run.variant.as_deref().filter(|_| of > 1);
    let mut tell = |so_far: &drive::SoFar| progress.show(|| so_far.line(name));
    let (report, watch) = if watch.is_blind() {
        let (report, ()) = drive::to_the_end(&run.scenario, (), stop, &mut tell)?;
        (report, watch)
    } else {
        drive::to_the_end(&run.scenario, watch, stop, &mut tell)?
    };
    Ok((RunOutcome::new(run, report), watch))
}

fn print(outcome: &Outcome, json: bool) -> Result<()> {
    if json {
        output::print_json(SCHEMA, outcome)
    } else {
        table::print(outcome)
    }
}

/// Exit code: 0, or that of the signal that interrupted the run.
pub fn exit_code(stop: &Stop) -> ExitCode {
    match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None => ExitCode::SUCCESS,
    }
}

/// Name of the file, as given.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
