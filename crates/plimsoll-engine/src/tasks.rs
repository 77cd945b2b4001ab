//! Single tasks: identity, nice level and scheduling policy.

use std::path::Path;

use procfs::ProcError;

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

/// When a task was started, in clock ticks since boot: tells it from a later
/// one of the same pid.
///
/// # Errors
/// `NoTarget` when there is no such task; another where that is unknown, because `/proc` cannot be
/// read.
pub fn find_start_time(tid: i32) -> Result<u64> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|task| task.start_time).ok_or_else(|| no_task(tid)));
    Ok(stat(tid)?.starttime)
}

/// Does the same as [`find_start_time`]. `None`: there is no such task, or its start time is
/// unknown.
pub fn start_time(tid: i32) -> Option<u64> {
    find_start_time(tid).ok()
}

/// Returns true if there is no such task. False also where that is unknown.
pub fn is_gone(tid: i32) -> bool {
    matches!(find_start_time(tid), Err(EngineError::NoTarget { .. }))
}

/// The kernel's line about a task (proc_pid_stat(5)).
fn stat(tid: i32) -> Result<procfs::process::Stat> {
    let stat = procfs::process::Process::new(tid).and_then(|process| process.stat());
    stat.map_err(|error| unread(tid, error))
}

/// The error for a task whose files cannot be read: it is gone, or something else is wrong, such
/// as too many open files.
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

/// The name of a task, of at most 15 bytes. `None`: there is no such task.
pub fn command(tid: i32) -> Option<String> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|_| "simulated".to_owned()));
    let name = std::fs::read(format!("/proc/{tid}/comm")).ok()?;
    Some(printable(String::from_utf8_lossy(&name).trim_end()))
}

/// Kinds of tasks that a pid may be that of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A process that runs or sleeps.
    Process,
    /// A thread of the kernel, with its name. Such threads work for everybody.
    KernelThread(String),
    /// A process that has ended, until its parent waits for it.
    Zombie,
    /// A thread of the process with this pid.
    Thread(i32),
}

/// `PF_KTHREAD` of include/linux/sched.h, in the flags of proc_pid_stat(5).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Tells what a pid is that of. `None`: there is no such process.
pub fn kind(pid: i32) -> Option<Kind> {
    or_simulated!(kernel => kernel.tasks().get(pid).map(|_| Kind::Process));
    let process = procfs::process::Process::new(pid).ok()?;
    let (stat, tgid) = (process.stat().ok()?, process.status().ok()?.tgid);
    Some(match stat.state {
        _ if stat.flags & PF_KTHREAD != 0 => Kind::KernelThread(printable(&stat.comm)),
        _ if tgid != pid => Kind::Thread(tgid),
        // The main thread may end before the others.
        'Z' | 'X' | 'x' if stat.num_threads <= 1 => Kind::Zombie,
        _ => Kind::Process,
    })
}

/// A task's name on one line: a task may give itself any.
pub(crate) fn printable(name: &str) -> String {
    name.replace(
        |letter: char| letter.is_control() || letter == '\u{fffd}',
        "?",
    )
}

/// The nice level of a task.
///
/// # Errors
/// As of [`find_start_time`].
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

/// The tasks (threads) of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    or_simulated!(kernel => kernel.tasks().get(pid).map(|_| pid).into_iter().collect());
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

/// Converts the result of a system call on a task. A task that has just exited counts
/// as success, because nothing is left to change.
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

/// The policy of tasks that a BPF scheduler schedules
/// (include/uapi/linux/sched.h). Children inherit it. Without such a
/// scheduler, the kernel treats them as `SCHED_OTHER`.
pub const SCHED_EXT: i32 = 7;

/// Classification of a task's scheduling policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`, `SCHED_BATCH` or `SCHED_IDLE`: the fair class.
    Fair,
    /// `SCHED_EXT`: a BPF scheduler's, where there is one.
    Ext,
    /// Real-time, deadline, or newer than this program: not ours to touch.
    Other,
}

impl Policy {
    /// Classifies the kernel's policy number, with or without flags.
    pub fn of(number: i32) -> Self {
        match number & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => Self::Fair,
            SCHED_EXT => Self::Ext,
            _ => Self::Other,
        }
    }
}

/// The kernel's number of a task's policy, with its flags. `None`: there is no
/// such task.
pub fn policy_number(tid: i32) -> Option<i32> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|_| libc::SCHED_OTHER));
    // SAFETY: takes an integer only and touches no memory of ours.
    let number = unsafe { libc::sched_getscheduler(tid) };
    (number >= 0).then_some(number)
}

/// The scheduling policy of a task. `None`: there is no such task.
pub fn policy(tid: i32) -> Option<Policy> {
    policy_number(tid).map(Policy::of)
}

/// The policy of a `SCHED_EXT` task while the fair class runs it for once. The
/// flag tells it from a task that is `SCHED_BATCH` by itself.
pub const FALLBACK: i32 = libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK;

/// The policy of a `SCHED_EXT` task that holds a lock for which other work waits,
/// while it runs before all that.
pub const BOOSTED: i32 = libc::SCHED_DEADLINE | libc::SCHED_RESET_ON_FORK;

/// Runtime of a boosted task in each period. The last digits distinguish it from a task
/// that is `SCHED_DEADLINE` by itself. `src/bpf/holders.bpf.h` of plimsoll-scx has the
/// same number.
const BOOSTED_RUNTIME_NS: u64 = 5_000_011;
const BOOSTED_PERIOD_NS: u64 = 20_000_003;

const NO_ATTRIBUTES: libc::sched_attr = libc::sched_attr {
    size: size_of::<libc::sched_attr>() as u32,
    sched_policy: 0,
    sched_flags: 0,
    sched_nice: 0,
    sched_priority: 0,
    sched_runtime: 0,
    sched_deadline: 0,
    sched_period: 0,
};

