//! An owner that a client has started: its cgroup, its report to that client, and its log.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::unistd::{dup2_stderr, dup2_stdout, geteuid};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::runtime::RuntimeFolder;

use crate::owner::READY;

/// Log of the owner, in its runtime folder.
const LOG: &str = "owner.log";

/// Leaves the cgroups of the client, which may be limited, frozen, or killed with its unit. Only
/// the root of the tree can have processes beside child cgroups; elsewhere the owner stays.
pub fn leave_the_cgroups(hierarchy: &Hierarchy) {
    hierarchy.leave_others();
    if geteuid().is_root() && hierarchy.is_top() && hierarchy.is_whole() {
        let own = std::process::id().cast_signed();
        // Without permission it stays in the client's cgroup.
        let _ = plimsoll_cgroupfs::move_process(&hierarchy.folders(Path::new("")), own);
    }
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
