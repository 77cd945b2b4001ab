//! The journal's entry for a process that is moved.

use plimsoll_cgroupfs::{CgroupError, Hierarchy};

use crate::error::Result;
use crate::journal::Entry;
use crate::tasks;

/// The entry to write before a process is moved.
///
/// # Errors
/// When there is no such process.
pub(super) fn move_entry(hierarchy: &Hierarchy, pid: i32) -> Result<Entry> {
    let from = hierarchy.folders_of(pid)?;
    let start_time = tasks::start_time(pid).ok_or_else(|| CgroupError::NoTarget {
        target: pid.to_string(),
        what: "process",
    })?;
    Ok(Entry::Move {
        pid,
        start_time,
        from,
    })
}
