//! An owner that a client has started: its cgroup, its report to that client, and its log.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::unistd::{dup2_stderr, dup2_stdout, geteuid};
use plimsoll_cgroupfs::{Hierarchy, Version};
use plimsoll_engine::runtime::RuntimeFolder;

use super::READY;

/// Log of the owner, in its runtime folder.
const LOG: &str = "owner.log";

/// Leaves the cgroup of the client, which may be limited, frozen, or killed with its unit. Only
/// the root of the tree can have processes beside child cgroups; elsewhere the owner stays.
pub fn leave_the_cgroup(hierarchy: &Hierarchy) {
    if geteuid().is_root() && hierarchy.is_top() && takes_processes_at_the_top(hierarchy) {
        let own = std::process::id().cast_signed();
        // Without permission it stays in the client's cgroup.
        let _ = plimsoll_cgroupfs::move_process(&hierarchy.folders(Path::new("")), own);
    }
}

/// Returns whether the mounted cgroup can have processes and limited children: with v1 always,
/// with v2 only if it is the root of the tree. In a cgroup namespace, or where a part of the tree
/// is mounted, it is another one, which has a file that the root lacks.
fn takes_processes_at_the_top(hierarchy: &Hierarchy) -> bool {
    let events = hierarchy.cpu_folder(Path::new("")).join("cgroup.events");
    hierarchy.version() == Version::V1 || !events.exists()
}

/// Tells the client that the owner is ready, and closes the client's files: standard error first,
/// which the client reads to its end.
pub fn tell_ready(runtime: &RuntimeFolder) {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(runtime.path().join(LOG));
    let nowhere = || OpenOptions::new().write(true).open("/dev/null");
    if let Ok(log) = log.or_else(|_| nowhere()) {
        let _ = dup2_stderr(&log);
        // The client may have ended; other clients follow.
        let _ = writeln!(std::io::stdout(), "{READY}");
        let _ = dup2_stdout(&log);
    }
}

/// Removes the log, which has no use after the last group.
pub fn remove_log(runtime: &RuntimeFolder) {
    let _ = std::fs::remove_file(runtime.path().join(LOG));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_the_root_of_v2_and_any_cgroup_of_v1_take_processes_beside_groups() {
        let folder = tempfile::tempdir().unwrap();
        let takes =
            |version| takes_processes_at_the_top(&Hierarchy::at_folder(folder.path(), version));
        assert!(takes(Version::V2) && takes(Version::V1));
        // As in a container.
        fs::write(folder.path().join("cgroup.events"), "populated 0\n").unwrap();
        assert!(!takes(Version::V2) && takes(Version::V1));
    }
}
