//! A kernel in memory: control groups of version 1 or 2 and processes, with a disk for journals.
//!
//! A thread that has [installed](install) such a kernel directs all calls of [`crate::os`] to it.
//! The kernel behaves like the real one for the files that Plimsoll uses, and can inject faults: a
//! failing write, a full disk, or the death of the calling process between any two writes. It
//! depends on neither time nor chance.
//!
//! | rule | kernel |
//! | --- | --- |
//! | a cgroup of v2 has processes or gives its children controllers | `cgroup_attach_permissions`, `cgroup_subtree_control_write` |
//! | an idle cgroup has no weight, and the default one afterwards | `sched_group_set_idle`, `sched_group_set_shares` |
//! | a burst is no larger than its quota | `tg_set_cfs_bandwidth` |
//! | v1: a rate is no higher than those above it | `tg_cfs_schedulable_down` |
//!
//! It has no threads, no controllers but cpu, and no CPU usage of processes.

mod cgroups;
mod disk;
mod error;
mod events;
mod open_file;
mod tasks;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::entry::{FileInfo, Listed, WatchId, create_private_folders};
use crate::version::Version;
pub use cgroups::MOUNT;
pub(crate) use error::error;
pub use events::SimulatedEvents;
pub use open_file::OpenFile;
pub use tasks::SimulatedTask;

use cgroups::Cgroups;
use disk::Disk;
use tasks::Tasks;

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// Payload of the panic that simulates the death of the calling process.
#[derive(Debug)]
pub struct Killed;

/// Installs a kernel for this thread. Returns the previous one.
pub fn install(kernel: Option<Kernel>) -> Option<Kernel> {
    KERNEL.replace(kernel)
}

/// Accesses this thread's kernel without injected faults.
pub fn with<R>(act: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(|kernel| act(kernel.as_mut().expect("no kernel in memory")))
}

/// Ends a queue of events, also where the thread is ending without a kernel.
pub(crate) fn end_queue(number: usize) {
    let _ = KERNEL.try_with(|kernel| {
        if let Ok(mut kernel) = kernel.try_borrow_mut()
            && let Some(kernel) = kernel.as_mut()
        {
            kernel.events.end_queue(number);
        }
    });
}

/// Calls this thread's kernel, if it has one.
///
/// # Panics
/// With [`Killed`] when the calling process dies.
pub fn ask<R>(act: impl FnOnce(&mut Kernel) -> R) -> Option<R> {
    let (answer, dies) = KERNEL.with_borrow_mut(|kernel| {
        let kernel = kernel.as_mut()?;
        kernel.let_others_remake();
        let answer = act(kernel);
        Some((answer, std::mem::take(&mut kernel.dies)))
    })?;
    if dies {
        // Does not call the panic hook.
        std::panic::resume_unwind(Box::new(Killed));
    }
    Some(answer)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Write to a cgroup or a task.
    Kernel,
    /// Write to a file on the disk.
    Disk,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Number of writes after which the calling process dies.
    pub death_in: Option<u64>,
    /// Whether the death is a panic, which lets the process write on while it unwinds.
    pub is_panic: bool,
    /// Number of writes of a kind after which one is refused, with the error number.
    pub refusal_in: Option<(Write, u64, i32)>,
    /// Failure of all writes to files.
    pub disk_is_full: bool,
    /// Number of calls after which another program removes the cgroup, if it is empty, and creates
    /// it again.
    pub remade_in: Option<(u64, &'static str)>,
}

/// Promise about a process, checked after every write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromiseWatch {
    pub pid: i32,
    /// Bound of the process's rate, in ppm of one CPU.
    pub rate_max_ppm: Option<u64>,
    /// Promise that the process is in an idle cgroup.
    pub is_idle: bool,
}

