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
    match (&written, known) {
        (Ok(()), None) => (),
        // A value of before is somebody else's if it comes back.
        (Ok(()), Some(mut known)) => {
            known.ours = vec![new.to_owned()];
            journal.note([Entry::Setting(known)]);
        }
        (Err(_), Some(known)) => journal.note([Entry::Setting(known)]),
        // The first error tells more.
        (Err(_), None) => put_back(path, journal, &mut UndoReport::default()),
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

#[cfg(test)]
mod tests {
    use super::rig::Setting;

    #[test]
    fn a_value_of_before_stays_if_somebody_sets_it_again() {
        let mut setting = Setting::new("5000");
        for new in ["2000", "3500"] {
            let old = setting.now();
            super::change(&setting.file, &old, new, &mut setting.journal).unwrap();
        }
        setting.write("2000");
        setting.put_back();
        assert_eq!(setting.now(), "2000");
        assert_eq!(setting.nr_recorded(), 0);
    }
}
