//! Removal of own groups, and of cgroups that a rebuild has replaced.

use std::path::{Path, PathBuf};

use crate::cgroup::group::context::Context;
use crate::journal::Entry;
use crate::undo::{self, UndoReport};

/// Notes that layouts of a group are gone: its processes are in a later one.
pub(in crate::cgroup) fn note_gone(name: &str, gone: &[u32], context: &mut Context) {
    let entry = context.journal.restores().change_own(name, |own| {
        own.layouts
            .retain(|generation, _| !gone.contains(generation));
    });
    context.journal.note(entry);
}

/// Undoes a group: its processes go where they were before, with the nice levels that they would
/// have without us, and its cgroups are removed. A group that the kernel does not let us undo now
/// stays in the journal.
pub(in crate::cgroup) fn undo(name: &str, context: &mut Context, report: &mut UndoReport) {
    let restores = context.journal.restores();
    let Some(own) = restores.own.get(name) else {
        return;
    };
    let processes: Vec<PathBuf> = own.processes().collect();
    let paths: Vec<&Path> = processes.iter().map(PathBuf::as_path).collect();
    let levels = undo::restore_levels(restores, &paths, report);
    report.note(levels);
    if undo::undo_group(name, own, report) {
        let name = name.to_owned();
        context.journal.note([Entry::Own { name, own: None }]);
    }
    context.remove_parents();
}
