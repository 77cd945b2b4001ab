//! Processes of groups, identified by pid and start time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use plimsoll_engine::tasks;

/// Processes with their start times, by group.
pub(super) type Members = BTreeMap<String, Vec<(i32, u64)>>;

/// The processes of a cgroup and of all below it, with their start times.
pub(super) fn processes_below(folder: &Path) -> Vec<(i32, u64)> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.parse().ok());
    let mut members: Vec<(i32, u64)> = pids
        .filter_map(|pid| Some((pid, tasks::start_time(pid)?)))
        .collect();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members.extend(processes_below(&entry.path()));
        }
    }
    members
}

/// Whether the process still runs, and its pid was not reused.
pub(super) fn lives((pid, start_time): (i32, u64)) -> bool {
    tasks::start_time(pid) == Some(start_time)
}

pub(super) fn is_this_process(pid: i32) -> bool {
    i32::try_from(std::process::id()).is_ok_and(|own| own == pid)
}
