//! Starting the command: in its group from its first instruction.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};

use plimsoll_engine::enforcer::Membership;
use plimsoll_engine::huge_pages;

use crate::error::{CommandError, EXIT_FAILED, Result};

/// The child reports the error with which it cannot join its group as a
/// number above this, where the kernel has none.
const CANNOT_JOIN: i32 = 10_000;
/// What the child reports if it may not have its nice level.
const CANNOT_RENICE: i32 = 20_000;

/// Writes `0`, which means the writer, to a `cgroup.procs`.
fn join(file: RawFd) -> bool {
    // SAFETY: the buffer is one byte of static memory, and the file is kept
    // open by the caller of `spawn`; `write` is async-signal-safe.
    unsafe { libc::write(file, c"0".as_ptr().cast(), 1) == 1 }
}

fn schedule(policy: i32) -> bool {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads one `sched_param`, which lives until it returns;
    // who 0 is the caller. A plain system call, safe between fork and exec.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

fn renice(nice: i32) -> bool {
    // SAFETY: takes integers only; who 0 is the caller. It is a plain system
    // call, safe between fork and exec.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// What the child reports if it may not have the scheduler's policy.
const CANNOT_SCHEDULE: i32 = 30_000;

/// No file of ours has a higher number, unless our caller left hundreds open.
const OWN_FILES_MAX: RawFd = 1024;

/// Closes files that exec would close anyway, but for `keep`. Joining a group
/// can take the kernel 100 ms; were we killed meanwhile, the child's copies
/// would still hold the locks that say that we are alive.
fn close_own_files(keep: &[RawFd]) {
    for file in 3..OWN_FILES_MAX {
        // SAFETY: takes integers only; a number without a file is an error.
        let flags = unsafe { libc::fcntl(file, libc::F_GETFD) };
        if flags < 0 || flags & libc::FD_CLOEXEC == 0 || keep.contains(&file) {
            continue;
        }
        // SAFETY: all zeroes is a valid `stat`, and `fstat` writes no more.
        let is_regular = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            libc::fstat(file, &raw mut status) == 0
                && status.st_mode & libc::S_IFMT == libc::S_IFREG
        };
        if is_regular {
            // SAFETY: this process, the child, never uses the file again; the
            // pipe that reports errors to the parent is not a regular file.
            unsafe { libc::close(file) };
        }
    }
}

/// Why the child could not join its group.
fn cannot_join(reason: i32) -> CommandError {
    CommandError::Other(match reason {
        libc::ENOENT | libc::ENODEV => {
            "the group was removed before the command could join it".into()
        }
        _ => format!(
            "the command cannot join its group: {}",
            io::Error::from_raw_os_error(reason)
        ),
    })
}

/// Starts a command in a group. Streams, terminal, folder and environment
/// are the ones of this process.
pub fn spawn(words: &[OsString], membership: Membership, nice: Option<i32>) -> Result<Child> {
    let files: Vec<RawFd> = membership
        .files
        .iter()
        .map(|file| file.as_raw_fd())
        .collect();
    let policy = membership.policy;
    let prepare = move || {
        close_own_files(&files);
        if !files.iter().all(|file| join(*file)) {
            let reason = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            return Err(io::Error::from_raw_os_error(CANNOT_JOIN + reason));
        }
        if nice.is_some_and(|nice| !renice(nice)) {
            return Err(io::Error::from_raw_os_error(CANNOT_RENICE));
        }
        if policy.is_some_and(|policy| !schedule(policy)) {
            return Err(io::Error::from_raw_os_error(CANNOT_SCHEDULE));
        }
        Ok(())
    };
    let started = spawn_after(words, prepare);
    // The files are open until the command has joined.
    drop(membership);
    started
}

/// Starts a command once its process has done `prepare`, which makes system
/// calls only: it neither allocates nor locks.
pub fn spawn_after(
    words: &[OsString],
    mut prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) -> Result<Child> {
    let shown = words[0].to_string_lossy().into_owned();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let prepare = move || {
        huge_pages::allow_again_in_child();
        prepare()
    };
    // SAFETY: between fork and exec, `prepare` makes system calls only, as its
    // callers promise. `Vec` iteration and making an error of a number do not
    // allocate.
    unsafe { command.pre_exec(prepare) };
    command
        .spawn()
        .map_err(|source| match (source.raw_os_error(), source.kind()) {
            (Some(code @ CANNOT_JOIN..CANNOT_RENICE), _) => cannot_join(code - CANNOT_JOIN),
            (Some(CANNOT_RENICE), _) => CommandError::Other(
                "nice: no permission to raise the priority; it takes root or CAP_SYS_NICE".into(),
            ),
            (Some(CANNOT_SCHEDULE), _) => CommandError::Other(
                "the command cannot be handed to the sched_ext scheduler: the kernel refuses"
                    .into(),
            ),
            (_, io::ErrorKind::NotFound) => CommandError::NotFound { command: shown },
            _ => CommandError::CannotRun {
                command: shown,
                source,
            },
        })
}

/// The exit code for a signal that ended the command, or kept it from starting.
pub fn killed_by(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(EXIT_FAILED))
}

/// The command's own exit code, or 128 + N when signal N killed it.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // A process that has ended did so by one or the other.
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(EXIT_FAILED),
    )
}
