//! Undoing what processes left behind that are gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{UndoReport, hand_over_enabled, undo_journal};
use crate::control::headroom;
use crate::error::Result;
use crate::journal::{self, Entry, Header, Journal, Sound};
use crate::runtime::{RuntimeFolder, RuntimeLock};
use crate::tasks::TaskId;

/// Undoes the journal at `path`, if there is one and the process that kept it
/// is gone.
///
/// # Errors
/// When it cannot be read or removed.
pub fn recover_journal(path: &Path) -> Result<UndoReport> {
    let mut report = UndoReport::default();
    if let Some(journal) = Journal::take_over(path)? {
        undo_journal(journal, &mut report)?;
    }
    Ok(report)
}

/// Who has changed one of the same files or tasks since, and puts back what
/// these entries have left there: it would be the last word.
fn keeper_of(entries: &[Entry], runtime: &RuntimeFolder) -> Option<String> {
    let ours = journal::restores(entries.to_vec());
    let files: HashSet<PathBuf> = ours.files.into_iter().map(|file| file.path).collect();
    let tasks: HashSet<TaskId> = ours.tasks.into_iter().map(|task| task.task).collect();
    for path in journal::list(runtime.path()).unwrap_or_default() {
        let said = Journal::is_kept(&path).then(|| journal::peek(&path));
        let Some(Sound {
            header: Some(header),
            entries,
            ..
        }) = said.flatten()
        else {
            continue;
        };
        let theirs = journal::restores(entries);
        let has_one = theirs.files.iter().any(|file| files.contains(&file.path))
            || theirs.tasks.iter().any(|task| tasks.contains(&task.task));
        if has_one && !header.persistent {
            let Header { name, pid, .. } = header;
            return Some(format!("process {pid} (journal `{name}`)"));
        }
    }
    None
}

/// Undoes what processes left behind that are gone: all of it, or, unless
/// `everything`, what was not meant to stay. A journal that cannot be undone
/// is a problem of the report, and no reason not to start.
///
/// # Errors
/// When the runtime folder cannot be read.
pub fn recover(
    runtime: &RuntimeFolder,
    lock: &RuntimeLock,
    everything: bool,
) -> Result<UndoReport> {
    let mut report = UndoReport::default();
    // First: a controller elsewhere would write what is put back.
    headroom::forget_dead(runtime);
    report.problems.extend(runtime.mend_shared(lock)?);
    let mut paths = journal::list(runtime.path())?;
    loop {
        let nr_tried = paths.len();
        let mut again = UndoReport::default();
        paths.retain(|path| {
            let mut one = UndoReport::default();
            let done = recover_one(path, runtime, lock, everything, &mut one);
            one.problems.extend(done.err().map(|e| e.to_string()));
            let is_left = !one.problems.is_empty() && path.exists();
            if is_left { &mut again } else { &mut report }.extend(one);
            is_left
        });
        // What the kernel refused it may take once others are undone.
        if paths.is_empty() || paths.len() == nr_tried {
            report.extend(again);
            break;
        }
    }
    report.problems.extend(runtime.release_shared(lock)?);
    Ok(report)
}

fn recover_one(
    path: &Path,
    runtime: &RuntimeFolder,
    lock: &RuntimeLock,
    everything: bool,
    report: &mut UndoReport,
) -> Result<()> {
    let Some(mut journal) = Journal::take_over(path)? else {
        return Ok(());
    };
    let sound = journal.read_sound()?;
    if let Some(header) = sound.header.as_ref().filter(|header| header.persistent) {
        if !everything {
            return Ok(());
        }
        if let Some(keeper) = keeper_of(&sound.entries, runtime) {
            report.problems.push(format!(
                "{}: stays as it is: {keeper} keeps it now, and puts back what was `set` here; end \
                 that first, then restore it",
                header.subject
            ));
            return Ok(());
        }
    }
    hand_over_enabled(&sound.entries, runtime, lock)?;
    undo_journal(journal, report)
}
