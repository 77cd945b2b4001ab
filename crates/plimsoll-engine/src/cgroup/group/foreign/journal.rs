//! Journal that all foreign groups share, because there may be thousands of them.

use std::io;
use std::path::Path;

use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore, Header, Journal};
use crate::knobs::Knobs;
use crate::runtime::RuntimeFolder;

/// Beginning of the journal's name, which the name of no group can have.
pub(in crate::cgroup) const JOURNAL: &str = "daemon+";

/// Number of entries up to which a journal is never rewritten.
const ENTRIES_MIN: usize = 512;
/// Usual number of entries for one cgroup.
const ENTRIES_EACH: usize = 6;

/// Journal of all foreign groups, and files of removed groups that are still to be put back.
#[derive(Debug)]
pub(in crate::cgroup) struct SharedJournal {
    /// The journal; `None` once everything is put back.
    kept: Option<KeptJournal>,
    /// Files of removed groups that the kernel refused to put back, because of limits above or
    /// below that are still in force.
    late: Vec<FileRestore>,
    nr_groups: usize,
}

impl SharedJournal {
    pub fn create(runtime: &RuntimeFolder, name: &str) -> Result<Self> {
        let kept = KeptJournal::create(runtime, name)?;
        Ok(Self::with(kept, Vec::new()))
    }

    /// Continues the journal of an earlier owner, which has `nr_entries` entries.
    pub fn go_on(journal: Journal, nr_entries: usize, late: Vec<FileRestore>) -> Self {
        Self::with(KeptJournal::go_on(journal, nr_entries), late)
    }

    fn with(kept: KeptJournal, late: Vec<FileRestore>) -> Self {
        Self {
            kept: Some(kept),
            late,
            nr_groups: 0,
        }
    }

    /// Records changes before they are made. To be called while no change is under way.
    ///
    /// # Errors
    /// When the entries cannot be written; then nothing may be done.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        let kept = self.kept.as_mut().ok_or_else(|| EngineError::Group {
            name: "journal".into(),
            problem: "everything was put back: this owner ends".into(),
        })?;
        kept.tidy(self.nr_groups);
        kept.record(entries)
    }

    /// Records finished changes. On a full disk they are written later.
    pub fn note(&mut self, entries: Vec<Entry>) {
        if let Some(kept) = &mut self.kept {
            kept.note(entries);
        }
    }

    pub fn count_group(&mut self) {
        self.nr_groups += 1;
    }

    /// Counts a removed group, whose entries are obsolete.
    pub fn forget_group(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.tidy(self.nr_groups);
        }
        self.nr_groups = self.nr_groups.saturating_sub(1);
    }

    /// Lists the late files of one cgroup.
    pub fn late_of(&self, folder: &Path) -> impl Iterator<Item = &FileRestore> {
        let is_of_it = move |file: &&FileRestore| file.path.parent() == Some(folder);
        self.late.iter().filter(is_of_it)
    }

    /// Removes the late files of one cgroup and returns them: a group has them from now on.
    pub fn take_late(&mut self, folder: &Path) -> Vec<FileRestore> {
        let is_of_it = |file: &mut FileRestore| file.path.parent() == Some(folder);
        self.late.extract_if(.., is_of_it).collect()
    }

    /// Removes all late files and returns them, for another attempt.
    pub fn take_all_late(&mut self) -> Vec<FileRestore> {
        std::mem::take(&mut self.late)
    }

    pub fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    pub fn add_late(&mut self, late: impl IntoIterator<Item = FileRestore>) {
        self.late.extend(late);
    }

    /// Ends the use of the journal, and returns it to be undone.
    pub fn end(&mut self) -> Option<Journal> {
        self.kept.take().map(KeptJournal::into_journal)
    }
}

#[derive(Debug)]
struct KeptJournal {
    journal: Journal,
    nr_entries: usize,
    /// Number of entries after the last rewrite.
    nr_live: usize,
    /// Entries of finished changes that are not written yet, because the disk was full.
    late: Vec<Entry>,
}

impl KeptJournal {
    fn create(runtime: &RuntimeFolder, name: &str) -> Result<Self> {
        let header = Header::new(name, "cgroups of others", &Knobs::default());
        Ok(Self {
            journal: Journal::create(runtime.path(), &header)?,
            nr_entries: 0,
            nr_live: 0,
            late: Vec::new(),
        })
    }

    /// Continues the journal of an earlier owner, which has `nr_entries` entries.
    fn go_on(journal: Journal, nr_entries: usize) -> Self {
        Self {
            journal,
            nr_entries,
            nr_live: nr_entries,
            late: Vec::new(),
        }
    }

    /// Records changes before they are made, after the late entries.
    fn record(&mut self, entries: &[Entry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        if !self.late.is_empty() {
            self.journal.note(&self.late)?;
            self.nr_entries += self.late.len();
            self.late.clear();
        }
        self.journal.record(entries)?;
        self.nr_entries += entries.len();
        Ok(())
    }

    /// Records finished changes; if that fails, the next call writes them.
    fn note(&mut self, entries: Vec<Entry>) {
        self.late.extend(entries);
        if !self.late.is_empty() && self.journal.note(&self.late).is_ok() {
            self.nr_entries += self.late.len();
            self.late.clear();
        }
    }

    /// Rewrites the journal without obsolete entries, if most are obsolete. To be called
    /// while no change is under way.
    fn tidy(&mut self, nr_groups: usize) {
        let usual = self.nr_live.max(ENTRIES_MIN + ENTRIES_EACH * nr_groups);
        if self.nr_entries <= 2 * usual {
            return;
        }
        // On a full disk the journal stays as it is, and is tried again much later.
        let nr_live = self.journal.rewrite().unwrap_or(self.nr_entries);
        self.nr_live = nr_live;
        self.nr_entries = nr_live;
    }

    /// Returns the journal, to be undone, after an attempt to write the late entries.
    fn into_journal(mut self) -> Journal {
        self.note(Vec::new());
        self.journal
    }
}

/// Copies the failure of a shared write, for each group that shares the journal.
pub(in crate::cgroup) fn copy_of(error: &EngineError) -> EngineError {
    match error {
        EngineError::Journal { path, source } => EngineError::Journal {
            path: path.clone(),
            source: source.raw_os_error().map_or_else(
                || io::Error::new(source.kind(), source.to_string()),
                io::Error::from_raw_os_error,
            ),
        },
        other => EngineError::Group {
            name: "journal".into(),
            problem: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize) -> Entry {
        Entry::Write {
            path: "/g/cpu.weight".into(),
            old: "50".into(),
            new: number.to_string(),
        }
    }

    #[test]
    fn a_journal_is_written_anew_once_most_of_it_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let mut kept = KeptJournal::create(&runtime, "d+").unwrap();
        for number in 0..=2 * (ENTRIES_MIN + ENTRIES_EACH) {
            kept.tidy(1);
            kept.note(vec![entry(number)]);
        }
        assert!(kept.nr_entries > 1_000);
        // For many cgroups, this number of entries is usual.
        kept.tidy(1_000);
        assert!(kept.nr_entries > 1_000);
        kept.tidy(1);
        assert_eq!(kept.nr_entries, 1);
        let mut journal = kept.into_journal();
        assert_eq!(journal.read().unwrap().1, [entry(1_036)]);
    }

    #[test]
    fn a_failure_is_told_to_all_who_share_the_journal() {
        let full = EngineError::Journal {
            path: "/run/x".into(),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        };
        assert_eq!(copy_of(&full).to_string(), full.to_string());
    }
}
