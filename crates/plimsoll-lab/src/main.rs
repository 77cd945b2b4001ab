//! The lab: compares Plimsoll with its alternatives on a kernel in virtual time.
//!
//! A cell of its matrix is a kernel, a number of CPUs, a policy and a workload. The host boots a
//! guest for each (`vm/run --virtual-time`); the guest prints figures; the host stores them and
//! generates `docs/results.md`.

mod cell;
mod cpus;
mod error;
mod guest;
mod guests;
mod host;
mod inversions;
mod lines_file;
mod load;
mod matrix;
mod named;
mod policy;
mod promises;
mod report;
mod results;
mod workload;

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cell::Cell;
use error::{LabError, Result};
use promises::{Measurement, printed};
use results::Results;

/// The committed figures, below the project's folder, in which this program runs.
const RESULTS: &str = "docs/results.json";
const PROMISES: &str = "docs/promises.json";

#[derive(Debug, Parser)]
#[command(
    name = "plimsoll-lab",
    about = "Plimsoll beside its peers on a kernel in virtual time"
)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure cells; reuses results of the same programs
    Run {
        /// One cell, KERNEL/CPUS/POLICY/WORKLOAD; may be repeated [default: a selection]
        #[arg(long)]
        cell: Vec<String>,
        /// The whole matrix
        #[arg(long, conflicts_with = "cell")]
        full: bool,
        /// Number of guests at a time, 1 to 64; each keeps one core busy
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
        jobs: u8,
        /// Also write all results into this file, replacing earlier figures of the same cells
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// List the cells
    List {
        /// The whole matrix
        #[arg(long)]
        full: bool,
    },
    /// Measure what SPEC promises, in several guests each; reuses figures of the same programs
    Promises {
        #[command(flatten)]
        measurement: Measurement,
        /// Also write the rows into this file, replacing earlier ones of the same tests
        #[arg(long)]
        write: Option<PathBuf>,
    },
    /// Generate docs/results.md, its plots and the tables of README.md and docs/scheduler.md
    Report {
        /// Write nothing; fail if they differ from docs/results.json
        #[arg(long)]
        check: bool,
    },
    /// Measure a cell in a guest
    #[command(hide = true)]
    Guest { cell: String },
    /// Run the benchmark of switches in a guest
    #[command(hide = true)]
    Pipe,
    /// Run a workload that only the lab has
    #[command(hide = true, subcommand)]
    Load(load::Load),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll-lab: {error}");
            ExitCode::from(1)
        }
    }
}

fn run(action: Action) -> Result<()> {
    match action {
        Action::Run {
            cell,
            full,
            jobs,
            write,
        } => {
            let cells = cells(&cell, full)?;
            let (found, failed) = host::measure(&cells, jobs.into())?;
            report::print(&found, Path::new(RESULTS));
            if let Some(path) = write {
                lines_file::merge(&path, found)?;
            }
            if failed > 0 {
                Err(LabError::Failed(failed))
            } else {
                Ok(())
            }
        }
        Action::List { full } => {
            let names = cells(&[], full)?
                .into_iter()
                .map(|cell| format!("{cell}\n"));
            let text: String = names.collect();
            match std::io::stdout().write_all(text.as_bytes()) {
                // The reader has closed the pipe.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                done => done.map_err(LabError::file("standard output")),
            }
        }
        Action::Promises { measurement, write } => promises(measurement, write),
        Action::Report { check } => {
            let results = Results::read(Path::new(RESULTS))?;
            let promises = lines_file::read(Path::new(PROMISES))?;
            let act = if check { report::check } else { report::write };
            act(&results, &promises)
        }
        Action::Guest { cell } => guest::run(&cell.parse()?),
        Action::Pipe => guest::pipe_back_and_forth(),
        Action::Load(load) => load.run(),
    }
}

/// Measures promises. Those that could not be measured are an error; those that are missed are not.
fn promises(measurement: Measurement, write: Option<PathBuf>) -> Result<()> {
    let is_all = measurement.filter.is_none();
    let (rows, failed) = measurement.run()?;
    print!("{}", printed(&rows));
    if let Some(path) = write {
        if is_all && failed == 0 {
            // The rows of tests that no longer exist go, too.
            lines_file::write(&path, rows)?;
        } else {
            lines_file::merge(&path, rows)?;
        }
    }
    if failed > 0 {
        Err(LabError::Failed(failed))
    } else {
        Ok(())
    }
}

fn cells(names: &[String], full: bool) -> Result<Vec<Cell>> {
    if !names.is_empty() {
        return names.iter().map(|name| name.parse()).collect();
    }
    Ok(if full {
        matrix::full()
    } else {
        matrix::chosen()
    })
}
