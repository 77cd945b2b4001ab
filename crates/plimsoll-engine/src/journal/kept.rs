//! Journal of groups, and its last records in memory.

use super::restores::Restores;
use super::{Entry, Journal};
use crate::error::{EngineError, Result};

/// Number of entries up to which a journal is never rewritten.
const ENTRIES_MIN: usize = 512;
/// Usual number of entries for one group.
const ENTRIES_EACH: usize = 3;

/// Journal that the owner of groups keeps, with all that it says in memory. All groups share it:
/// there may be thousands.
#[derive(Debug)]
pub(crate) struct KeptJournal {
    /// The journal; `None` once everything is put back.
    journal: Option<Journal>,
    restores: Restores,
    nr_entries: usize,
    /// Number of entries after the last rewrite.
    nr_live: usize,
    /// Entries of finished changes that are not written yet, because the disk was full.
    unwritten: Vec<Entry>,
}

impl KeptJournal {
    /// Continues a journal, which has these entries.
    pub fn of(journal: Journal, entries: Vec<Entry>) -> Self {
        let nr_entries = entries.len();
        Self {
            journal: Some(journal),
            restores: Restores::of(entries),
            nr_entries,
            nr_live: nr_entries,
            unwritten: Vec::new(),
        }
    }

    /// Returns the changes that are still to be undone.
    pub fn restores(&self) -> &Restores {
        &self.restores
    }

    /// Records changes before they are made, and before them the finished ones that are not written
    /// yet.
    ///
    /// # Errors
    /// When the entries cannot be written; then nothing may be done.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.tidy();
        self.write_finished()?;
        let journal = self.journal.as_mut().ok_or_else(|| EngineError::Group {
            name: "journal".into(),
            problem: "everything was put back: this owner ends".into(),
        })?;
        journal.record(entries)?;
        self.nr_entries += entries.len();
        for entry in entries {
            self.restores.apply(entry.clone());
        }
        Ok(())
    }

    /// Records finished changes. On a full disk they are written later.
    pub fn note(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.restores.apply(entry.clone());
            self.unwritten.push(entry);
        }
        // The next call writes them.
        let _ = self.write_finished();
    }

    fn write_finished(&mut self) -> Result<()> {
        if let (Some(journal), false) = (&mut self.journal, self.unwritten.is_empty()) {
            journal.note(&self.unwritten)?;
            self.nr_entries += self.unwritten.len();
            self.unwritten.clear();
        }
        Ok(())
    }

    /// Rewrites the journal without obsolete entries, if most are obsolete.
    fn tidy(&mut self) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        let nr_groups = self.restores.held.len() + self.restores.own.len();
        let usual = ENTRIES_MIN + ENTRIES_EACH * nr_groups;
        if self.nr_entries <= 2 * self.nr_live.max(usual) {
            return;
        }
        let entries = self.restores.entries();
        if journal.rewrite(&entries).is_ok() {
            self.nr_entries = entries.len();
            self.restores = Restores::of(entries);
            self.unwritten.clear();
        }
        // On a full disk the journal stays as it is, and is tried again much later.
        self.nr_live = self.nr_entries;
    }

    /// Ends the use of the journal, and returns it to be undone.
    pub fn end(&mut self) -> Option<Journal> {
        self.note(None);
        self.restores = Restores::default();
        self.journal.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{ForeignRestore, Header};

    fn hold(number: usize) -> Entry {
        Entry::Held {
            folder: format!("/h/{number}").into(),
            held: ForeignRestore::default(),
        }
    }

    #[test]
    fn a_journal_is_written_anew_once_most_of_it_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::create(folder.path(), &Header::new("d", "")).unwrap();
        let mut kept = KeptJournal::of(journal, Vec::new());
        let nr_many = 2 * (ENTRIES_MIN + ENTRIES_EACH) + 1;
        let rewrite = |kept: &mut KeptJournal| kept.note((0..nr_many).map(|_| hold(1)));
        rewrite(&mut kept);
        kept.record(&[hold(0)]).unwrap();
        assert_eq!(kept.nr_entries, 2);
        // For many cgroups, this number of entries is usual.
        kept.note((1..1_000).map(hold));
        rewrite(&mut kept);
        kept.record(&[hold(0)]).unwrap();
        assert_eq!(kept.nr_entries, 2 + 999 + nr_many + 1);
        let mut journal = kept.end().unwrap();
        let entries = journal.read().unwrap().1;
        let found = Restores::of(entries);
        assert_eq!(found.held.len(), 1_000);
    }
}
