//! `plimsoll restore`: undo what earlier processes left behind.

use std::process::ExitCode;

use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::{self, UndoReport};
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::error::{EXIT_FAILED, Result};
use crate::output;

#[derive(Serialize)]
struct Restored {
    undone: Vec<String>,
    problems: Vec<String>,
}

/// Undoes it, and removes what was only for reading.
fn recover(runtime: &RuntimeFolder) -> Result<UndoReport> {
    let lock = runtime.lock()?;
    #[allow(
        unused_mut,
        reason = "a build without the scheduler has no more to undo"
    )]
    let mut report = undo::recover(runtime, &lock, true)?;
    #[cfg(feature = "sched-ext")]
    match plimsoll_scx::Host::clean_up(runtime, &lock) {
        Ok(removed) => report.undone.extend(removed),
        Err(error) => report.problems.push(error.to_string()),
    }
    Ok(report)
}

/// Undoes everything that no living process keeps, and every `set`.
pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let runtime = RuntimeFolder::of_this_user();
    runtime.create()?;
    let report = recover(&runtime)?;
    let good = report.problems.is_empty();
    if args.json {
        let document = Restored {
            undone: report.undone,
            problems: report.problems,
        };
        output::print_json("plimsoll.restore/1", &document)?;
    } else {
        if report.undone.is_empty() {
            output::print_line("nothing was left behind")?;
        }
        for name in &report.undone {
            output::print_line(&format!("undone: {name}"))?;
        }
        crate::run::session::report_problems(&report);
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    })
}
