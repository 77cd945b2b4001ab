//! Moving a task to another CPU: one that waits, or idle work for which one waits.
//!
//! The kernel has no call that moves a task once. So the task's CPUs are set to the one CPU, and
//! then to all again. Only tasks whose CPUs nobody has chosen are moved (the BPF program knows
//! them). A move is on record until it has ended: if an owner is killed between the two calls, the
//! next one ends the move.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use libbpf_rs::Object;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use procfs::process::Process;

use crate::program::{BEGIN_MOVE, END_MOVE, run};

/// Attempts to free a task. Each fails only if the task's cpuset changes meanwhile, or without
/// memory.
const ATTEMPTS_MAX: usize = 100;
/// Longest wait for moves to end. One takes some 50 µs, but a busy real-time task may keep its
/// thread from going on for ever.
const END_MAX: Duration = Duration::from_millis(100);

/// A task, in the words of `plimsoll_guard_task` of `src/bpf/intf.h`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task([u64; 7]);

impl Task {
    /// Returns the task that a wake-up is for; `None`: it is for no task.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: [[u8; 8]; 7] = words.try_into().ok()?;
        let task = Self(words.map(u64::from_ne_bytes));
        (task.tid() != 0).then_some(task)
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.map(u64::to_ne_bytes).concat()
    }

    /// 0: none.
    fn tid(&self) -> u64 {
        self.0[0]
    }

    /// Start of the task, on CLOCK_BOOTTIME.
    fn started_ns(&self) -> u64 {
        self.0[2]
    }

    /// The CPU to which the task is moved, or was.
    fn cpu(&self) -> u32 {
        u32::try_from(self.0[4]).unwrap_or(u32::MAX)
    }

    /// Parent of a task that is to be freed if the task is bound and the parent is not. 0: the task
    /// is to be moved.
    fn parent_tid(&self) -> u64 {
        self.0[5]
    }
}

/// Moves tasks, and has one record for each thread.
pub(crate) struct Moves {
    /// The BPF program, which begins moves.
    object: Arc<Object>,
    path: PathBuf,
    /// The file, from the first move on.
    file: OnceLock<File>,
    present: Mutex<Present>,
    /// Notified when nothing is moved any more.
    ended: Condvar,
    /// Tasks that a thread has moved to its own CPU.
    nr_pulled: AtomicU64,
    /// Tasks that a thread has moved away from it.
    nr_pushed: AtomicU64,
}

/// The moves of this moment.
#[derive(Debug, Default)]
struct Present {
    /// No more begins.
    is_closed: bool,
    nr_moving: usize,
}

impl Moves {
    pub fn new(path: &Path, object: Arc<Object>) -> Self {
        Self {
            object,
            path: path.into(),
            file: OnceLock::new(),
            present: Mutex::default(),
            ended: Condvar::new(),
            nr_pulled: AtomicU64::new(0),
            nr_pushed: AtomicU64::new(0),
        }
    }

    pub fn nr_pulled(&self) -> u64 {
        self.nr_pulled.load(Ordering::Relaxed)
    }

    pub fn nr_pushed(&self) -> u64 {
        self.nr_pushed.load(Ordering::Relaxed)
    }

    /// Moves a task, or frees a child that was started meanwhile. Afterwards the kernel moves the
    /// task on as it likes. `thread` is the CPU of the calling thread.
    pub fn serve(&self, thread: u32, task: &Task) {
        let (Some(tid), Ok(there)) = (tid_of(task.tid()), only(task.cpu())) else {
            return;
        };
        if let Some(parent) = tid_of(task.parent_tid()) {
            let is_bound = |tid| sched_getaffinity(tid) == Ok(there);
            if is_bound(tid) && !is_bound(parent) {
                // A task that has ended needs no CPU.
                free(tid);
            }
            return;
        }
        let mut present = self.present();
        if present.is_closed {
            return;
        }
        present.nr_moving += 1;
        drop(present);
        self.move_to(there, tid, task, thread);
        let mut present = self.present();
        present.nr_moving -= 1;
        if present.is_closed && present.nr_moving == 0 {
            self.ended.notify_all();
        }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, there: CpuSet, tid: Pid, task: &Task, thread: u32) {
        // Without a record nothing is moved.
        if self.note(thread, Some(task)).is_err() {
            return;
        }
        if run(&self.object, BEGIN_MOVE, &mut task.bytes()).is_ok() {
            // The kernel refuses if the task has ended, or its cgroups do not let it run there.
            let moved = sched_setaffinity(tid, &there).is_ok();
            let count = match task.cpu() == thread {
                true => &self.nr_pulled,
                false => &self.nr_pushed,
            };
            count.fetch_add(moved.into(), Ordering::Relaxed);
            // Also where it is refused: of two moves at once that may leave the CPU of the other.
            if !self.free_moved(task) {
                // The record stays, for the next owner.
                return;
            }
        }
        // If the record cannot be cleared, the next owner finds the task free already.
        let _ = self.note(thread, None);
    }

