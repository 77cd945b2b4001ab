//! An owner that a client has started: it has nothing in common with that client but the user.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, dup2_stderr, dup2_stdout, setsid};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks;

use super::READY;

/// What the owner writes for people, from its start on.
const LOG: &str = "owner.log";

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
