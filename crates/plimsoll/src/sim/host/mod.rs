//! `plimsoll sim host`: a scenario on the model of a host.
//!
//! | file | subject |
//! | --- | --- |
//! | `drive` | running the model to its end, or until somebody asks for one |
//! | `watch` | what is looked at meanwhile |
//! | `timeline` | the Chrome trace of what ran where |
//! | `usage` | the machine's use over time |
//! | `outcome` | what it came to; the JSON schema |
//! | `table` | the tables on the terminal |
//! | `plot` | the pictures |

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

use crate::error::{CommandError, Result};
use crate::output::{self, Picture, Progress};
use outcome::{Outcome, RunOutcome, SCHEMA};
use timeline::TimelineFile;
use usage::Usage;
use watch::Watch;

/// Shown below the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll sim host scenarios/burst.toml
  plimsoll sim host scenarios/bt-1.toml --variant batch --seed 7 --duration 60s
  plimsoll sim host scenarios/burst.toml --trace-out burst.json --plot burst.svg

A trace opens in https://ui.perfetto.dev or chrome://tracing.";

/// Which scenario, and what of it is changed.
#[derive(Debug, Clone, clap::Args)]
pub struct ScenarioArgs {
    /// The scenario, a TOML file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Run this variant of it alone [default: all]
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Seed, in place of the file's
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seed: Option<u64>,
    /// Measured time, in place of the file's, such as 30s
    #[arg(long, value_name = "TIME", value_parser = plimsoll_load::cli::duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
}

impl ScenarioArgs {
    /// Reads the file.
    pub fn read(&self) -> Result<ScenarioFile> {
        let overrides = Overrides {
            seed: self.seed,
            duration: self.duration,
        };
        let refused =
            |error: plimsoll_sim::scenario::FileError| CommandError::Other(error.to_string());
        let file = ScenarioFile::read(&self.file, overrides).map_err(refused)?;
        match &self.variant {
            None => Ok(file),
            Some(name) => {
                let shown = self.file.display().to_string();
                file.only(&shown, name).map_err(refused)
            }
        }
    }
}

/// Arguments of `sim host`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Write what ran where into this file, in the Chrome trace format
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,
    /// Draw utilisation over time and latencies into this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the scenario, all its variants one after another, and prints what they came to.
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
    // Whatever becomes of the rest, the files hold what was simulated.
    let written = write_files(timeline, picture, &outcome, &usages);
    simulated?;
    if !outcome.runs.is_empty() {
        print(&outcome, args.json)?;
    }
    written?;
    Ok(exit_code(&stop))
}

/// Refuses to write over the scenario, and two things into one file.
fn check_outputs(args: &Args) -> Result<()> {
    let outputs = [("trace-out", &args.trace_out), ("plot", &args.plot)];
    let mut taken = vec![whole(&args.scenario.file)];
    for (field, path) in outputs {
        let Some(path) = path else { continue };
        if taken.contains(&whole(path)) {
            return Err(CommandError::Other(format!(
                "{field}: `{}` is the scenario's or another output's file; allowed: one of its own",
                path.display()
            )));
        }
        taken.push(whole(path));
    }
    Ok(())
}

/// A file's one name, by whichever it was given; it need not be there yet.
fn whole(path: &Path) -> PathBuf {
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

/// 0, or that of the signal which ended it.
pub fn exit_code(stop: &Stop) -> ExitCode {
    match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None => ExitCode::SUCCESS,
    }
}

/// The file's name as it was given.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
