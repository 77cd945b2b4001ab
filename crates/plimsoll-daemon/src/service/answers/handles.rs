//! The process or cgroup that a client's handle means, in this process's namespaces.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, os, read_text};
use plimsoll_engine::EngineError;
use plimsoll_engine::tasks::{self, TaskId, TaskKind};

use super::{Refused, one_line};
use crate::service::members::is_this_process;

/// Finds the process of a pidfd, as this process's PID namespace numbers it. `name` is as the client
/// wrote it.
///
/// # Errors
/// When it has ended, or this process does not see it.
pub(super) fn process_of(name: &str, handle: Option<BorrowedFd<'_>>) -> Result<TaskId, Refused> {
    let handle = handle.ok_or(format!(
        "{name}: a process is named by a pidfd that comes with the request (SCM_RIGHTS); a bare \
         number may mean another process here"
    ))?;
    // A pidfd is shown with the number that it has where this `/proc` was mounted.
    let own = os::read_link(Path::new("/proc/self")).unwrap_or_default();
    if own.as_os_str() != std::process::id().to_string().as_str() {
        return Err(format!(
            "{name}: the owner sees the /proc of another PID namespace; mount one of its own \
             (unshare --mount-proc)"
        ));
    }
    let pid = pid_of(name, handle)?;
    let process = TaskId::find(pid).map_err(|error| match error {
        EngineError::NoTarget { .. } => format!("{pid}: no such process"),
        other => one_line(other),
    })?;
    // The start time is the process's own only if the process still has the pid.
    pid_of(name, handle)?;
    Ok(process)
}

/// Reads the `Pid` line of a pidfd's fdinfo (pidfd_show_fdinfo in the kernel's fs/pidfs.c): -1 once
/// the process is gone, 0 if this namespace does not see it.
fn pid_of(name: &str, handle: BorrowedFd<'_>) -> Result<i32, Refused> {
    let path = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
    let text = read_text(Path::new(&path)).map_err(one_line)?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match pid.and_then(|pid| pid.trim().parse().ok()) {
        None => Err(format!("{name}: the file with the request is no pidfd")),
        Some(0) => Err(format!(
            "{name}: the owner does not see this process, which is in another PID namespace"
        )),
        Some(pid) if pid < 0 => Err(format!("{name}: no such process")),
        Some(pid) => Ok(pid),
    }
}

/// Checks that a process may get limits of its own.
///
/// # Errors
/// When that would harm others, or do nothing.
pub(super) fn check_limitable(name: &str, process: TaskId) -> Result<(), Refused> {
    let refused = |why: String| Err(format!("{name}: {why}"));
    if process.tid == 1 {
        return refused("is process 1, on which all others depend; it gets no limits".into());
    }
    if is_this_process(process.tid) {
        return refused("is Plimsoll's own daemon, which has to run to keep limits".into());
    }
    match tasks::kind(process.tid) {
        None => refused("no such process".into()),
        Some(TaskKind::KernelThread(called)) => refused(format!(
            "is the kernel thread {called}; kernel threads work for everybody and get no limits"
        )),
        Some(TaskKind::Thread(process)) => refused(format!(
            "is a thread of process {process}; processes are limited as a whole"
        )),
        Some(TaskKind::Zombie) => {
            refused("has ended, and is a zombie until its parent waits for it".into())
        }
        Some(TaskKind::Process) => Ok(()),
    }
}

/// Finds the cgroup of a folder that a client has opened, below the mount point. `named` is the
/// path as the client sees it, which most often is the same here. `None`: the folder is not below
/// this process's mount point.
pub(super) fn cgroup_of_handle(
    hierarchy: &Arc<Hierarchy>,
    named: Option<PathBuf>,
    handle: BorrowedFd<'_>,
) -> Option<PathBuf> {
    // A `File` closes its file, so it gets a copy.
    let file = File::from(handle.try_clone_to_owned().ok()?);
    let meant = file.metadata().ok()?;
    let is_meant = |path: &Path| {
        let found = fs::metadata(hierarchy.cpu_folder(path));
        found.is_ok_and(|found| (found.dev(), found.ino()) == (meant.dev(), meant.ino()))
    };
    named
        .filter(|path| is_meant(path))
        .or_else(|| below(hierarchy, Path::new(""), &is_meant))
}

/// Searches all cgroups: only a client in a namespace of its own names one differently.
fn below(
    hierarchy: &Arc<Hierarchy>,
    path: &Path,
    is_meant: &dyn Fn(&Path) -> bool,
) -> Option<PathBuf> {
    if is_meant(path) {
        return Some(path.to_owned());
    }
    let children = CpuGroup::at(hierarchy, path).children().ok()?;
    let mut children = children.iter();
    children.find_map(|child| below(hierarchy, child.path(), is_meant))
}
