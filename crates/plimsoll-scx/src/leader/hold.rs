//! Who keeps the scheduler in the kernel.
//!
//! Its pins do, and a journal says how to remove them. Every keeper of a group
//! holds that journal together with the others, and the kernel frees what a
//! dead process held. So the scheduler stays while any keeper lives, whoever
//! leads and however leaders end; the last keeper takes it out. When that one
//! is killed, nobody holds the journal, and the next start or `restore` undoes
//! it.

use plimsoll_engine::journal::{self, Entry, Header, Journal};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::runtime::{RuntimeFolder, RuntimeLock};
use plimsoll_engine::undo::{self, UndoReport};

use super::{Context, Messages};
use crate::control_error::ControlError;
use crate::objects;
use crate::status::{self, Status};

/// The scheduler's journal. No group has such a name.
const JOURNAL: &str = ".sched-ext";

/// A keeper's part in keeping the scheduler. Dropping the last one takes the
/// scheduler out of the kernel.
#[derive(Debug)]
pub(crate) struct Hold {
    journal: Option<Journal>,
    runtime: RuntimeFolder,
    messages: Messages,
}

impl Hold {
    /// Holds the scheduler that is there, or the place of one that is still
    /// to be loaded. What keepers left behind that were killed is undone.
    ///
    /// # Errors
    /// When the journal cannot be had.
    pub fn take(context: &Context) -> Result<Self, ControlError> {
        let lock = context.runtime.lock()?;
        let path = Journal::path_of(context.runtime.path(), JOURNAL);
        if let Some(left) = Journal::take_over(&path)? {
            tell_problems(&context.messages, undo(left, &lock));
        }
        let journal = match Journal::join(&path)? {
            Some(journal) => journal,
            None => create(&context.runtime)?,
        };
        Ok(Self {
            journal: Some(journal),
            runtime: context.runtime.clone(),
            messages: context.messages.clone(),
        })
    }

    /// The journal, for who leads to write to.
    ///
    /// # Errors
    /// When this process has too many open files.
    pub fn journal(&self) -> Result<Option<Journal>, ControlError> {
        Ok(self.journal.as_ref().map(Journal::try_clone).transpose()?)
    }

    fn leave(&mut self) -> Result<(), ControlError> {
        let Some(journal) = self.journal.take() else {
            return Ok(());
        };
        let lock = self.runtime.lock()?;
        if let Some(last) = journal.leave()? {
            tell_problems(&self.messages, undo(last, &lock));
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            self.messages.tell(error.to_string());
        }
    }
}

/// Begins the journal of a scheduler that nobody keeps yet.
pub(crate) fn create(runtime: &RuntimeFolder) -> Result<Journal, ControlError> {
    let header = Header {
        version: journal::VERSION,
        name: JOURNAL.into(),
        pid: std::process::id(),
        persistent: false,
        subject: "the sched_ext scheduler".into(),
        knobs: Knobs::default(),
    };
    let mut journal = Journal::create(runtime.path(), &header)?;
    // Of keepers that were killed before they could write that down.
    Status::withdraw(runtime);
    journal.record(&[Entry::Publish {
        path: status::file(runtime),
    }])?;
    journal.share()?;
    Ok(journal)
}

/// Undoes what killed keepers have left behind. When this returns, the kernel is free for another
/// scheduler.
///
/// # Errors
/// When the journal cannot be had.
pub(crate) fn undo_left_behind(
    runtime: &RuntimeFolder,
    lock: &RuntimeLock,
) -> Result<UndoReport, ControlError> {
    let left = Journal::take_over(&Journal::path_of(runtime.path(), JOURNAL))?;
    Ok(left.map_or_else(UndoReport::default, |left| undo(left, lock)))
}

/// Takes the scheduler out of the kernel and undoes all that was done for it.
fn undo(mut journal: Journal, _lock: &RuntimeLock) -> UndoReport {
    // Without its pins it would go too, but some time later.
    let entries = journal.read().map(|(_, entries)| entries);
    for entry in entries.unwrap_or_default() {
        if let Entry::Pin { folder } = entry {
            objects::remove_links(&folder);
        }
    }
    let mut report = UndoReport::default();
    let undone = undo::undo_journal(journal, &mut report);
    report.problems.extend(undone.err().map(|e| e.to_string()));
    report
}

fn tell_problems(messages: &Messages, report: UndoReport) {
    for problem in report.problems {
        messages.tell(problem);
    }
}

/// Whether the keepers of the scheduler were all killed: the next start or
/// `restore` takes it out of the kernel.
pub(crate) fn is_left_behind(runtime: &RuntimeFolder) -> bool {
    let is_there = || Journal::path_of(runtime.path(), JOURNAL).exists();
    // Without the file no lock is needed, and no folder for it.
    is_there()
        && runtime
            .lock()
            .is_ok_and(|lock| is_there() && !is_kept(runtime, &lock))
}

/// Whether anybody keeps the scheduler.
pub(crate) fn is_kept(runtime: &RuntimeFolder, _lock: &RuntimeLock) -> bool {
    Journal::is_kept(&Journal::path_of(runtime.path(), JOURNAL))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_cgroupfs::Hierarchy;
    use plimsoll_engine::host::Mode;

    use super::*;

    fn context(folder: &tempfile::TempDir) -> Context {
        Context {
            hierarchy: Arc::new(Hierarchy::find().unwrap()),
            runtime: RuntimeFolder::at(folder.path()),
            mode: Mode::Partial,
            messages: Messages::default(),
            newcomers: crate::leader::Newcomers::default(),
        }
    }

    /// Something to undo.
    fn pin(hold: &Hold, folder: &tempfile::TempDir) -> std::path::PathBuf {
        let pins = folder.path().join("pins");
        std::fs::create_dir_all(&pins).unwrap();
        let entry = Entry::Pin {
            folder: pins.clone(),
        };
        hold.journal().unwrap().unwrap().record(&[entry]).unwrap();
        pins
    }

    #[test]
    fn the_last_to_leave_undoes_what_any_has_done() {
        let folder = tempfile::tempdir().unwrap();
        let context = context(&folder);
        let first = Hold::take(&context).unwrap();
        let pins = pin(&first, &folder);
        let second = Hold::take(&context).unwrap();
        drop(first);
        assert!(pins.exists() && !is_left_behind(&context.runtime));
        drop(second);
        assert!(!pins.exists());
        assert!(journal::list(folder.path()).unwrap().is_empty());
        assert!(context.messages.take().is_empty());
    }

    #[test]
    fn what_killed_keepers_have_left_is_undone_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let context = context(&folder);
        let mut killed = Hold::take(&context).unwrap();
        let pins = pin(&killed, &folder);
        // As the kernel does: the lock goes, the file stays.
        drop(killed.journal.take());
        assert!(is_left_behind(&context.runtime));
        let next = Hold::take(&context).unwrap();
        assert!(!pins.exists() && !is_left_behind(&context.runtime));
        drop(next);
        assert!(journal::list(folder.path()).unwrap().is_empty());
    }
}