/// Returns true if a task with this policy is boosted; see [`boost`].
pub fn is_boosted(tid: i32, policy: i32) -> bool {
    if policy != BOOSTED {
        return false;
    }
    let mut found = NO_ATTRIBUTES;
    // SAFETY: the kernel writes no more than `found.size` bytes to `found`.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid,
            &raw mut found,
            NO_ATTRIBUTES.size,
            0u32,
        )
    };
    returned == 0
        && (found.sched_runtime, found.sched_period) == (BOOSTED_RUNTIME_NS, BOOSTED_PERIOD_NS)
}

/// Number of those tasks that are real-time or deadline tasks by themselves.
pub fn nr_real_time(tids: &[i32]) -> u64 {
    let is_real_time = |tid: &&i32| {
        let policy = policy_number(**tid);
        policy.is_some_and(|it| Policy::of(it) == Policy::Other && !is_boosted(**tid, it))
    };
    tids.iter().filter(is_real_time).count() as u64
}

/// Returns true if a task with this policy is a `SCHED_EXT` task that another class runs
/// for a while.
pub fn is_away(tid: i32, policy: i32) -> bool {
    policy == FALLBACK || is_boosted(tid, policy)
}

/// Returns true if a task has the policy of a task lent to the fair class.
pub fn is_fallback(tid: i32) -> bool {
    policy_number(tid) == Some(FALLBACK)
}

/// A task, told from a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId {
    /// Its number.
    pub tid: i32,
    /// When it was started, in clock ticks since boot.
    pub start_time: u64,
}

impl TaskId {
    /// The task that has this number now. `None`: there is none.
    pub fn of(tid: i32) -> Option<Self> {
        let start_time = start_time(tid)?;
        Some(Self { tid, start_time })
    }

    /// Returns true if the task still exists, or that is unknown: nothing is given up on a guess.
    pub fn exists(self) -> bool {
        match find_start_time(self.tid) {
            Ok(start_time) => start_time == self.start_time,
            Err(EngineError::NoTarget { .. }) => false,
            Err(_) => true,
        }
    }
}

/// A task and its nice level. `None`: it is gone.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn with_nice(tid: i32) -> Result<Option<(TaskId, i32)>> {
    let read = || {
        let start_time = find_start_time(tid)?;
        Ok((TaskId { tid, start_time }, nice(tid)?))
    };
    match read() {
        Err(EngineError::NoTarget { .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the task from which a task inherits its policy if it never set one: the
/// first thread of its process, or for that thread the parent process. `None`: the
/// task is gone.
pub fn inherits_from(tid: i32) -> Option<i32> {
    or_simulated!(kernel => kernel.tasks().get(tid).map(|task| task.parent));
    let status = procfs::process::Process::new(tid).ok()?.status().ok()?;
    Some(if status.tgid == tid {
        status.ppid
    } else {
        status.tgid
    })
}

/// Run time of a task, in nanoseconds. `None`: the task is gone.
pub fn run_ns(tid: i32) -> Option<u64> {
    let process = procfs::process::Process::new(tid).ok()?;
    Some(process.schedstat().ok()?.sum_exec_runtime)
}

/// The CPU that a task is on, or was on last. `None`: it is gone.
pub fn cpu(tid: i32) -> Option<u32> {
    let stat = procfs::process::Process::new(tid).ok()?.stat().ok()?;
    u32::try_from(stat.processor?).ok()
}

/// Has a task run before all ordinary ones, for 5 ms in each 20 ms and no more, which
/// the kernel enforces, whatever becomes of the caller.
///
/// # Errors
/// EPERM where it may not run on every CPU, EBUSY where too many do so already, ESRCH.
pub fn boost(tid: i32) -> std::io::Result<()> {
    let attributes = libc::sched_attr {
        sched_policy: libc::SCHED_DEADLINE.cast_unsigned(),
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK.cast_unsigned().into(),
        sched_runtime: BOOSTED_RUNTIME_NS,
        sched_deadline: BOOSTED_PERIOD_NS,
        sched_period: BOOSTED_PERIOD_NS,
        ..NO_ATTRIBUTES
    };
    // SAFETY: the kernel reads one `sched_attr`, whose size is in it and which lives
    // until the call returns.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const attributes, 0u32) };
    if returned == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Sets the scheduling policy of one task, with flags, to one that has no
/// priority: the fair class's or `SCHED_EXT`. Its nice level stays. One that
/// has just ended counts as set.
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
    fn policies_of_the_fair_class_are_told_from_others() {
        assert_eq!(Policy::of(libc::SCHED_OTHER), Policy::Fair);
        assert_eq!(
            Policy::of(libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK),
            Policy::Fair
        );
        assert_eq!(Policy::of(SCHED_EXT), Policy::Ext);
        for number in [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE, 99] {
            assert_eq!(Policy::of(number), Policy::Other);
        }
    }

    #[test]
    fn a_task_that_is_gone_has_no_policy() {
        // Above the kernel's largest pid.
        assert_eq!(policy(i32::MAX), None);
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
    fn a_later_task_of_the_same_number_is_another() {
        let me = TaskId::of(std::process::id().cast_signed()).unwrap();
        assert!(me.exists());
        let before = TaskId {
            start_time: me.start_time - 1,
            ..me
        };
        assert!(!before.exists());
    }

    #[test]
    fn a_batch_task_of_its_own_is_not_a_lent_one() {
        let tid = nix::unistd::gettid().as_raw();
        // Each test has a thread of its own.
        set_policy(tid, libc::SCHED_BATCH).unwrap();
        assert!(!is_fallback(tid));
        assert_eq!(policy(tid), Some(Policy::Fair));
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
