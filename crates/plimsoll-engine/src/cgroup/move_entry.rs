//! The journal's entry for a process that is moved.

use plimsoll_cgroupfs::{Hierarchy, name};

use crate::error::{EngineError, Result};
use crate::journal::Entry;
use crate::tasks;

/// Creates the entry to write before a process is moved.
///
/// # Errors
/// When there is no such process, or its threads are in several cgroups: the move, and its undo,
/// would put them into one.
pub(super) fn move_entry(hierarchy: &Hierarchy, pid: i32) -> Result<Entry> {
    let from = hierarchy.folders_of(pid)?;
    for tid in tasks::threads(pid) {
        // A thread that has ended since has no cgroup.
        if hierarchy.folders_of(tid).is_ok_and(|place| place != from) {
            let cgroup = name::shown(&hierarchy.cgroup_of(tid)?);
            return Err(EngineError::ThreadsApart { pid, tid, cgroup });
        }
    }
    let start_time = tasks::find_start_time(pid)?;
    Ok(Entry::Move {
        pid,
        start_time,
        from,
    })
}
