//! Settings of the kernel that hold for the whole machine. Their previous values are in the journal
//! of groups.

use std::path::Path;

use plimsoll_cgroupfs::write_text;

use crate::error::Result;
use crate::journal::{Entry, KeptJournal};
use crate::undo::{self, UndoReport};

/// Records the change of a setting, and makes it.
///
/// # Errors
/// When the change cannot be recorded or made: then the setting is as it was.
pub(crate) fn change(path: &Path, old: &str, new: &str, journal: &mut KeptJournal) -> Result<()> {
    let is_new = journal.restores().settings.iter().all(|it| it.path != path);
    journal.record(&[Entry::Setting {
        path: path.to_owned(),
        old: old.into(),
        new: new.into(),
    }])?;
    let written = write_text(path, new);
    if written.is_err() && is_new {
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
