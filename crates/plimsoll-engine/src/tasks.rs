//! Single tasks: identity, nice level and scheduling policy.

use std::path::Path;

use plimsoll_cgroupfs::name::printable;
use procfs::ProcError;
use procfs::process::{Process, Stat, Task};
use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};

/// Returns the answer of the simulated kernel, if this thread has one.
macro_rules! or_simulated {
    ($kernel:ident => $answer:expr) => {
        #[cfg(feature = "simulated")]
        if let Some(answer) = plimsoll_cgroupfs::simulated::ask(|$kernel| $answer) {
            return answer;
        }
    };
}

/// Returns the start time of a task, in clock ticks since boot, which distinguishes the task from a
/// later one of the same pid.
///
/// # Errors
/// `NoTarget` when there is no such task; another error where that is unknown, because `/proc`
/// cannot be read.
pub fn find_start_time(tid: i32) -> Result<u64> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|task| task.start_time).ok_or_else(|| no_task(tid)));
    Ok(stat(tid)?.starttime)
}

/// Returns whether there is no such task; `false` also where that is unknown.
pub fn is_gone(tid: i32) -> bool {
    matches!(find_start_time(tid), Err(EngineError::NoTarget { .. }))
}

/// Reads the kernel's line about a task (proc_pid_stat(5)).
fn stat(tid: i32) -> Result<Stat> {
    let stat = Process::new(tid).and_then(|process| process.stat());
    stat.map_err(|error| unread(tid, error))
}

/// Error for a task whose files cannot be read: it is gone, or something else is wrong, such as too
/// many open files.
fn unread(tid: i32, error: ProcError) -> EngineError {
    let gone = [Some(libc::ENOENT), Some(libc::ESRCH)];
    let source = match error {
        ProcError::NotFound(_) => return no_task(tid),
        ProcError::Io(source, _) if gone.contains(&source.raw_os_error()) => return no_task(tid),
        ProcError::Io(source, _) => source,
        other => std::io::Error::other(other.to_string()),
    };
    EngineError::file("read", Path::new(&format!("/proc/{tid}/stat")), source)
}

/// Name of a task, of at most 15 bytes. `None`: there is no such task.
pub fn command(tid: i32) -> Option<String> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|_| "simulated".to_owned()));
    let name = std::fs::read(format!("/proc/{tid}/comm")).ok()?;
    Some(printable(String::from_utf8_lossy(&name).trim_end()))
}

/// Kinds of tasks that a number can stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskKind {
    /// Process that runs or sleeps.
    Process,
    /// Thread of the kernel, with its name. Such threads work for everybody.
    KernelThread(String),
    /// Process that has ended, until its parent waits for it.
    Zombie,
    /// Thread of the process with this pid.
    Thread(i32),
}

/// Flag of kernel threads, as in include/linux/sched.h, in the flags of proc_pid_stat(5).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Determines the kind of task of a number. `None`: there is no such task.
pub fn kind(pid: i32) -> Option<TaskKind> {
    or_simulated!(kernel => kernel.tasks().get(pid).map(|_| TaskKind::Process));
    let process = Process::new(pid).ok()?;
    let (stat, tgid) = (process.stat().ok()?, process.status().ok()?.tgid);
    Some(match stat.state {
        _ if stat.flags & PF_KTHREAD != 0 => TaskKind::KernelThread(printable(&stat.comm)),
        _ if tgid != pid => TaskKind::Thread(tgid),
        // The main thread may end before the others.
        'Z' | 'X' | 'x' if stat.num_threads <= 1 => TaskKind::Zombie,
        _ => TaskKind::Process,
    })
}

/// Returns the nice level of a task; fails as [`find_start_time`] does.
pub fn nice(tid: i32) -> Result<i32> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|task| task.nice).ok_or_else(|| no_task(tid)));
    // −20 … 19: it fits.
    Ok(stat(tid)?.nice as i32)
}

fn no_task(tid: i32) -> EngineError {
    EngineError::NoTarget {
        target: tid.to_string(),
        what: "task",
    }
}

/// Lists the tasks (threads) of a process; none if it is gone.
pub fn threads(pid: i32) -> Vec<i32> {
    or_simulated!(kernel => kernel.tasks().get(pid).map(|_| pid).into_iter().collect());
    tasks_of(pid).map(|task| task.tid).collect()
}

/// Lists the children of a process; none if it is gone.
pub fn children(pid: i32) -> Vec<i32> {
    or_simulated!(kernel => kernel.tasks().children(pid));
    let of_task = |task: Task| task.children().unwrap_or_default();
    let pids = tasks_of(pid).flat_map(of_task);
    pids.map(u32::cast_signed).collect()
}

fn tasks_of(pid: i32) -> impl Iterator<Item = Task> {
    let tasks = Process::new(pid).and_then(|process| process.tasks());
    tasks.into_iter().flatten().flatten()
}

/// Memory of this process that is in RAM.
pub fn resident_bytes() -> u64 {
    let memory = Process::myself().and_then(|me| me.statm());
    memory.map_or(0, |memory| memory.resident * procfs::page_size())
}

/// Sets the nice level of one task. One that has just ended counts as set.
///
/// # Errors
/// When the change needs a privilege that this process lacks.
pub fn set_nice(tid: i32, nice: i32) -> Result<()> {
    or_simulated!(kernel => match kernel.set_nice(tid, nice) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
            Err(EngineError::file("set nice", Path::new("/proc"), error))
        }
        _ => Ok(()),
    });
    // SAFETY: setpriority takes integers only and touches no memory of ours.
    let returned = unsafe { libc::setpriority(libc::PRIO_PROCESS, tid.unsigned_abs(), nice) };
    unless_gone(returned, tid, || {
        format!("set nice {nice} (raising a priority takes root or CAP_SYS_NICE)")
    })
}

