//! Undoing what owners left behind that are gone.

use std::path::Path;

use plimsoll_cgroupfs::os;

use super::{UndoReport, undo_journal};
use crate::error::Result;
use crate::journal::{self, Journal};
use crate::runtime::RuntimeFolder;

/// Undoes all that owners left behind that are gone, or, unless `everything`, all but the
/// journals that earlier versions meant to stay (`set` without a daemon). A journal that cannot
/// be undone is a problem of the report, and no reason not to start.
///
/// # Errors
/// When the runtime folder cannot be read.
pub fn recover(runtime: &RuntimeFolder, everything: bool) -> Result<UndoReport> {
    let mut report = UndoReport::default();
    report.problems.extend(runtime.mend_shared()?);
    let mut paths = journal::list(runtime.path())?;
    loop {
        let nr_tried = paths.len();
        let mut again = UndoReport::default();
        paths.retain(|path| {
            let mut one = UndoReport::default();
            let done = recover_one(path, everything, &mut one);
            one.problems.extend(done.err().map(|e| e.to_string()));
            let is_left = !one.problems.is_empty() && os::exists(path);
            if is_left { &mut again } else { &mut report }.extend(one);
            is_left
        });
        // What the kernel refused it may take once others are undone.
        if paths.is_empty() || paths.len() == nr_tried {
            report.extend(again);
            break;
        }
    }
    if everything {
        report.problems.extend(runtime.release_shared()?);
    } else {
        // What is left may be taken over, and needs its controllers.
        runtime.release_parents()?;
    }
    Ok(report)
}

fn recover_one(path: &Path, everything: bool, report: &mut UndoReport) -> Result<()> {
    let Some(mut journal) = Journal::take_over(path)? else {
        return Ok(());
    };
    let sound = journal.read_sound()?;
    let is_to_stay = sound
        .header
        .as_ref()
        .is_some_and(|header| header.persistent);
    if is_to_stay && !everything {
        return Ok(());
    }
    undo_journal(journal, report)
}
