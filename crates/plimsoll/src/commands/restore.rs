//! `plimsoll restore`: undo what earlier processes left behind.

use std::fs;
use std::process::ExitCode;

use plimsoll_daemon::control::protocol::SOCKET;
use plimsoll_daemon::service;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::{self, UndoReport};
use serde::Serialize;

use crate::cli::RestoreArgs;
use crate::daemon;
use crate::error::{CommandError, EXIT_FAILED, Result};
use crate::output;

#[derive(Serialize)]
struct Restored {
    undone: Vec<String>,
    problems: Vec<String>,
}

/// Undoes it, and removes what was only for reading. `everything`: every
/// `set`, too.
fn recover(runtime: &RuntimeFolder, everything: bool) -> Result<UndoReport> {
    let lock = runtime.lock()?;
    let mut report = UndoReport::default();
    // First the scheduler, so that its tasks are ordinary ones.
    #[cfg(feature = "sched-ext")]
    match plimsoll_scx::Host::clean_up(runtime, &lock) {
        Ok(cleaned) => report = cleaned,
        Err(error) => report.problems.push(error.to_string()),
    }
    report.extend(undo::recover(runtime, &lock, everything)?);
    Ok(report)
}

/// Nobody listens there any more.
fn remove_socket(runtime: &RuntimeFolder) {
    // The next daemon replaces one that cannot be removed.
    let _ = fs::remove_file(runtime.path().join(SOCKET));
}

/// What a daemon left behind that is gone. What was asked of it stays written
/// down for the next one.
fn recover_from_daemon() -> Result<UndoReport> {
    let runtime = RuntimeFolder::of_this_host();
    runtime.create()?;
    let Ok(_kept_out) = daemon::keep_out(&runtime)? else {
        return Ok(UndoReport::default());
    };
    remove_socket(&runtime);
    // Whatever comes of it, nothing may stay limited.
    let handed_over = service::hand_over(&runtime);
    let mut report = recover(&runtime, false)?;
    match handed_over {
        Ok(problem) => report.problems.extend(problem),
        Err(error) => {
            let problem = format!("cannot note who is in which group: {error}");
            report.problems.push(problem);
        }
    }
    Ok(report)
}

/// What nobody keeps any more, and every `set`; also those that no daemon
/// keeps now, but the next one would.
fn recover_everything() -> Result<UndoReport> {
    let runtime = RuntimeFolder::of_this_user();
    runtime.create()?;
    if runtime != RuntimeFolder::of_this_host() {
        return recover(&runtime, true);
    }
    let kept_out = daemon::keep_out(&runtime)?;
    let mut report = recover(&runtime, true)?;
    if kept_out.is_ok() {
        remove_socket(&runtime);
        let forgotten = service::forget(&runtime);
        let failed = CommandError::io("cannot forget what was set for the daemon");
        report.undone.extend(forgotten.map_err(failed)?);
    }
    Ok(report)
}

/// Undoes everything that no living process keeps, and every `set`.
pub fn run(args: RestoreArgs) -> Result<ExitCode> {
    let report = if args.of_daemon {
        recover_from_daemon()?
    } else {
        recover_everything()?
    };
    let good = report.problems.is_empty();
    if args.output.json {
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
