//! The journal of the scheduler: its pins, which keep it in the kernel, and how to remove them.
//!
//! The owner holds the journal. When the owner ends without undoing it, the scheduler stays with
//! all its groups until the next owner adopts or undoes it, or `restore` does.

use plimsoll_engine::journal::{Entry, Header, Journal};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::{self, UndoReport};

use crate::SchedExtError;
use crate::objects;
use crate::status::{self, Status};

/// Name of the journal, which no group can have.
const JOURNAL: &str = ".sched-ext";

/// The journal that an earlier owner has left in this boot, locked from here on.
pub(crate) fn left_in_this_boot(runtime: &RuntimeFolder) -> Result<Option<Journal>, SchedExtError> {
    let Some(mut journal) = left_behind(runtime)? else {
        return Ok(None);
    };
    let header = journal.read().ok().and_then(|(header, _)| header);
    let is_of_this_boot = header.is_some_and(|header| !header.is_of_another_boot());
    Ok(is_of_this_boot.then_some(journal))
}

/// Begins the journal of a scheduler that is to be loaded.
pub(crate) fn create(runtime: &RuntimeFolder) -> Result<Journal, SchedExtError> {
    let header = Header::new(JOURNAL, "the sched_ext scheduler");
    let mut journal = Journal::create(runtime.path(), &header)?;
    // Removes the status of an owner that was killed before it could record it.
    Status::withdraw(runtime);
    journal.record(&[Entry::Publish {
        path: status::file(runtime),
    }])?;
    Ok(journal)
}

/// The journal of a killed owner's scheduler, whichever boot it is of, locked from here on.
pub(crate) fn left_behind(runtime: &RuntimeFolder) -> Result<Option<Journal>, SchedExtError> {
    Ok(Journal::take_over(&Journal::path_of(
        runtime.path(),
        JOURNAL,
    ))?)
}

/// Removes the scheduler from the kernel and undoes all changes made for it.
pub(crate) fn undo_journal(mut journal: Journal) -> UndoReport {
    // Removing the pins alone would end it some time later.
    let entries = journal.read().map(|(_, entries)| entries);
    for entry in entries.unwrap_or_default() {
        if let Entry::Pin { folder } = entry {
            objects::remove_link(&folder);
        }
    }
    let mut report = UndoReport::default();
    let undone = undo::undo_journal(journal, &mut report);
    report.problems.extend(undone.err().map(|e| e.to_string()));
    report
}

/// Whether the scheduler's owner was killed: the next owner or `restore` removes it.
pub(crate) fn is_left_behind(runtime: &RuntimeFolder) -> bool {
    let path = Journal::path_of(runtime.path(), JOURNAL);
    path.exists() && !Journal::is_kept(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedExtHost;

    #[test]
    fn published_files_are_removed_once_the_owner_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let files = [status::file(&runtime), status::dump_file(&runtime)];
        let nothing = UndoReport::default();
        assert_eq!(SchedExtHost::clean_up(&runtime).unwrap(), nothing);
        let kept = create(&runtime).unwrap();
        files
            .iter()
            .for_each(|file| std::fs::write(file, "").unwrap());
        assert!(!is_left_behind(&runtime));
        drop(kept);
        assert!(is_left_behind(&runtime));
        let removed = SchedExtHost::clean_up(&runtime).unwrap().undone;
        // The journal names the file of the state.
        assert_eq!(removed, ["the sched_ext scheduler", "sched-ext.dump"]);
        assert!(files.iter().all(|file| !file.exists()));
    }
}
