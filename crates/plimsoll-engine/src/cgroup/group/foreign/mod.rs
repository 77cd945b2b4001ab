//! Groups whose cgroup another process made.
//!
//! There may be thousands of such groups: no file stays open for one of them, no timer looks at
//! them, and the cost of one is the same however many there are. Only a soft cap and headroom need
//! a loop. The values to put back are in the journal that they share.

pub(in crate::cgroup) mod check;

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, WEIGHT_DEFAULT};

use super::context::Context;
use crate::cgroup::change::folder_of;
use crate::error::Result;
use crate::journal::{FileRestore, ForeignRestore};
use crate::undo::{self, UndoReport};

/// Returns the weight that a cgroup had at first.
pub(super) fn weight_at_first(group: &CpuGroup, context: &Context) -> Result<u32> {
    let (path, _) = group.weight_setting(WEIGHT_DEFAULT);
    match context
        .journal
        .restores()
        .held(&folder_of(group))
        .get(&path)
    {
        Some(file) => Ok(group.weight_of(&path, &file.old)?),
        None => Ok(group.read_weight()?),
    }
}

/// Puts foreign cgroups back as they were before they were in a group for the first time. Files that
/// the kernel refuses are tried again later.
pub(in crate::cgroup) fn put_back(
    folders: &[PathBuf],
    context: &mut Context,
    report: &mut UndoReport,
) {
    let restores = context.journal.restores();
    let processes: Vec<PathBuf> = folders.iter().map(|it| it.join("cgroup.procs")).collect();
    let paths: Vec<&Path> = processes.iter().map(PathBuf::as_path).collect();
    let levels = undo::restore_levels(restores, &paths, report);
    report.note(levels);
    let held = folders.iter().map(|folder| restores.held(folder));
    let files: Vec<FileRestore> = held.flat_map(ForeignRestore::restores).collect();
    let refused = undo::try_restore_files(&files, report);
    let (late, errors): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
    let noted = undo::noted_files(folders.iter(), late);
    context.journal.note(noted);
    // A refusal because of the limits of others is no problem worth a report.
    let reported = errors.iter().filter(|error| !undo::is_refused(error));
    let reported = reported.map(|error| format!("{error}; it will be tried again"));
    report.problems.extend(reported);
}
