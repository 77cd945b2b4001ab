//! Single tasks: who they are, and their nice level.

use std::path::Path;

use crate::error::{EngineError, Result};

/// When a task was started, in clock ticks since boot: tells it from a later
/// one of the same pid. `None`: there is no such task.
pub fn start_time(tid: i32) -> Option<u64> {
    Some(
        procfs::process::Process::new(tid)
            .ok()?
            .stat()
            .ok()?
            .starttime,
    )
}

/// The nice level of a task.
///
/// # Errors
/// When there is no such task.
pub fn nice(tid: i32) -> Result<i32> {
    let stat = procfs::process::Process::new(tid).and_then(|process| process.stat());
    let stat = stat.map_err(|_| EngineError::NoTarget {
        target: tid.to_string(),
        what: "task",
    })?;
    // −20 … 19: it fits.
    Ok(stat.nice as i32)
}

/// The tasks (threads) of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let Ok(process) = procfs::process::Process::new(pid) else {
        return Vec::new();
    };
    let Ok(tasks) = process.tasks() else {
        return Vec::new();
    };
    tasks.flatten().map(|task| task.tid).collect()
}

/// Sets the nice level of one task. One that has just ended counts as set.
///
/// # Errors
/// When it needs a privilege that this process lacks.
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    // SAFETY: setpriority takes integers only and touches no memory of ours.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.unsigned_abs(), nice) } != 0;
    if !failed {
        return Ok(());
    }
    let source = std::io::Error::last_os_error();
    if source.raw_os_error() == Some(libc::ESRCH) {
        return Ok(());
    }
    Err(EngineError::cgroup(
        format!("set nice {nice} (raising a priority takes root or CAP_SYS_NICE)"),
        Path::new(&format!("/proc/{tid}")),
        source,
    ))
}
