//! A kernel in memory: control groups of version 1 or 2, processes, and a disk for journals.
//!
//! A thread that has [installed](install) one makes all calls of [`crate::os`] to it. It does what
//! the kernel does with the files that Plimsoll uses, refuses what the kernel refuses, and can be
//! told to fail: a single write, a full disk, or the death of the calling process between any two
//! writes. Nothing in it depends on time or chance.
//!
//! | rule | kernel |
//! | --- | --- |
//! | a cgroup of v2 has processes or gives its children controllers | `cgroup_attach_permissions`, `cgroup_subtree_control_write` |
//! | an idle cgroup has no weight, and the default one afterwards | `sched_group_set_idle`, `sched_group_set_shares` |
//! | a burst is no larger than its quota | `tg_set_cfs_bandwidth` |
//! | v1: a rate is no higher than those above it | `tg_cfs_schedulable_down` |
//!
//! What it has not: threads, controllers but cpu, time that processes use.

mod cgroups;
mod disk;
mod tasks;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::os::{Access, Found, Listed};
use crate::version::Version;
use cgroups::Cgroups;
use disk::Disk;
pub use disk::OpenFile;
pub use tasks::Task;
use tasks::Tasks;

/// Where its cgroups are mounted.
pub const MOUNT: &str = "/simulated/cgroup";

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// What a call panics with when the calling process dies in it.
#[derive(Debug)]
pub struct Killed;

/// Gives this thread a kernel. Returns the one that it had.
pub fn install(kernel: Option<Kernel>) -> Option<Kernel> {
    KERNEL.replace(kernel)
}

/// Asks this thread's kernel, without any failure that it was told of.
///
/// # Panics
/// When it has none.
pub fn with<R>(act: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(|kernel| act(kernel.as_mut().expect("no kernel in memory")))
}

/// Asks this thread's kernel, if it has one.
///
/// # Panics
/// With [`Killed`] when the calling process dies of it.
pub fn ask<R>(act: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    let (answer, dies) = KERNEL.with_borrow_mut(|kernel| {
        let kernel = kernel.as_mut()?;
        let answer = act(kernel);
        Some((answer, std::mem::take(&mut kernel.dies)))
    })?;
    if dies {
        // Silently: no hook is called.
        std::panic::resume_unwind(Box::new(Killed));
    }
    Some(answer)
}

/// Which writes are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// To a cgroup or a task.
    Kernel,
    /// To a file.
    Disk,
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// The calling process dies instead of its write after so many.
    pub death_in: Option<u64>,
    /// Such a write is refused with an error number after so many of them, once.
    pub refusal_in: Option<(Write, u64, i32)>,
    /// Nothing can be written to a file any more.
    pub disk_is_full: bool,
}

/// A promise about one process, looked at after every write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The process.
    pub pid: i32,
    /// It must not have more than this, in ppm of one CPU.
    pub rate_max_ppm: Option<u64>,
    /// It must be in the background.
    pub is_idle: bool,
}

/// A kernel in memory.
#[derive(Debug)]
pub struct Kernel {
    cgroups: Cgroups,
    tasks: Tasks,
    disk: Disk,
    boot: u64,
    time: Duration,
    start: Instant,
    /// What goes wrong.
    pub faults: Faults,
    /// What is looked at after each write.
    pub watches: Vec<Watch>,
    /// Promises that were broken, in words.
    pub broken: Vec<String>,
    /// Every write in words, where somebody wants to read them.
    pub trace: Option<Vec<String>>,
    nr_kernel_writes: u64,
    is_dead: bool,
    dies: bool,
}

