//! The journal of all held cgroups.

use std::io;

use crate::error::{EngineError, Result};
use crate::journal::{Entry, Header, Journal};
use crate::knobs::Knobs;
use crate::runtime::RuntimeFolder;

/// A journal is never written anew for fewer entries.
const ENTRIES_MIN: usize = 512;
/// Of one cgroup, so many entries are nothing unusual.
const ENTRIES_EACH: usize = 6;

/// A journal that this process keeps for a long time.
#[derive(Debug)]
pub(super) struct KeptJournal {
    journal: Journal,
    nr_entries: usize,
    /// When it was written anew.
    nr_live: usize,
    /// Done, but not written down yet: the disk was full.
    late: Vec<Entry>,
}

impl KeptJournal {
    /// Begins it.
    pub fn create(runtime: &RuntimeFolder, name: &str) -> Result<Self> {
        let header = Header::new(name, "cgroups of others", &Knobs::default());
        Ok(Self {
            journal: Journal::create(runtime.path(), &header)?,
            nr_entries: 0,
            nr_live: 0,
            late: Vec::new(),
        })
    }

    /// Goes on with the journal of an earlier owner, which has so many entries.
    pub fn go_on(journal: Journal, nr_entries: usize) -> Self {
        Self {
            journal,
            nr_entries,
            nr_live: nr_entries,
            late: Vec::new(),
        }
    }

    /// All that is written down.
    pub fn entries(&mut self) -> Vec<Entry> {
        let sound = self.journal.read_sound();
        sound.map_or_else(|_| Vec::new(), |sound| sound.entries)
    }

    /// Writes down what is about to be done.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
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

    /// Writes down what has been done.
    pub fn note(&mut self, entries: Vec<Entry>) {
        self.late.extend(entries);
        if !self.late.is_empty() && self.journal.note(&self.late).is_ok() {
            self.nr_entries += self.late.len();
            self.late.clear();
        }
    }

    /// Leaves out what is no use any more, if that is most of it. To be called
    /// while no change is under way.
    pub fn tidy(&mut self, nr_groups: usize) {
        let usual = self.nr_live.max(ENTRIES_MIN + ENTRIES_EACH * nr_groups);
        if self.nr_entries <= 2 * usual {
            return;
        }
        // On a full disk it stays as it is, and is tried again much later.
        let nr_live = self.journal.rewrite().unwrap_or(self.nr_entries);
        self.nr_live = nr_live;
        self.nr_entries = nr_live;
    }

    /// The journal, to be undone.
    pub fn into_journal(mut self) -> Journal {
        self.note(Vec::new());
        self.journal
    }
}

/// The same failure for another group that shares the journal.
pub(super) fn copy_of(error: &EngineError) -> EngineError {
    match error {
        EngineError::Journal { path, source } => EngineError::Journal {
            path: path.clone(),
            source: source.raw_os_error().map_or_else(
                || io::Error::new(source.kind(), source.to_string()),
                io::Error::from_raw_os_error,
            ),
        },
        other => EngineError::Control {
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
        // Of many cgroups, as many are usual.
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