#[derive(Debug)]
pub struct Kernel {
    cgroups: Cgroups,
    tasks: Tasks,
    disk: Disk,
    events: SimulatedEvents,
    /// Processes of the pidfds of this thread.
    pub handles: BTreeMap<RawFd, i32>,
    /// Number of CPUs.
    pub nr_cpus: u32,
    boot: u64,
    time: Duration,
    start: Instant,
    pub faults: Faults,
    pub watches: Vec<PromiseWatch>,
    pub broken: Vec<String>,
    /// Cgroups that another program has recreated during a call.
    pub remade: Vec<PathBuf>,
    /// Nice levels that were refused, each with its process.
    pub refused_levels: Vec<(i32, i32)>,
    /// Descriptions of all writes; `None`: they are not recorded.
    pub trace: Option<Vec<String>>,
    nr_kernel_writes: u64,
    is_dead: bool,
    dies: bool,
}

impl Kernel {
    /// Creates a kernel with process 1 in the root cgroup.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self {
            cgroups: Cgroups::new(version),
            tasks: Tasks::default(),
            disk: Disk::new(),
            events: SimulatedEvents::default(),
            handles: BTreeMap::new(),
            nr_cpus: 2,
            boot: 1,
            time: Duration::ZERO,
            start: Instant::now(),
            faults: Faults::default(),
            watches: Vec::new(),
            broken: Vec::new(),
            remade: Vec::new(),
            refused_levels: Vec::new(),
            trace: None,
            nr_kernel_writes: 0,
            is_dead: false,
            dies: false,
        }
    }

    pub fn cgroups(&mut self) -> &mut Cgroups {
        &mut self.cgroups
    }

    pub fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn events(&mut self) -> &mut SimulatedEvents {
        &mut self.events
    }

    /// Number of successful writes to cgroups and tasks.
    #[must_use]
    pub fn nr_kernel_writes(&self) -> u64 {
        self.nr_kernel_writes
    }

    /// Ends the simulated death: another process takes over.
    pub fn revive(&mut self) {
        self.is_dead = false;
        self.faults = Faults::default();
    }

    /// Reboots the machine: removes cgroups and processes, keeps files.
    pub fn boot(&mut self) {
        self.boot += 1;
        self.cgroups = Cgroups::new(self.cgroups.version());
        self.tasks = Tasks::default();
        self.watches.clear();
        self.handles.clear();
    }

    /// Reads a cgroup's file by its path below the mount point; `None`: the file does not exist.
    #[must_use]
    pub fn text(&self, below: &Path) -> Option<String> {
        self.cgroups.read(below, &self.tasks).ok()
    }

    /// Writes to a cgroup's file, by its path below the mount point, as another program.
    pub fn others_write(&mut self, below: &Path, text: &str) -> io::Result<()> {
        let moved = text
            .parse()
            .ok()
            .filter(|_| below.ends_with("cgroup.procs"));
        let moved = moved.and_then(|pid| self.tasks.get(pid));
        let left = moved.map(|task| task.cgroup.clone());
        self.cgroups.write(below, text, &mut self.tasks)?;
        self.report_empty(left.as_slice());
        if let Some(inode) = below.parent().and_then(|folder| self.cgroups.inode(folder)) {
            self.events.written(inode, below);
        }
        Ok(())
    }

    /// Creates a cgroup as another program.
    pub fn others_create(&mut self, below: &Path) -> io::Result<()> {
        self.cgroups.create(below)?;
        let parent = below.parent().and_then(|parent| self.cgroups.inode(parent));
        if let (Some(parent), Some(name)) = (parent, below.file_name()) {
            self.events.came(parent, name);
        }
        Ok(())
    }

    /// Removes a cgroup as another program.
    pub fn others_remove(&mut self, below: &Path) -> io::Result<()> {
        let inode = self.cgroups.inode(below);
        self.cgroups.remove(below, &self.tasks)?;
        let parent = below.parent().and_then(|parent| self.cgroups.inode(parent));
        if let (Some(inode), Some(parent), Some(name)) = (inode, parent, below.file_name()) {
            self.events.went(parent, inode, name);
        }
        Ok(())
    }

    /// v1: renames a cgroup as another program. Its watch stays.
    pub fn others_rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.cgroups.rename(from, to, &mut self.tasks)?;
        let parent = from.parent().and_then(|parent| self.cgroups.inode(parent));
        if let (Some(parent), Some(old), Some(new)) = (parent, from.file_name(), to.file_name()) {
            self.events.renamed(parent, old, new);
        }
        Ok(())
    }

    pub(crate) fn watch_folder(&mut self, queue: usize, folder: &Path) -> io::Result<WatchId> {
        self.alive()?;
        let below = folder.strip_prefix(MOUNT).ok();
        let inode = below.and_then(|below| self.cgroups.inode(below));
        self.events.watch(queue, inode.ok_or(error(libc::ENOENT))?)
    }

    pub(crate) fn watch_file(&mut self, queue: usize, file: &Path) -> io::Result<WatchId> {
        self.alive()?;
        let below = file.strip_prefix(MOUNT).ok();
        let folder = below.filter(|below| self.text(below).is_some());
        let folder = folder.and_then(|below| self.cgroups.inode(below.parent()?));
        self.events
            .watch_file(queue, folder.ok_or(error(libc::ENOENT))?)
    }

    /// Reports the cgroups, of those left and all above, that have no process any more.
    fn report_empty(&mut self, left: &[PathBuf]) {
        let above = left.iter().flat_map(|place| place.ancestors());
        for place in above.filter(|place| !self.tasks.is_used_below(place)) {
            if let Some(inode) = self.cgroups.inode(place) {
                self.events.emptied(inode);
            }
        }
    }

    /// Returns the rate that a process may use, in ppm of one CPU; `None`: unlimited.
    #[must_use]
    pub fn rate_ppm(&self, pid: i32) -> Option<u64> {
        self.cgroups.rate_ppm(&self.tasks.get(pid)?.cgroup)
    }

    #[must_use]
    pub fn is_idle(&self, pid: i32) -> bool {
        let task = self.tasks.get(pid);
        task.is_some_and(|task| self.cgroups.is_idle(&task.cgroup))
    }

    /// Ends a process, and its watches.
    pub fn end(&mut self, pid: i32) {
        self.tasks.end(pid);
        self.watches.retain(|watch| watch.pid != pid);
    }

    /// Recreates a cgroup as another program, if it is due.
    fn let_others_remake(&mut self) {
        let Some((left, path)) = &mut self.faults.remade_in else {
            return;
        };
        if *left > 0 {
            *left -= 1;
            return;
        }
        let path = Path::new(*path);
        self.faults.remade_in = None;
        if self.others_remove(path).is_ok() && self.others_create(path).is_ok() {
            if let Some(trace) = &mut self.trace {
                trace.push(format!("others make {} again", path.display()));
            }
            self.remade.push(path.to_owned());
        }
    }

    /// Counts a write, and fails if a fault is due.
    fn begin(&mut self, write: Write, what: impl FnOnce() -> String) -> io::Result<()> {
        if self.is_dead {
            return Err(error(libc::EIO));
        }
        if let Some(trace) = &mut self.trace {
            trace.push(what());
        }
        if let Some(left) = &mut self.faults.death_in {
            if *left == 0 {
                self.is_dead = !self.faults.is_panic;
                self.dies = true;
                self.faults.death_in = None;
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

    /// Counts a write that succeeds on a full disk, and fails if another fault is due.
    fn begin_freeing(&mut self, what: impl FnOnce() -> String) -> io::Result<()> {
        let is_full = std::mem::take(&mut self.faults.disk_is_full);
        let begun = self.begin(Write::Disk, what);
        self.faults.disk_is_full = is_full;
        begun
    }

    /// Checks all promises after a write to a cgroup or a task.
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

    pub(crate) fn alive(&self) -> io::Result<()> {
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
        if let Ok(number) = path.strip_prefix("/proc/self/fdinfo") {
            return self.read_handle(number);
        }
        if let Ok(below) = path.strip_prefix("/proc") {
            return self.tasks.read(below, self.cgroups.version());
        }
        fs::read(self.disk.real(path))
    }

    /// Reads the fdinfo of a pidfd.
    fn read_handle(&self, number: &Path) -> io::Result<Vec<u8>> {
        let number = number.to_str().and_then(|number| number.parse().ok());
        let pid = number.and_then(|number: RawFd| self.handles.get(&number));
        let pid = *pid.ok_or(error(libc::ENOENT))?;
        let shown = self.tasks.get(pid).map_or(-1, |_| pid);
        Ok(format!("pos:\t0\nPid:\t{shown}\n").into_bytes())
    }

    pub(crate) fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return Err(error(libc::ENOENT));
        };
        self.begin(Write::Kernel, || format!("{} < {text}", path.display()))?;
        let before = self.cgroups.nr_invalid(&self.tasks);
        self.others_write(below, text)?;
        if self.cgroups.nr_invalid(&self.tasks) > before {
            let path = path.display();
            let what = format!("{path} < {text}: a cgroup inside takes no processes any more");
            self.broken.push(what);
        }
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn look(&self, path: &Path) -> io::Result<FileInfo> {
        self.alive()?;
        match path.strip_prefix(MOUNT) {
            Ok(below) => self.cgroups.look(below),
            Err(_) => fs::metadata(self.disk.real(path)).map(|found| FileInfo::of(&found)),
        }
    }

    pub(crate) fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let is_own = path == Path::new("/proc/self");
        let own = std::process::id().to_string().into();
        is_own.then_some(own).ok_or(error(libc::ENOENT))
    }

    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<Listed>> {
        self.alive()?;
        match path.strip_prefix(MOUNT) {
            Ok(below) => self.cgroups.list(below),
            Err(_) => Listed::all(&self.disk.real(path), path),
        }
    }

    pub(crate) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return self.create_folders(path);
        };
        self.begin(Write::Kernel, || format!("mkdir {}", path.display()))?;
        self.others_create(below)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn create_folders(&mut self, path: &Path) -> io::Result<()> {
        let real = self.disk.real(path);
        if real.exists() {
            return self.alive();
        }
        self.begin(Write::Disk, || format!("mkdir {}", path.display()))?;
        create_private_folders(&real)
    }

    pub(crate) fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let Ok(below) = path.strip_prefix(MOUNT) else {
            return Err(error(libc::EPERM));
        };
        self.begin(Write::Kernel, || format!("rmdir {}", path.display()))?;
        self.others_remove(below)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.look(path)?;
        self.begin_freeing(|| format!("rm {}", path.display()))?;
        fs::remove_file(self.disk.real(path))
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin(Write::Disk, || {
            format!("mv {} {}", from.display(), to.display())
        })?;
        fs::rename(self.disk.real(from), self.disk.real(to))
    }

    pub(crate) fn cut(&mut self, file: &fs::File, length: u64) -> io::Result<()> {
        self.begin_freeing(|| format!("{file:?} cut to {length}"))?;
        file.set_len(length)
    }

    pub(crate) fn append(&mut self, mut file: &fs::File, text: &str) -> io::Result<()> {
        let begun = self.begin(Write::Disk, || format!("{file:?} << {text}"));
        // A death or a full disk writes half of the text.
        let length = match &begun {
            Ok(()) => text.len(),
            Err(_) if self.dies || self.faults.disk_is_full => text.len() / 2,
            Err(_) => 0,
        };
        file.write_all(&text.as_bytes()[..length])?;
        begun
    }

    pub fn set_nice(&mut self, pid: i32, nice: i32) -> io::Result<()> {
        let begun = self.begin(Write::Kernel, || format!("renice {pid} {nice}"));
        begun.inspect_err(|_| self.refused_levels.push((pid, nice)))?;
        self.tasks.set_nice(pid, nice)?;
        self.look_at_promises();
        Ok(())
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.time
    }

    /// Advances the clock.
    pub fn pass(&mut self, time: Duration) {
        self.time += time;
        let left = self.tasks.reap();
        self.report_empty(&left);
    }
}
