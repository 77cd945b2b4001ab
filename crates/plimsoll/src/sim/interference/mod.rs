//! `plimsoll sim interference`: simulates the cost of bursts of some groups to
//! the others.
//!
//! | file | subject |
//! | --- | --- |
//! | `rows` | arguments that determine the rows |
//! | `outcome` | results; the JSON schema |
//! | `table` | tables on the terminal |
//! | `plot` | picture |

mod outcome;
mod plot;
mod rows;
mod table;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_load::Stop;
use plimsoll_sim::interference::published::{self, PublishedRow};
use plimsoll_sim::interference::{CellReport, Experiment, Watch};

use crate::error::{CommandError, Result};
use crate::output::{self, Progress, ResultFile, print_line};
use outcome::{InterferenceOutcome, SCHEMA};

/// Examples at the end of the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll sim interference --mean 70% --groups 10 --burst 100%,400%
  plimsoll sim interference --samples usage.csv --groups 20 --correlation 0.3
  plimsoll sim interference --group quota=50%,mean=60%,burst=100% \\
      --group quota=10%,mean=80%,burst=unlimited,count=5
  plimsoll sim interference --published --plot published.svg";

/// Interval at which progress is updated.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Arguments of `sim interference`.
#[derive(Debug, clap::Args)]
pub struct InterferenceArgs {
    #[command(flatten)]
    rows: rows::RowArgs,
    /// Reproduce the table of the source, and print its figures for comparison
    #[arg(
        long,
        conflicts_with_all = [
            "distribution", "samples", "mean", "groups", "burst", "group", "correlation"
        ]
    )]
    published: bool,
    /// Periods of each cell
    #[arg(long, value_name = "N", default_value_t = published::PERIODS, allow_hyphen_values = true)]
    periods: u64,
    /// Seed: the same seed gives the same result
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_hyphen_values = true
    )]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Plot P(WCET > 1) against utilisation to this file, which ends in .svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Runs the experiment and prints the results.
pub fn run(args: &InterferenceArgs) -> Result<ExitCode> {
    let source = if args.published {
        published::rows()
    } else {
        Vec::new()
    };
    let experiment = Experiment {
        rows: match args.published {
            true => source.iter().map(PublishedRow::row).collect(),
            false => args.rows.rows()?,
        },
        periods: args.periods,
        seed: args.seed,
    };
    experiment.check()?;
    let picture = args.plot.as_deref().map(picture).transpose()?;
    let stop = Stop::on_signals()?;
    let reports = simulate(&experiment, &stop)?;
    let outcome = InterferenceOutcome::new(&experiment, reports, &source);
    if outcome.cells.is_empty() {
        return Ok(exit_code(&stop));
    }
    let drawn = match picture {
        Some(picture) => plot::draw(&outcome).and_then(|svg| picture.write(&svg)),
        None => Ok(()),
    };
    print(&outcome, args)?;
    drawn?;
    Ok(exit_code(&stop))
}

fn picture(path: &Path) -> Result<ResultFile> {
    if path.extension().is_none_or(|end| end != "svg") {
        return Err(CommandError::PictureFormat(path.to_owned()));
    }
    ResultFile::open("plot", path)
}

/// Exit code: 0, or that of the signal that interrupted the run.
fn exit_code(stop: &Stop) -> ExitCode {
    match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None => ExitCode::SUCCESS,
    }
}

/// Runs the experiment on a thread for each CPU, and shows its progress.
fn simulate(experiment: &Experiment, stop: &Stop) -> Result<Vec<Vec<CellReport>>> {
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let watch = Watch {
        is_over: &|| stop.is_set(),
        done: &done,
    };
    let work = experiment.work().max(1);
    let mut progress = Progress::new();
    let here = std::thread::current();
    let reports = std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let reports = experiment.run(threads, &watch);
            is_over.store(true, Ordering::Release);
            here.unpark();
            reports
        });
        // Also checks the thread itself, which may have panicked.
        while !is_over.load(Ordering::Acquire) && !running.is_finished() {
            progress.show(|| {
                let share = done.load(Ordering::Relaxed) as f64 / work as f64;
                let cells: usize = experiment.rows.iter().map(|row| row.columns.len()).sum();
                format!(
                    "{cells} cells simulated to {:.0} %",
                    (100.0 * share).min(100.0)
                )
            });
            std::thread::park_timeout(LOOK_EVERY);
        }
        running.join()
    });
    drop(progress);
    match reports {
        Ok(reports) => Ok(reports?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn print(outcome: &InterferenceOutcome, args: &InterferenceArgs) -> Result<()> {
    if args.json {
        return output::print_json(SCHEMA, outcome);
    }
    print_line(&table::text(outcome))
}
