//! Settings of the kernel that hold for the whole machine, and the journal of their previous
//! values.

use plimsoll_cgroupfs::CgroupError;

use crate::error::{EngineError, Result};
use crate::journal::{Entry, Header, Journal};
use crate::runtime::RuntimeFolder;
use crate::undo::{self, UndoReport};

/// Settings that an owner changes and puts back together.
#[derive(Debug)]
pub(crate) struct HostSettings {
    /// Name of the journal. The next owner puts the settings back, and sets its own.
    name: &'static str,
    /// Purpose of the journal, for people.
    subject: &'static str,
    /// Journal, while one of the settings is ours.
    journal: Option<Journal>,
}

impl HostSettings {
    pub fn new(name: &'static str, subject: &'static str) -> Self {
        Self {
            name,
            subject,
            journal: None,
        }
    }

    /// Records changes, and makes them.
    ///
    /// # Errors
    /// When the changes cannot be recorded: then nothing has changed. Or the error of `write`: then
    /// the written settings are put back if none was ours before.
    pub fn change(
        &mut self,
        changes: &[Entry],
        runtime: &RuntimeFolder,
        write: impl FnOnce() -> std::result::Result<(), CgroupError>,
    ) -> Result<()> {
        let is_new = self.journal.is_none();
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(open(self.name, self.subject, runtime)?),
        };
        let recorded = journal.record(changes);
        let changed = recorded.and_then(|()| write().map_err(EngineError::from));
        if changed.is_err() && is_new {
            // The first error tells more.
            let _ = self.put_back(&mut UndoReport::default());
        }
        changed
    }

    /// Puts the settings back, unless somebody else has changed them since. A value that the kernel
    /// refuses now stays in the journal, for the next attempt.
    ///
    /// # Errors
    /// When the journal cannot be read or removed.
    pub fn put_back(&mut self, report: &mut UndoReport) -> Result<()> {
        match self.journal.take() {
            Some(journal) => undo::undo_journal(journal, report),
            None => Ok(()),
        }
    }

    /// Forgets the journal, as a killed process does.
    #[cfg(test)]
    pub fn forget(&mut self) {
        self.journal = None;
    }
}

/// Begins a journal, or takes over one whose changes could not be put back.
fn open(name: &str, subject: &str, runtime: &RuntimeFolder) -> Result<Journal> {
    if let Some(left) = Journal::take_over(&Journal::path_of(runtime.path(), name))? {
        return Ok(left);
    }
    Journal::create(runtime.path(), &Header::new(name, subject))
}