/// Converts the result of a system call on a task. A task that has just exited counts as success,
/// because nothing is left to change.
fn unless_gone(returned: libc::c_int, tid: i32, action: impl FnOnce() -> String) -> Result<()> {
    if returned == 0 {
        return Ok(());
    }
    let source = std::io::Error::last_os_error();
    if source.raw_os_error() == Some(libc::ESRCH) {
        return Ok(());
    }
    let task = format!("/proc/{tid}");
    Err(EngineError::file(action(), Path::new(&task), source))
}

/// Returns the kernel's number of a task's policy, with its flags. `None`: there is no such task.
pub fn policy_number(tid: i32) -> Option<i32> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|_| libc::SCHED_OTHER));
    // SAFETY: takes an integer only and touches no memory of ours.
    let number = unsafe { libc::sched_getscheduler(tid) };
    (number >= 0).then_some(number)
}

/// Returns whether a policy, with or without flags, is a real-time or deadline one, or newer than
/// this program.
pub fn is_real_time(policy: i32) -> bool {
    /// Policy of a BPF scheduler's tasks, where it does not take all (uapi/linux/sched.h).
    const SCHED_EXT: i32 = 7;
    !matches!(
        policy & !libc::SCHED_RESET_ON_FORK,
        libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE | SCHED_EXT
    )
}

/// Counts the real-time and deadline tasks among these.
pub fn nr_real_time(tids: &[i32]) -> u64 {
    let policies = tids.iter().filter_map(|tid| policy_number(*tid));
    policies.filter(|policy| is_real_time(*policy)).count() as u64
}

/// Identity of a task, which distinguishes it from a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    #[serde(rename = "pid")]
    pub tid: i32,
    /// Start time, in clock ticks since boot.
    pub start_time: u64,
}

impl TaskId {
    /// Returns the task that has this number now. `None`: there is none, or its start time is
    /// unknown.
    pub fn of(tid: i32) -> Option<Self> {
        Self::find(tid).ok()
    }

    /// Returns the task that has this number now.
    ///
    /// # Errors
    /// [`EngineError::NoTarget`] when there is none; any other when its start time cannot be read.
    pub fn find(tid: i32) -> Result<Self> {
        let start_time = find_start_time(tid)?;
        Ok(Self { tid, start_time })
    }

    /// Returns whether the task still exists; `true` also where that is unknown, because nothing is
    /// given up on a guess.
    pub fn exists(self) -> bool {
        match find_start_time(self.tid) {
            Ok(start_time) => start_time == self.start_time,
            Err(EngineError::NoTarget { .. }) => false,
            Err(_) => true,
        }
    }
}

/// Returns a task and its nice level. `None`: the task is gone.
pub fn with_nice(tid: i32) -> Result<Option<(TaskId, i32)>> {
    let read = || {
        let task = TaskId::find(tid)?;
        Ok((task, nice(tid)?))
    };
    match read() {
        Err(EngineError::NoTarget { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the task from which a task inherits its policy if it never set one: the first thread of
/// its process, or for that thread the parent process. `None`: the task is gone.
pub fn inherits_from(tid: i32) -> Option<i32> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|task| task.parent));
    let status = Process::new(tid).ok()?.status().ok()?;
    Some(if status.tgid == tid {
        status.ppid
    } else {
        status.tgid
    })
}

/// Sets the scheduling policy of one task, with flags, to one that has no priority. Its nice level
/// stays. One that has just ended counts as set.
///
/// # Errors
/// When the kernel refuses: it may have no such policy.
pub fn set_policy(tid: i32, policy: i32) -> Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads one `sched_param`, which lives until it returns.
    let returned = unsafe { libc::sched_setscheduler(tid, policy, &raw const param) };
    unless_gone(returned, tid, || format!("set scheduling policy {policy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_policies_are_told_from_others() {
        let idle = libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK;
        // 7: SCHED_EXT.
        for number in [libc::SCHED_OTHER, libc::SCHED_BATCH, idle, 7] {
            assert!(!is_real_time(number), "{number}");
        }
        for number in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE, 99] {
            assert!(is_real_time(number), "{number}");
        }
    }

    #[test]
    fn a_task_that_is_gone_has_no_policy() {
        // Above the kernel's largest pid.
        assert_eq!(policy_number(i32::MAX), None);
        assert_eq!(TaskId::of(i32::MAX), None);
        assert!(set_policy(i32::MAX, libc::SCHED_OTHER).is_ok());
    }

    #[test]
    fn only_a_task_that_is_gone_is_no_target() {
        let error = |number| ProcError::Io(std::io::Error::from_raw_os_error(number), None);
        for number in [libc::ESRCH, libc::ENOENT] {
            let gone = unread(7, error(number)).to_string();
            assert_eq!(gone, "7: no such task");
        }
        let unknown = unread(7, error(libc::EMFILE));
        assert_eq!(unknown.os_error(), Some(libc::EMFILE));
        let text = unknown.to_string();
        assert!(text.starts_with("/proc/7/stat: cannot read: "), "{text}");
        assert!(is_gone(i32::MAX) && !is_gone(std::process::id().cast_signed()));
    }

    #[test]
    fn a_thread_has_its_policy_from_its_process_and_that_from_its_parent() {
        let pid = std::process::id().cast_signed();
        let tid = nix::unistd::gettid().as_raw();
        assert_ne!(tid, pid);
        assert_eq!(inherits_from(tid), Some(pid));
        assert_eq!(inherits_from(pid), Some(nix::unistd::getppid().as_raw()));
    }
}
