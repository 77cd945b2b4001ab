//! Settings of the kernel that hold for the whole machine. Their previous values are in the journal
//! of groups.

use std::path::Path;

use plimsoll_cgroupfs::write_text;

use crate::error::Result;
use crate::journal::{Entry, FileRestore, KeptJournal};
use crate::undo::{self, UndoReport};

/// Records the change of a setting, and makes it.
///
/// # Errors
/// When the change cannot be recorded or made: then the setting is as it was.
pub(crate) fn change(path: &Path, old: &str, new: &str, journal: &mut KeptJournal) -> Result<()> {
    let mut settings = journal.restores().settings.iter();
    let known = settings.find(|it| it.path == path).cloned();
    let change = FileRestore::new(path, old, Some(new));
    let both = FileRestore::both(known.as_slice(), &[change]).into_iter();
    journal.record(&both.map(Entry::Setting).collect::<Vec<_>>())?;
    let written = write_text(path, new);
    if written.is_err() && known.is_none() {
        // The first error tells more.
        put_back(path, journal, &mut UndoReport::default());
    }
    Ok(written?)
}

/// Puts a setting back if it is ours, unless somebody else has changed it since. A value that the
/// kernel refuses now stays in the journal, for the next attempt.
pub(crate) fn put_back(path: &Path, journal: &mut KeptJournal, report: &mut UndoReport) {
    let settings = journal.restores().settings.iter();
    let done = undo::put_back_settings(settings.filter(|it| it.path == path), report);
    journal.note(done);
}

#[cfg(test)]
pub(crate) mod rig {
    use std::fs;
    use std::path::PathBuf;

    use crate::journal::{Header, Journal, KeptJournal};
    use crate::runtime::RuntimeFolder;
    use crate::undo::{self, UndoReport};

    /// A file in place of a setting of the kernel, and a journal.
    pub struct Setting {
        folder: tempfile::TempDir,
        pub file: PathBuf,
        pub journal: KeptJournal,
    }

    impl Setting {
        pub fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let journal = Journal::create(folder.path(), &Header::new("a", "")).unwrap();
            let setting = Self {
                file: folder.path().join("setting"),
                folder,
                journal: KeptJournal::of(journal, Vec::new()),
            };
            setting.write(text);
            setting
        }

        pub fn write(&self, text: &str) {
            fs::write(&self.file, text).unwrap();
        }

        pub fn now(&self) -> String {
            fs::read_to_string(&self.file).unwrap()
        }

        pub fn nr_recorded(&self) -> usize {
            self.journal.restores().settings.len()
        }

        pub fn put_back(&mut self) -> UndoReport {
            let mut report = UndoReport::default();
            super::put_back(&self.file, &mut self.journal, &mut report);
            report
        }

        /// Has the next owner undo what this one has left.
        pub fn recover(&mut self) {
            drop(self.journal.end());
            undo::recover(&RuntimeFolder::at(self.folder.path())).unwrap();
        }
    }
}
