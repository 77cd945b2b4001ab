//! `plimsoll restore`: undo what earlier processes left behind.

use std::process::ExitCode;

use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo;
use serde::Serialize;

use crate::cli::OutputArgs;
use crate::error::{EXIT_FAILED, Result};
use crate::output;

#[derive(Serialize)]
struct Restored {
    undone: Vec<String>,
    problems: Vec<String>,
}

/// Undoes everything that no living process keeps, and every `set`.
pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let runtime = RuntimeFolder::of_this_user();
    runtime.create()?;
    let report = undo::recover(&runtime, &runtime.lock()?, true)?;
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
