//! The journal of the enforcer's groups, which an earlier owner may have left.

use std::path::PathBuf;

use plimsoll_cgroupfs::os;

use crate::error::Result;
use crate::journal::{self, Entry, Header, Journal, KeptJournal};
use crate::runtime::RuntimeFolder;
use crate::undo::{self, UndoReport};

/// Name of the journal of groups, or its beginning.
const JOURNAL: &str = "groups";

/// Takes over the journal of an earlier owner, or begins one, and puts settings of the machine back:
/// this owner may want others. Returns also the journal that could neither be taken over nor undone,
/// if there is one, and the undo of the others.
///
/// # Errors
/// When a journal cannot be read or begun.
pub(super) fn journal(
    runtime: &RuntimeFolder,
) -> Result<(KeptJournal, Option<PathBuf>, UndoReport)> {
    runtime.create()?;
    let left = left_journal(runtime)?;
    // The journal that was taken over is locked.
    let mut report = undo::recover(runtime)?;
    let path = Journal::path_of(runtime.path(), JOURNAL);
    let is_it = |(journal, _): &(Journal, _)| journal.path() == path;
    let is_taken = left.as_ref().is_some_and(is_it);
    let refused = (!is_taken && os::exists(&path)).then_some(path);
    let (journal, entries) = match left {
        Some(left) => left,
        None => {
            let mut name = JOURNAL.to_owned();
            if refused.is_some() {
                name = format!("{name}{}", std::process::id());
            }
            let header = Header::new(&name, "groups of the owner");
            (Journal::create(runtime.path(), &header)?, Vec::new())
        }
    };
    if refused.is_some() {
        report.problems.push(format!(
            "a journal `{JOURNAL}` that cannot be undone is left; groups are in `{}` now",
            journal.path().display()
        ));
    }
    let mut journal = KeptJournal::of(journal, entries);
    let settings = journal.restores().settings.iter();
    let set_back = undo::put_back_settings(settings, &mut report);
    journal.note(set_back);
    Ok((journal, refused, report))
}

/// Takes over the journal that an earlier owner has left in this boot, with its entries. `None`:
/// there is none, or it is of another version.
fn left_journal(runtime: &RuntimeFolder) -> Result<Option<(Journal, Vec<Entry>)>> {
    for path in journal::list(runtime.path())? {
        let stem = path.file_stem().unwrap_or_default();
        if !stem.to_string_lossy().starts_with(JOURNAL) {
            continue;
        }
        let Some(mut journal) = Journal::take_over(&path)? else {
            continue;
        };
        // A damaged one is taken over as far as it is valid: no limit is lifted because of it.
        let Ok(parsed) = journal.read_valid() else {
            continue;
        };
        let Some(header) = parsed.header else {
            continue;
        };
        if header.boot.is_some() && !header.is_of_another_boot() {
            return Ok(Some((journal, parsed.entries)));
        }
    }
    Ok(None)
}
