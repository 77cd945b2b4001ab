//! An owner that a client has started: it has nothing in common with that client but the user.

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

/// What the owner writes for people, from its start on.
const LOG: &str = "owner.log";

/// Closes what the client has inherited and passed on, such as a lock of `flock` or the end of a
/// pipe: it would be held for as long as the owner lives. Before anything else is open.
pub fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let name = |entry: std::io::Result<DirEntry>| entry.ok()?.file_name().into_string().ok();
    let files: Vec<i32> = entries.filter_map(name).flat_map(|it| it.parse()).collect();
    for file in files.into_iter().filter(|file| *file > 2) {
        // That of the folder is closed by now.
        let _ = nix::unistd::close(file);
    }
}

/// Leaves the cgroup of the client, which may be limited, frozen, or killed as a whole with its
/// unit. Only the root of the tree takes processes beside its groups; elsewhere an owner stays.
pub fn leave_the_cgroup(hierarchy: &Hierarchy) {
    if geteuid().is_root() && hierarchy.base() == Path::new("") {
        let own = std::process::id().cast_signed();
        // Where it may not, it works as its client does.
        let _ = plimsoll_cgroupfs::move_process(&hierarchy.folders(Path::new("")), own);
    }
}

/// Leaves the client's terminal, and the priority, policy and CPUs that the client may have been
/// given: limits of one command are not to hold for the process that keeps those of all.
pub fn leave_the_client() {
    // A new child leads no process group: this cannot fail for one.
    let _ = setsid();
    // Not allowed to everybody; then it runs as its client does. 0: this process.
    let _ = tasks::set_policy(0, libc::SCHED_OTHER);
    let _ = tasks::set_nice(0, 0);
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _ = all.set(cpu);
    }
    let _ = sched_setaffinity(Pid::from_raw(0), &all);
}

/// Tells the client that the owner answers, and keeps none of its files open. The client reads
/// standard error to its end first, which is why that is closed before.
pub fn tell_ready(runtime: &RuntimeFolder) {
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(runtime.path().join(LOG));
    let nowhere = || OpenOptions::new().write(true).open("/dev/null");
    if let Ok(log) = log.or_else(|_| nowhere()) {
        let _ = dup2_stderr(&log);
        // The client may have gone; others come.
        let _ = writeln!(std::io::stdout(), "{READY}");
        let _ = dup2_stdout(&log);
    }
}

/// The last owner's lines are of no use once all groups are gone.
pub fn remove_log(runtime: &RuntimeFolder) {
    let _ = std::fs::remove_file(runtime.path().join(LOG));
}
