//! Processes of groups, identified by pid and start time, and what `/proc` has of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, read_ids, tree};
use plimsoll_engine::own_groups;
use plimsoll_engine::tasks::{self, TaskId, TaskKind};

/// Processes by group.
pub(super) type Members = BTreeMap<String, Vec<TaskId>>;

/// Finds the processes in the cgroups of own groups.
pub(super) fn members_of_groups(hierarchy: &Arc<Hierarchy>) -> Members {
    let mut members = Members::new();
    let base = CpuGroup::at(hierarchy, hierarchy.base());
    let own = |group: &CpuGroup| own_groups::is_own(hierarchy, group.path());
    let mut ahead = base.children().unwrap_or_default();
    ahead.retain(own);
    while let Some(group) = ahead.pop() {
        match own_groups::group_of(hierarchy, group.path()) {
            Some(name) => {
                let readable = |_| {
                    let all = tree(&hierarchy.cpu_folder(group.path()));
                    let files = all.iter().map(|folder| folder.join("cgroup.procs"));
                    files
                        .flat_map(|file| read_ids(&file).unwrap_or_default())
                        .collect()
                };
                let pids: Vec<i32> = group.all_processes().unwrap_or_else(readable);
                let found = members.entry(name.to_owned()).or_default();
                found.extend(pids.into_iter().filter_map(TaskId::of));
            }
            None => ahead.extend(group.children().unwrap_or_default()),
        }
    }
    members
}

pub(super) fn is_this_process(pid: i32) -> bool {
    i32::try_from(std::process::id()).is_ok_and(|own| own == pid)
}

/// Cgroup of a process below the mount point, with a `/` in front. `None`: no process with that
/// pid can be moved. It has ended, is a zombie, or a thread of a process.
pub(super) fn cgroup_of(hierarchy: &Hierarchy, pid: i32) -> Option<PathBuf> {
    let process = TaskId::of(pid)?;
    let kind = tasks::kind(pid);
    let cgroup = hierarchy.cgroup_of(pid).ok()?;
    // Kind and cgroup are of one process only if no other has its pid by now.
    let is_of_one = kind == Some(TaskKind::Process) && process.exists();
    is_of_one.then(|| Path::new("/").join(cgroup))
}

/// The descendants of a process, nearest first. Those of a process that has ended cannot be found.
pub(super) fn descendants(pid: i32) -> Vec<i32> {
    let mut found = tasks::children(pid);
    let mut next = 0;
    while let Some(child) = found.get(next) {
        found.extend(tasks::children(*child));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::wait::wait_until;

    #[test]
    fn a_zombie_and_a_thread_are_no_process() {
        let Ok(hierarchy) = Hierarchy::find() else {
            return crate::skipped::skip("there is no cpu controller");
        };
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        // The child is not waited for yet: it becomes a zombie.
        wait_until("it has ended", || cgroup_of(&hierarchy, pid).is_none());
        let is_seen = tasks::find_start_time(pid).is_ok();
        assert!(is_seen, "it is still to be seen");
        child.wait().unwrap();
        let thread = nix::unistd::gettid().as_raw();
        assert_ne!(thread, std::process::id().cast_signed());
        assert_eq!(cgroup_of(&hierarchy, thread), None);
        assert_eq!(cgroup_of(&hierarchy, i32::MAX), None);
    }
}
