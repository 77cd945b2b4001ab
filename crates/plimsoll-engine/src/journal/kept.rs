//! Journal of groups, and its sum in memory.

use super::restores::Restores;
use super::{Entry, Header, Journal};
use crate::error::Result;
use crate::runtime::RuntimeFolder;

/// Number of entries up to which a journal is never rewritten.
const ENTRIES_MIN: usize = 512;
/// Usual number of entries for one foreign cgroup.
const ENTRIES_EACH: usize = 6;

/// Journal that the owner of groups keeps, with all that it says in memory.
#[derive(Debug)]
pub(crate) struct KeptJournal {
    journal: Journal,
    restores: Restores,
    nr_entries: usize,
    /// Number of entries after the last rewrite.
    nr_live: usize,
    /// Entries of finished changes that are not written yet, because the disk was full.
    unwritten: Vec<Entry>,
}

impl KeptJournal {
    /// Begins a journal.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(runtime: &RuntimeFolder, header: &Header) -> Result<Self> {
        let journal = Journal::create(runtime.path(), header)?;
        Ok(Self::go_on(journal, Vec::new()))
    }

    /// Continues a journal, which has these entries.
    pub fn go_on(journal: Journal, entries: Vec<Entry>) -> Self {
        let nr_entries = entries.len();
        Self {
            journal,
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
        self.journal.record(entries)?;
        self.nr_entries += entries.len();
        for entry in entries {
            self.restores.apply(entry.clone());
        }
        Ok(())
    }

    /// Records finished changes. On a full disk they are written later.
    pub fn note(&mut self, entries: Vec<Entry>) {
        for entry in &entries {
            self.restores.apply(entry.clone());
        }
        self.unwritten.extend(entries);
        // The next call writes them.
        let _ = self.write_finished();
    }

    fn write_finished(&mut self) -> Result<()> {
        if !self.unwritten.is_empty() {
            self.journal.note(&self.unwritten)?;
            self.nr_entries += self.unwritten.len();
            self.unwritten.clear();
        }
        Ok(())
    }

    /// Rewrites the journal without obsolete entries, if most are obsolete.
    fn tidy(&mut self) {
        let usual = ENTRIES_MIN + ENTRIES_EACH * self.restores.held.len();
        if self.nr_entries <= 2 * self.nr_live.max(usual) {
            return;
        }
        let entries = self.restores.entries();
        if self.journal.rewrite(&entries).is_ok() {
            self.nr_entries = entries.len();
            self.restores = Restores::of(entries);
            self.unwritten.clear();
        }
        // On a full disk the journal stays as it is, and is tried again much later.
        self.nr_live = self.nr_entries;
    }

    /// Returns the journal, to be undone, after an attempt to write what is not written yet.
    pub fn into_journal(mut self) -> Journal {
        self.note(Vec::new());
        self.journal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Knobs;

    fn write(number: usize) -> Entry {
        Entry::Write {
            path: "/g/cpu.weight".into(),
            old: "50".into(),
            new: number.to_string(),
        }
    }

    fn hold(number: usize) -> Entry {
        Entry::Hold {
            folder: format!("/h/{number}").into(),
            inode: 1,
        }
    }

    #[test]
    fn a_journal_is_written_anew_once_most_of_it_is_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let header = Header::new("d+", "", &Knobs::default());
        let mut kept = KeptJournal::create(&runtime, &header).unwrap();
        for number in 0..=2 * ENTRIES_MIN {
            kept.note(vec![write(number)]);
        }
        kept.record(&[hold(0)]).unwrap();
        assert_eq!(kept.nr_entries, 2);
        // For many cgroups, this number of entries is usual.
        kept.note((1..1_000).map(hold).collect());
        for number in 0..=2 * ENTRIES_MIN {
            kept.note(vec![write(number)]);
        }
        kept.record(&[hold(0)]).unwrap();
        assert_eq!(kept.nr_entries, 2 + 999 + 2 * ENTRIES_MIN + 2);
        let mut journal = kept.into_journal();
        let entries = journal.read().unwrap().1;
        let found = Restores::of(entries);
        assert_eq!((found.held.len(), found.files.len()), (1_000, 1));
    }

    #[test]
    fn an_owner_that_reads_the_journal_knows_what_its_writer_knew() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let header = Header::new("d+", "", &Knobs::default());
        let mut kept = KeptJournal::create(&runtime, &header).unwrap();
        let file = |new: &str| Entry::Write {
            path: "/h/0/cpu.weight".into(),
            old: "50".into(),
            new: new.into(),
        };
        let released = |path: &str| Entry::Released {
            paths: vec![path.into()],
        };
        for entries in [
            vec![hold(0), file("1"), file("2")],
            vec![released("/h/0"), file("2")],
            vec![hold(0), file("3")],
        ] {
            kept.note(entries);
        }
        let before = kept.restores().entries();
        let mut journal = kept.into_journal();
        let entries = journal.read().unwrap().1;
        let after = KeptJournal::go_on(journal, entries);
        assert_eq!(after.restores().entries(), before);
        assert_eq!(Restores::of(before).entries(), after.restores().entries());
    }
}
