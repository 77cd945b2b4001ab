//! The process of an owner: independent of the client that started it. The two share the user, the
//! namespaces, and, where the owner may not leave it, the cgroup.

use std::fs::{self, DirEntry};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_timerslack;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{ForkResult, Pid, fork, setsid};
use plimsoll_engine::tasks;

use crate::caller;

/// Open files of an owner: two for each command and one for each client, of which there may be
/// thousands.
const FILES: u64 = 524_288;
/// The kernel's default stack limit, in bytes.
const STACK_BYTES: u64 = 8 << 20;
/// The kernel's default timer slack, in nanoseconds.
const TIMER_SLACK_NS: u64 = 50_000;
/// Limits that could end an owner or make one of its calls fail.
const UNLIMITED: [Resource; 9] = [
    Resource::RLIMIT_AS,
    Resource::RLIMIT_CPU,
    Resource::RLIMIT_DATA,
    Resource::RLIMIT_FSIZE,
    Resource::RLIMIT_LOCKS,
    Resource::RLIMIT_MEMLOCK,
    Resource::RLIMIT_NPROC,
    Resource::RLIMIT_RSS,
    Resource::RLIMIT_RTTIME,
];
/// Nice level of the owner, as the daemon's unit has it. The owner uses little CPU time, and its
/// client waits for it: among 64 busy loops on two CPUs one of nice 0 took 8 s until it had read
/// its files and began to load the scheduler.
const NICE: i32 = -10;
/// Process of `ioprio_set(2)`: the numbers of linux/ioprio.h, which libc lacks.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// I/O class and level of a process that never set one: they follow its nice level.
const IOPRIO_NONE: libc::c_int = 0;
/// Execution domain of an ordinary process (linux/personality.h).
const PER_LINUX: libc::c_ulong = 0;

/// Sets a soft limit, and raises the hard one to it. Without permission the soft limit is the
/// hard one at most.
fn limit(resource: Resource, soft: u64) {
    let Ok((_, hard)) = getrlimit(resource) else {
        return;
    };
    if setrlimit(resource, soft, hard.max(soft)).is_err() {
        // A soft limit up to the hard one needs no permission.
        let _ = setrlimit(resource, soft.min(hard), hard);
    }
}

/// Allows as many open files as this process may have.
pub fn raise_file_limit() {
    let hard = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
    limit(Resource::RLIMIT_NOFILE, hard.max(FILES));
}

/// Closes file descriptors inherited through the client, such as a lock of `flock` or the end of a
/// pipe, which the owner would hold during its whole life. Must run before any other file is open.
pub fn close_inherited() {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let name = |entry: std::io::Result<DirEntry>| entry.ok()?.file_name().into_string().ok();
    let files: Vec<i32> = entries.filter_map(name).flat_map(|it| it.parse()).collect();
    for file in files.into_iter().filter(|file| *file > 2) {
        // The descriptor of the listing itself is already closed.
        let _ = nix::unistd::close(file);
    }
}

/// Gives this process the settings of one that the kernel has just made, but for its nice level,
/// because the settings of one command must not affect the owner of all groups. Settings that need
/// a missing permission stay as they are. The working folder and the environment stay as well: the
/// client chose them for the owner. Must run before any other thread starts, which would keep the
/// client's settings.
pub fn reset_settings() {
    UNLIMITED
        .into_iter()
        .for_each(|resource| limit(resource, RLIM_INFINITY));
    limit(Resource::RLIMIT_STACK, STACK_BYTES);
    // A panic needs no core file, which would be in `/`.
    limit(Resource::RLIMIT_CORE, 0);
    // Rust's runtime ignores SIGPIPE: an owner outlives its clients.
    let signals = 1..=libc::SIGRTMAX();
    let signals = signals.filter(|signal| *signal != libc::SIGPIPE);
    signals.for_each(caller::stop_ignoring);
    caller::unblock_signals();
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    // 0: this process.
    let _ = tasks::set_policy(0, libc::SCHED_OTHER);
    if tasks::set_nice(0, NICE).is_err() {
        let _ = tasks::set_nice(0, 0);
    }
    let mut all = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        let _ = all.set(cpu);
    }
    let _ = sched_setaffinity(Pid::from_raw(0), &all);
    let _ = set_timerslack(TIMER_SLACK_NS);
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    // SAFETY: these calls take integers, and a null pointer for an empty set of memory nodes.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_NONE);
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_DEFAULT,
            0_usize,
            0_usize,
        );
        // Otherwise a client with another one could change the release of the kernel as seen here.
        libc::personality(PER_LINUX);
    }
}

/// Leaves the client's session and its children: the client may wait for all of these, or be
/// killed with them. Must run before any other thread, which would not be in the new process.
pub fn leave_the_client() {
    // SAFETY: this process has one thread, so the new one may do everything.
    if let Ok(ForkResult::Parent { .. }) = unsafe { fork() } {
        // The new process has the client's files, and reports on them.
        std::process::exit(0);
    }
    // Fails only without a new process, if this one leads a process group already.
    if setsid().is_ok() {
        // In the root cgroup the nice level holds within the session only, which has one of its
        // own: sched(7), "The autogroup feature". Some kernels are built without it.
        let _ = fs::write("/proc/self/autogroup", NICE.to_string());
    }
}