    /// Frees a task that was moved, unless somebody else has chosen its CPUs. Returns false if the
    /// kernel refuses.
    fn free_moved(&self, task: &Task) -> bool {
        let bound = || {
            let mut argument = task.bytes();
            run(&self.object, END_MOVE, &mut argument).ok()?;
            tid_of(Task::of(&argument)?.tid())
        };
        // Twice: with the first id it may have ended, as a thread that executes a program does.
        bound().is_none_or(free) && bound().is_none_or(free)
    }

    /// Waits for all moves to end, and removes the file. If a thread is kept from ending its move,
    /// the record stays, for the next owner.
    pub fn close(&self) {
        let mut present = self.present();
        present.is_closed = true;
        let is_moving = |present: &mut Present| present.nr_moving > 0;
        let waited = self.ended.wait_timeout_while(present, END_MAX, is_moving);
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            return;
        }
        let is_empty = |bytes: Vec<u8>| bytes.iter().all(|byte| *byte == 0);
        if std::fs::read(&self.path).is_ok_and(is_empty) {
            // No record of the file is needed any more.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn note(&self, thread: u32, task: Option<&Task>) -> io::Result<()> {
        if let Some(file) = self.file.get() {
            return note(file, thread, task);
        }
        let mut options = OpenOptions::new();
        // A file that is there belongs to a thread that has not ended yet, or to another one.
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.path)?;
        note(self.file.get_or_init(|| file), thread, task)
    }
}

/// Notes what a thread moves; `None`: nothing.
fn note(file: &File, thread: u32, task: Option<&Task>) -> io::Result<()> {
    // The upper half of the first word is the CPU, from 1.
    let target = |task: &Task| (u64::from(task.cpu()) + 1) << 32;
    let words = task.map_or([0; 2], |task| {
        [task.tid() | target(task), task.started_ns()]
    });
    let bytes = words.map(u64::to_ne_bytes);
    file.write_all_at(bytes.as_flattened(), u64::from(thread) * 16)
}

/// Frees the tasks that an owner has left bound to one CPU because it was killed while it moved
/// them. Returns their ids.
///
/// # Errors
/// When the file is there and cannot be read or removed, or a task cannot be freed: then the file
/// stays.
pub fn free_left_tasks(path: &Path) -> io::Result<Vec<i32>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<_> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let (records, _) = words.as_chunks::<2>();
    let mut freed = Vec::new();
    for (&[tid, started_ns], thread) in records.iter().zip(0..) {
        // An earlier version moved tasks to the CPU of the thread only, and did not say so.
        let cpu = u32::try_from(tid >> 32).unwrap_or(0).checked_sub(1);
        if let Some(tid) = left_task(tid & 0xffff_ffff, started_ns, cpu.unwrap_or(thread)) {
            if !free(tid) {
                return Err(io::Error::other(format!("task {tid} cannot be freed")));
            }
            freed.push(tid.as_raw());
        }
    }
    std::fs::remove_file(path)?;
    Ok(freed)
}

/// The task of a record, if it is the same and still bound to the CPU of its move.
fn left_task(tid: u64, started_ns: u64, cpu: u32) -> Option<Pid> {
    let tid = tid_of(tid)?;
    let stat = Process::new(tid.as_raw()).and_then(|process| process.stat());
    let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
    let is_bound = sched_getaffinity(tid).ok()? == only(cpu).ok()?;
    (is_bound && stat.ok()?.starttime == started_ns / tick_ns).then_some(tid)
}

