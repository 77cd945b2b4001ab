//! Journal that all foreign groups share, because there may be thousands of them.

use std::io;
use std::path::Path;

use crate::error::{EngineError, Result};
use crate::journal::{Entry, Header, Held, Journal, KeptJournal, Restores};
use crate::knobs::Knobs;
use crate::runtime::RuntimeFolder;

/// Beginning of the journal's name, which the name of no group can have.
pub(in crate::cgroup) const JOURNAL: &str = "daemon+";

/// Journal of all foreign groups. A cgroup that is held in it is in a group, or was in one of an
/// earlier owner. Its other files are of removed groups, and still to be put back: the kernel
/// refused that, because of limits above or below that are still in force.
#[derive(Debug)]
pub(in crate::cgroup) struct SharedJournal {
    /// The journal; `None` once everything is put back.
    kept: Option<KeptJournal>,
    none: (Restores, Held),
}

impl SharedJournal {
    pub fn create(runtime: &RuntimeFolder, name: &str) -> Result<Self> {
        let header = Header::new(name, "cgroups of others", &Knobs::default());
        Ok(Self::go_on(KeptJournal::create(runtime, &header)?))
    }

    /// Continues the journal of an earlier owner.
    pub fn go_on(kept: KeptJournal) -> Self {
        Self {
            kept: Some(kept),
            none: Default::default(),
        }
    }

    /// Returns the changes that are still to be undone.
    pub fn restores(&self) -> &Restores {
        match &self.kept {
            Some(kept) => kept.restores(),
            None => &self.none.0,
        }
    }

    /// Returns the files of a cgroup, by its folder; none if it is not held.
    pub fn held(&self, folder: &Path) -> &Held {
        self.restores().held.get(folder).unwrap_or(&self.none.1)
    }

    /// Records changes before they are made.
    ///
    /// # Errors
    /// When the entries cannot be written; then nothing may be done.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        let kept = self.kept.as_mut().ok_or_else(|| EngineError::Group {
            name: "journal".into(),
            problem: "everything was put back: this owner ends".into(),
        })?;
        kept.record(entries)
    }

    /// Records finished changes. On a full disk they are written later.
    pub fn note(&mut self, entries: Vec<Entry>) {
        if let Some(kept) = &mut self.kept {
            kept.note(entries);
        }
    }

    /// Ends the use of the journal, and returns it to be undone.
    pub fn end(&mut self) -> Option<Journal> {
        self.kept.take().map(KeptJournal::into_journal)
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

    #[test]
    fn a_failure_is_told_to_all_who_share_the_journal() {
        let full = EngineError::Journal {
            path: "/run/x".into(),
            source: io::Error::from_raw_os_error(libc::ENOSPC),
        };
        assert_eq!(copy_of(&full).to_string(), full.to_string());
    }
}
