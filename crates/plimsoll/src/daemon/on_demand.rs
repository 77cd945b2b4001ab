//! Detachment of an owner from the client that started it; they share only the user.

use std::fs::{DirEntry, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, dup2_stderr, dup2_stdout, geteuid, setsid};
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks;

use super::READY;

/// Log of the owner, in its runtime folder.
const LOG: &str = "owner.log";

/// Closes file descriptors inherited through the client, such as a lock of `flock` or the end of a
/// pipe, which the owner would hold during its whole life. Must run before any other file is open.
pub fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let name = |entry: std::io::Result<DirEntry>| entry.ok()?.file_name().into_string().ok();
    let files: Vec<i32> = entries.filter_map(name).flat_map(|it| it.parse()).collect();
    for file in files.into_iter().filter(|file| *file > 2) {
        // The descriptor of the listing itself is already closed.
        let _ = nix::unistd::close(file);
    }
}

/// Leaves the cgroup of the client, which may be limited, frozen, or killed with its unit. Only
/// the root of the tree can have processes beside child cgroups; elsewhere the owner stays.
pub fn leave_the_cgroup(hierarchy: &Hierarchy) {
    if geteuid().is_root() && hierarchy.base() == Path::new("") {
        let own = std::process::id().cast_signed();
        // Without permission it stays in the client's cgroup.
        let _ = plimsoll_cgroupfs::move_process(&hierarchy.folders(Path::new("")), own);
    }
}

/// Leaves the client's terminal, and resets priority, policy and CPU affinity, because settings of
/// one command must not affect the owner of all groups.
pub fn leave_the_client() {
    // Cannot fail, because a new child leads no process group.
    let _ = setsid();
    // Without permission it keeps the client's settings. 0: this process.
    let _ = tasks::set_policy(0, libc::SCHED_OTHER);
    let _ = tasks::set_nice(0, 0);
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _ = all.set(cpu);
    }
    let _ = sched_setaffinity(Pid::from_raw(0), &all);
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
