//! Undo of changes left behind by owners that have exited.

use std::path::Path;

use plimsoll_cgroupfs::os;

use super::{UndoReport, undo_journal};
use crate::error::Result;
use crate::journal::{self, Journal};
use crate::runtime::RuntimeFolder;

/// Undoes the journals of owners that have exited. A journal that cannot be undone is added to the
/// problems of the report and does not prevent startup.
///
/// # Errors
/// When the runtime folder cannot be read.
pub fn recover(runtime: &RuntimeFolder) -> Result<UndoReport> {
    let mut report = UndoReport::default();
    let mut paths = journal::list(runtime.path())?;
    loop {
        let nr_tried = paths.len();
        let mut problems = Vec::new();
        paths.retain(|path| {
            let mut one = UndoReport::default();
            let done = recover_one(path, &mut one);
            one.problems.extend(done.err().map(|e| e.to_string()));
            let is_left = os::exists(path);
            if is_left {
                problems.append(&mut one.problems);
            }
            report.extend(one);
            is_left
        });
        // The kernel may accept a refused value after other journals are undone, and a parent may
        // be empty.
        if paths.is_empty() || paths.len() == nr_tried {
            report.problems.extend(problems);
            return Ok(report);
        }
    }
}

fn recover_one(path: &Path, report: &mut UndoReport) -> Result<()> {
    match Journal::take_over(path)? {
        Some(journal) => undo_journal(journal, report),
        None => Ok(()),
    }
}