pub(crate) fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Kernel {
    /// One with cgroups of that version, and a process 1 in its root.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            cgroups: Cgroups::new(version),
            tasks: Tasks::default(),
            disk: Disk::default(),
            boot: 1,
            time: Duration::ZERO,
            start: Instant::now(),
            faults: Faults::default(),
            watches: Vec::new(),
            broken: Vec::new(),
            trace: None,
            nr_kernel_writes: 0,
            is_dead: false,
            dies: false,
        }
    }

    /// Its cgroups.
    pub fn cgroups(&mut self) -> &mut Cgroups {
        &mut self.cgroups
    }

    /// Its processes.
    pub fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    /// Its files.
    pub fn disk(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Successful writes to cgroups and tasks so far.
    #[must_use]
    pub fn nr_kernel_writes(&self) -> u64 {
        self.nr_kernel_writes
    }

    /// Another process takes the place of one that has died.
    pub fn revive(&mut self) {
        self.is_dead = false;
        self.faults = Faults::default();
    }

    /// The machine is booted: cgroups and processes are gone, files are not.
    pub fn boot(&mut self) {
        self.boot += 1;
        self.cgroups = Cgroups::new(self.cgroups.version());
        self.tasks = Tasks::default();
        self.watches.clear();
    }

    /// The text of a cgroup's file, below the mount point; `None`: it is not there.
    #[must_use]
    pub fn text(&self, below: &Path) -> Option<String> {
        self.cgroups.read(below, &self.tasks).ok()
    }

    /// Somebody else writes to a cgroup's file, below the mount point.
    ///
    /// # Errors
    /// As the kernel.
    pub fn others_write(&mut self, below: &Path, text: &str) -> io::Result<()> {
        self.cgroups.write(below, text, &mut self.tasks)
    }

    /// Somebody else removes a cgroup.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn others_remove(&mut self, below: &Path) -> io::Result<()> {
        self.cgroups.remove(below, &self.tasks)
    }

    /// How many ppm of one CPU a process may use; `None`: any.
    #[must_use]
    pub fn rate_ppm(&self, pid: i32) -> Option<u64> {
        self.cgroups.rate_ppm(&self.tasks.get(pid)?.cgroup)
    }

    /// Whether a process is in the background.
    #[must_use]
    pub fn is_idle(&self, pid: i32) -> bool {
        let task = self.tasks.get(pid);
        task.is_some_and(|task| self.cgroups.is_idle(&task.cgroup))
    }

    /// A process ends, or is moved on, as others see to it.
    pub fn end(&mut self, pid: i32) {
        self.tasks.end(pid);
        self.watches.retain(|watch| watch.pid != pid);
    }

    /// Whether a write may happen; it is counted.
    fn begin(&mut self, write: Write, what: impl FnOnce() -> String) -> io::Result<()> {
        if self.is_dead {
            return Err(error(libc::EIO));
        }
        if let Some(trace) = &mut self.trace {
            trace.push(what());
        }
        if let Some(left) = &mut self.faults.death_in {
            if *left == 0 {
                self.is_dead = true;
                self.dies = true;
                return Err(error(libc::EIO));
            }
            *left -= 1;
        }
        if let Some((refused, left, number)) = &mut self.faults.refusal_in
            && *refused == write
        {
            if *left == 0 {
                let number = *number;
                self.faults.refusal_in = None;
                return Err(error(number));
            }
            *left -= 1;
        }
        if write == Write::Disk && self.faults.disk_is_full {
            return Err(error(libc::ENOSPC));
        }
        Ok(())
    }

    /// A write to a cgroup or a task has happened: do all promises hold?
    fn look_at_promises(&mut self) {
        self.nr_kernel_writes += 1;
        let mut broken = Vec::new();
        for watch in &self.watches {
            let rate_ppm = self.rate_ppm(watch.pid);
            let is_over = |most_ppm| rate_ppm.is_none_or(|rate_ppm| rate_ppm > most_ppm);
            if watch.rate_max_ppm.is_some_and(is_over) {
                broken.push(format!("{watch:?}: may use {rate_ppm:?}"));
            }
            if watch.is_idle && !self.is_idle(watch.pid) {
                broken.push(format!("{watch:?}: is not idle"));
            }
        }
        self.broken.append(&mut broken);
    }

    fn alive(&self) -> io::Result<()> {
        if self.is_dead {
            return Err(error(libc::EIO));
        }
        Ok(())
    }

    pub(crate) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.alive()?;
        if let Ok(below) = path.strip_prefix(MOUNT) {
            return Ok(self.cgroups.read(below, &self.tasks)?.into_bytes());
        }
        if path == Path::new("/proc/sys/kernel/random/boot_id") {
            return Ok(format!("boot-{}\n", self.boot).into_bytes());
        }
        if let Ok(below) = path.strip_prefix("/proc") {
            return self.tasks.read(below, self.cgroups.version());
        }
        self.disk.read(path)
    }

    pub(crate) fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return Err(error(libc::ENOENT));
        };
        self.begin(Write::Kernel, || format!("{} < {text}", path.display()))?;
        self.cgroups.write(below, text, &mut self.tasks)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn look(&self, path: &Path) -> io::Result<Found> {
        self.alive()?;
        match path.strip_prefix(MOUNT) {
            Ok(below) => self.cgroups.look(below),
            Err(_) => self.disk.look(path),
        }
    }

    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        self.alive()?;
        match path.strip_prefix(MOUNT) {
            Ok(below) => self.cgroups.list(below),
            Err(_) => self.disk.list(path),
        }
    }

    pub(crate) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return self.create_folders(path);
        };
        self.begin(Write::Kernel, || format!("mkdir {}", path.display()))?;
        self.cgroups.create(below)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn create_folders(&mut self, path: &Path) -> io::Result<()> {
        if self.disk.look(path).is_ok() {
            return self.alive();
        }
        self.begin(Write::Disk, || format!("mkdir {}", path.display()))?;
        self.disk.create_folders(path);
        Ok(())
    }

    pub(crate) fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return Err(error(libc::EPERM));
        };
        self.begin(Write::Kernel, || format!("rmdir {}", path.display()))?;
        self.cgroups.remove(below, &self.tasks)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.look(path)?;
        // A full disk takes removals.
        let is_full = std::mem::take(&mut self.faults.disk_is_full);
        let begun = self.begin(Write::Disk, || format!("rm {}", path.display()));
        self.faults.disk_is_full = is_full;
        begun?;
        self.disk.remove(path)
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin(Write::Disk, || {
            format!("mv {} {}", from.display(), to.display())
        })?;
        self.disk.rename(from, to)
    }

    pub(crate) fn open(&mut self, path: &Path, access: Access) -> io::Result<OpenFile> {
        self.alive()?;
        if let Ok(below) = path.strip_prefix(MOUNT) {
            self.cgroups.look(below)?;
            return Ok(OpenFile::of_kernel(path));
        }
        let creates = matches!(access, Access::AppendNew | Access::AppendAny);
        if creates && self.disk.look(path).is_err() {
            self.begin(Write::Disk, || format!("create {}", path.display()))?;
        }
        self.disk.open(path, access)
    }

    /// Sets the nice level of a task.
    ///
    /// # Errors
    /// As `setpriority(2)`.
    pub fn set_nice(&mut self, pid: i32, nice: i32) -> io::Result<()> {
        self.begin(Write::Kernel, || format!("renice {pid} {nice}"))?;
        self.tasks.set_nice(pid, nice)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.time
    }

    /// Time passes.
    pub fn sleep(&mut self, time: Duration) {
        self.time += time;
    }
}
