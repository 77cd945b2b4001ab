//! Processes of one thread each.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::error;
use crate::version::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedTask {
    /// Start time; unique for each process.
    pub start_time: u64,
    /// Parent's pid.
    pub parent: i32,
    pub nice: i32,
    /// Path of the cgroup below the mount point.
    pub cgroup: PathBuf,
}

#[derive(Debug)]
pub struct Tasks {
    all: BTreeMap<i32, SimulatedTask>,
    /// Cgroups of processes that have ended and have not left them yet.
    dying: Vec<PathBuf>,
    nr_started: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        let mut new = Self {
            all: BTreeMap::new(),
            dying: Vec::new(),
            nr_started: 0,
        };
        new.start(1, 0, 0, Path::new(""));
        new
    }
}

impl Tasks {
    fn start(&mut self, pid: i32, parent: i32, nice: i32, cgroup: &Path) {
        self.nr_started += 1;
        let task = SimulatedTask {
            start_time: self.nr_started,
            parent,
            nice,
            cgroup: cgroup.to_owned(),
        };
        self.all.insert(pid, task);
    }

    /// Starts a process with a pid in a cgroup; its parent is process 1.
    pub fn start_in(&mut self, pid: i32, cgroup: &Path) {
        self.start(pid, 1, 0, cgroup);
    }

    /// Starts a child in the parent's cgroup with its nice level. Does nothing without the parent.
    pub fn fork(&mut self, parent: i32, pid: i32) {
        if let Some(SimulatedTask { nice, cgroup, .. }) = self.all.get(&parent).cloned() {
            self.start(pid, parent, nice, &cgroup);
        }
    }

    /// Ends a process; process 1 adopts its children. No file lists it any more, but until time
    /// passes its cgroup counts it: `cgroup.events` says populated, and it cannot be removed.
    pub fn end(&mut self, pid: i32) {
        self.dying.extend(self.all.remove(&pid).map(|it| it.cgroup));
        let children = self.all.values_mut().filter(|task| task.parent == pid);
        children.for_each(|task| task.parent = 1);
    }

    #[must_use]
    pub fn get(&self, pid: i32) -> Option<&SimulatedTask> {
        self.all.get(&pid)
    }

    pub fn iter(&self) -> impl Iterator<Item = (i32, &SimulatedTask)> {
        self.all.iter().map(|(pid, task)| (*pid, task))
    }

    #[must_use]
    pub fn children(&self, parent: i32) -> Vec<i32> {
        let children = self.iter().filter(|(_, task)| task.parent == parent);
        children.map(|(pid, _)| pid).collect()
    }

    pub fn set_nice(&mut self, pid: i32, nice: i32) -> io::Result<()> {
        self.all.get_mut(&pid).ok_or(error(libc::ESRCH))?.nice = nice;
        Ok(())
    }

    pub(super) fn move_to(&mut self, pid: i32, cgroup: &Path) -> io::Result<()> {
        let task = self.all.get_mut(&pid).ok_or(error(libc::ESRCH))?;
        cgroup.clone_into(&mut task.cgroup);
        Ok(())
    }

    /// Follows cgroups whose paths are others now.
    pub(super) fn rename(&mut self, moved: impl Fn(&Path) -> Option<PathBuf>) {
        let living = self.all.values_mut().map(|task| &mut task.cgroup);
        for place in living.chain(&mut self.dying) {
            if let Some(now) = moved(place) {
                *place = now;
            }
        }
    }

    pub(super) fn list(&self, cgroup: &Path) -> String {
        let inside = self.iter().filter(|(_, task)| task.cgroup == cgroup);
        inside.map(|(pid, _)| format!("{pid}\n")).collect()
    }

    /// Lets the processes that have ended leave their cgroups, which it returns.
    pub(super) fn reap(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.dying)
    }

    pub(super) fn is_used(&self, cgroup: &Path) -> bool {
        self.places().any(|place| place == cgroup)
    }

    pub(super) fn is_used_below(&self, cgroup: &Path) -> bool {
        self.places().any(|place| place.starts_with(cgroup))
    }

    fn places(&self) -> impl Iterator<Item = &PathBuf> {
        let living = self.all.values().map(|task| &task.cgroup);
        living.chain(&self.dying)
    }

    /// Reads `/proc/PID/cgroup`.
    pub(super) fn read(&self, below_proc: &Path, version: Version) -> io::Result<Vec<u8>> {
        let pid = below_proc.parent().and_then(Path::to_str);
        let pid = pid.filter(|_| below_proc.ends_with("cgroup"));
        let task = pid.and_then(|pid| self.all.get(&pid.parse().ok()?));
        let cgroup = &task.ok_or(error(libc::ENOENT))?.cgroup;
        let controllers: &[u8] = match version {
            Version::V1 => b"1:cpu,cpuacct:/",
            Version::V2 => b"0::/",
        };
        // A name may be no UTF-8.
        Ok([controllers, cgroup.as_os_str().as_bytes(), b"\n"].concat())
    }
}
