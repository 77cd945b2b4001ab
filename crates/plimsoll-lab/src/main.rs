//! The lab: compares Plimsoll with its alternatives on a kernel in virtual time.
//!
//! A cell of its matrix is a kernel, a number of CPUs, a policy and a workload. The host boots a
//! guest for each (`vm/run --virtual-time`); the guest prints figures; the host stores them and
//! generates `docs/results.md`.

mod cell;
mod cpus;
mod error;
mod guest;
mod host;
mod inversions;
mod matrix;
mod policy;
mod report;
mod results;
mod workload;

use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cell::Cell;
use error::{LabError, Result};
use host::Host;
use results::{Folder, Results};

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
        /// Ignore earlier results
        #[arg(long)]
        again: bool,
        /// Number of guests at a time, 1 to 64; each keeps one core busy
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
        jobs: u8,
        /// The project's folder
        #[arg(long, default_value = ".")]
        root: PathBuf,
        /// The plimsoll to measure
        #[arg(long, default_value = "target/lab/plimsoll")]
        plimsoll: PathBuf,
        /// Folder of the results
        #[arg(long, default_value = "target/lab/cells")]
        results: PathBuf,
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
    /// Generate docs/results.md, its plots and the README's table from docs/results.json
    Report {
        /// Write nothing; fail if they differ from docs/results.json
        #[arg(long)]
        check: bool,
        /// The project's folder
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
    /// Measure a cell in a guest
    #[command(hide = true)]
    Guest { cell: String },
    /// Run the benchmark of switches in a guest
    #[command(hide = true)]
    Pipe,
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
            again,
            jobs,
            root,
            plimsoll,
            results,
            write,
        } => {
            let cells = cells(&cell, full)?;
            let absolute = |path: PathBuf| path.canonicalize().map_err(LabError::file(path));
            let host = Host {
                root: absolute(root)?,
                plimsoll: absolute(plimsoll)?,
                folder: Folder::open(&results)?,
                jobs: jobs.into(),
            };
            let (found, failed) = host.measure(&cells, again);
            report::print(&found, &host.root.join("docs/results.json"));
            if let Some(path) = write {
                let mut all = if path.exists() {
                    Results::read(&path)?
                } else {
                    Results::default()
                };
                all.cells
                    .retain(|old| found.iter().all(|new| new.cell != old.cell));
                all.cells.extend(found);
                all.write(&path)?;
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
        Action::Report { check, root } => {
            let results = Results::read(&root.join("docs/results.json"))?;
            let act = if check { report::check } else { report::write };
            act(&results, &root)
        }
        Action::Guest { cell } => guest::run(&cell.parse()?),
        Action::Pipe => guest::pipe_back_and_forth(),
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