/// Lets a task run on all CPUs again, also on those that come online later. The kernel keeps those
/// of them that the task's cgroups allow. Returns false if the kernel refuses.
fn free(tid: Pid) -> bool {
    let mut everywhere = CpuSet::new();
    for cpu in 0..CpuSet::count() {
        // `cpu` is below the count.
        let _ = everywhere.set(cpu);
    }
    let mut attempts = (0..ATTEMPTS_MAX).map(|_| sched_setaffinity(tid, &everywhere));
    attempts.any(|attempt| matches!(attempt, Ok(()) | Err(Errno::ESRCH)))
}

fn tid_of(tid: u64) -> Option<Pid> {
    let tid = i32::try_from(tid).ok().filter(|tid| *tid > 0);
    tid.map(Pid::from_raw)
}

pub(crate) fn only(cpu: u32) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)?;
    Ok(set)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A command that sleeps, ended with the test.
    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Self {
            Self(Command::new("sleep").arg("600").spawn().expect("it starts"))
        }

        fn tid(&self) -> Pid {
            Pid::from_raw(self.0.id().cast_signed())
        }

        fn cpus(&self) -> CpuSet {
            sched_getaffinity(self.tid()).expect("it runs")
        }

        /// Start time, on CLOCK_BOOTTIME.
        fn started_ns(&self) -> u64 {
            let stat = Process::new(self.tid().as_raw()).and_then(|process| process.stat());
            let tick_ns = 1_000_000_000 / procfs::ticks_per_second();
            stat.expect("it runs").starttime * tick_ns
        }

        fn bind(&self) -> CpuSet {
            let bound = only(a_cpu()).expect("it is small");
            sched_setaffinity(self.tid(), &bound).expect("it is bound");
            bound
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().expect("it is killed");
            self.0.wait().expect("it ends");
        }
    }

    /// The last CPU on which this process may run.
    fn a_cpu() -> u32 {
        let set = sched_getaffinity(Pid::from_raw(0)).expect("it is known");
        let mut all = (0..CpuSet::count()).rev();
        let cpu = all.find(|cpu| set.is_set(*cpu) == Ok(true));
        u32::try_from(cpu.expect("there is one")).expect("it is small")
    }

    #[test]
    fn a_task_that_a_killed_owner_left_bound_is_freed_and_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("moves");
        assert_eq!(free_left_tasks(&path).expect("there is none"), [0; 0]);
        let (left, other) = (Sleeper::new(), Sleeper::new());
        let before = left.cpus();
        let bound = [&left, &other].map(Sleeper::bind);
        let file = File::create(&path).expect("it is created");
        let record = |thread, sleeper: &Sleeper, started_ns, cpu: u32| {
            let task = Task([sleeper.0.id().into(), 0, started_ns, 0, cpu.into(), 0, 0]);
            note(&file, thread, Some(&task)).expect("it is written");
        };
        record(2, &left, left.started_ns(), a_cpu());
        // A move to another CPU, and an earlier task of this id.
        record(0, &other, other.started_ns(), a_cpu() + 1);
        record(1, &other, 0, a_cpu());
        let freed = free_left_tasks(&path).expect("it is read");
        assert_eq!(freed, [left.tid().as_raw()]);
        assert_eq!(left.cpus(), before);
        assert_eq!(other.cpus(), bound[1]);
        assert!(!path.exists());
    }

    #[test]
    fn a_record_of_a_task_that_somebody_has_freed_does_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("moves");
        let sleeper = Sleeper::new();
        let file = File::create(&path).expect("it is created");
        let cpu = a_cpu().into();
        let task = Task([sleeper.0.id().into(), 0, sleeper.started_ns(), 0, cpu, 0, 0]);
        note(&file, 0, Some(&task)).expect("it is written");
        let is_alone = sleeper.cpus() == only(a_cpu()).expect("it is small");
        let freed = free_left_tasks(&path).expect("it is read");
        assert_eq!(freed.len(), usize::from(is_alone));
    }
}
