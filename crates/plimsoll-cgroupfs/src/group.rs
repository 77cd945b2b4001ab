//! A cgroup: its knobs, members and counters.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{CgroupError, Result};
use crate::files;
use crate::hierarchy::Hierarchy;
use crate::os;
use crate::proc;
use crate::stat::{self, CpuStat};
use crate::usage::UsageCounter;
use crate::version::Version;

/// Default weight of a cgroup, of 1 to 10000 (`CGROUP_WEIGHT_DFL`).
pub const WEIGHT_DEFAULT: u32 = 100;
/// v1 `cpu.shares` of a cgroup of default weight.
const SHARES_DEFAULT: u64 = 1024;
/// Smallest value of v1 (kernel/sched/sched.h, MIN_SHARES).
const SHARES_MIN: u64 = 2;

/// Types of v2 cgroups (Documentation/admin-guide/cgroup-v2.rst, "Threads").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupKind {
    /// Takes processes.
    Domain,
    /// Takes processes, whose threads may be in the threaded cgroups below.
    ThreadRoot,
    /// Is below a thread root and takes nothing.
    Invalid,
    /// Takes threads of the processes of its thread root.
    Threaded,
}

impl CgroupKind {
    /// Reads the type of the cgroup in a folder. `None`: the cgroup is a root, or one of v1.
    ///
    /// # Errors
    /// When the file cannot be read, or the type is unknown.
    pub fn at(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("cgroup.type");
        let text = match files::read_text(&path) {
            Err(error) if error.os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        };
        Ok(Some(match text.as_str() {
            "domain" => Self::Domain,
            "domain threaded" => Self::ThreadRoot,
            "domain invalid" => Self::Invalid,
            "threaded" => Self::Threaded,
            _ => return Err(CgroupError::Unreadable { path, text }),
        }))
    }
}

/// A cgroup by its path below the mount point. If it is [bound](Self::bound) to an inode, nothing
/// is written to another cgroup that takes its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuGroup {
    hierarchy: Arc<Hierarchy>,
    path: PathBuf,
    /// Inode number; `None`: any cgroup of that path.
    inode: Option<u64>,
}

impl CpuGroup {
    /// Returns the cgroup at `path`, which need not exist yet.
    pub fn at(hierarchy: &Arc<Hierarchy>, path: impl Into<PathBuf>) -> Self {
        Self {
            hierarchy: Arc::clone(hierarchy),
            path: path.into(),
            inode: None,
        }
    }

    /// Binds the object to the cgroup that has the path now.
    pub fn bound(self) -> Result<Self> {
        let folder = self.hierarchy.cpu_folder(&self.path);
        let found = os::look(&folder);
        let found = found.map_err(|source| CgroupError::file("find", &folder, source))?;
        Ok(self.bound_to(Some(found.inode)))
    }

    /// Binds the object to an inode number; `None`: to any cgroup of the path.
    #[must_use]
    pub fn bound_to(mut self, inode: Option<u64>) -> Self {
        self.inode = inode;
        self
    }

    pub fn inode(&self) -> Option<u64> {
        self.inode
    }

    pub fn child(&self, name: impl AsRef<Path>) -> Self {
        Self::at(&self.hierarchy, self.path.join(name))
    }

    /// Returns the cgroup directly above this one; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.path
            .parent()
            .map(|path| Self::at(&self.hierarchy, path))
    }

    /// Path below the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn hierarchy(&self) -> &Arc<Hierarchy> {
        &self.hierarchy
    }

    /// Returns the cgroup's folders, one for each hierarchy.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.hierarchy.folders(&self.path)
    }

    /// Returns the path of a file of the cpu controller.
    pub fn cpu_file(&self, name: &str) -> PathBuf {
        self.hierarchy.cpu_folder(&self.path).join(name)
    }

    pub(crate) fn version(&self) -> Version {
        self.hierarchy.version()
    }

    pub fn exists(&self) -> bool {
        os::is_folder(&self.hierarchy.cpu_folder(&self.path))
    }

    /// Fails unless the cgroup exists. If it is bound, another cgroup of its path does not count.
    pub fn check_exists(&self) -> Result<()> {
        files::check_folder(&self.hierarchy.cpu_folder(&self.path), self.inode)
    }

    /// Writes to one of the cgroup's files in the cpu controller's folder.
    ///
    /// # Errors
    /// When the kernel refuses, or the cgroup is bound and gone.
    pub fn write_file(&self, path: &Path, text: &str) -> Result<()> {
        files::write_text_of(path, self.inode, text)
    }

    /// Creates the cgroup, unless it exists.
    pub fn create(&self) -> Result<()> {
        for folder in self.folders() {
            match os::create_folder(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(CgroupError::creation(&folder, error));
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// v2: enables the cpu controller for children. Returns whether it was disabled.
    pub fn enable_children(&self) -> Result<bool> {
        if self.version() == Version::V1 || self.children_enabled()? {
            return Ok(false);
        }
        files::write_text(&self.subtree_control(), "+cpu")?;
        Ok(true)
    }

    /// v2: takes the cpu controller from the children.
    ///
    /// # Errors
    /// When the kernel refuses, such as while a child gives it to its own.
    pub fn disable_children(&self) -> Result<()> {
        files::write_text(&self.subtree_control(), "-cpu")
    }

    /// v2: reads the type. `None`: the cgroup is the root, or one of v1, and takes any process.
    ///
    /// # Errors
    /// When the cgroup does not exist, or has an unknown type.
    pub fn kind(&self) -> Result<Option<CgroupKind>> {
        self.check_exists()?;
        CgroupKind::at(&self.cpu_file(""))
    }

    /// v2: returns whether the cpu controller is enabled for children. Always `true` on v1.
    pub fn children_enabled(&self) -> Result<bool> {
        if self.version() == Version::V1 {
            return Ok(true);
        }
        let enabled = files::read_text(&self.subtree_control())?;
        Ok(enabled.split_whitespace().any(|name| name == "cpu"))
    }

    pub fn subtree_control(&self) -> PathBuf {
        self.cpu_file("cgroup.subtree_control")
    }

    /// Moves a process into the cgroup. One that has just ended counts as moved.
    pub fn add_process(&self, pid: i32) -> Result<()> {
        let cpu_folder = self.hierarchy.cpu_folder(&self.path);
        move_task(&self.folders(), "cgroup.procs", pid, |path, text| {
            let is_cpu = path.parent() == Some(&cpu_folder);
            files::write_text_of(path, self.inode.filter(|_| is_cpu), text)
        })
    }

    /// Moves a thread into the cgroup. One that has just ended counts as moved.
    pub fn add_thread(&self, tid: i32) -> Result<()> {
        let file = threads_file(self.version());
        move_task(&self.folders(), file, tid, files::write_text)
    }

    /// Lists the threads, without those of cgroups below.
    pub fn threads(&self) -> Result<Vec<i32>> {
        files::read_ids(&self.cpu_file(threads_file(self.version())))
    }

    /// Lists the threads, with those of all cgroups below.
    pub fn all_threads(&self) -> Result<Vec<i32>> {
        let mut tids = self.threads()?;
        for child in self.children()? {
            match child.all_threads() {
                Ok(more) => tids.extend(more),
                Err(error) if error.is_gone() => (),
                Err(error) => return Err(error),
            }
        }
        Ok(tids)
    }

    /// v2: makes the cgroup threaded, so that it takes single threads of processes above it.
    pub fn make_threaded(&self) -> Result<()> {
        files::write_text(&self.cpu_file("cgroup.type"), "threaded")
    }

    /// Lists the processes, without those of cgroups below.
    pub fn processes(&self) -> Result<Vec<i32>> {
        files::read_ids(&self.cpu_file("cgroup.procs"))
    }

    /// v2: returns the cgroup, this one or one above, that keeps its processes frozen. A process
    /// that leaves it thaws (`cgroup_freezer_migrate_task` in kernel/cgroup/freezer.c).
    #[must_use]
    pub fn frozen_by(&self) -> Option<Self> {
        let says = |group: &Self, file: &str, wanted: &str| {
            let text = files::read_text(&group.cpu_file(file));
            text.is_ok_and(|text| text.lines().any(|line| line == wanted))
        };
        let mut places = std::iter::successors(Some(self.clone()), Self::parent);
        // The one above may be outside of this cgroup namespace.
        let is_frozen = || says(self, "cgroup.events", "frozen 1");
        let found = places.find(|group| says(group, "cgroup.freeze", "1"));
        found.or_else(|| is_frozen().then(|| self.clone()))
    }

    /// Lists the processes of this cgroup and of all below it. Those of a threaded cgroup are the
    /// ones with threads there.
    pub fn all_processes(&self) -> Result<Vec<i32>> {
        let mut pids = match self.listed_processes()? {
            Some(pids) => pids,
            None => proc::processes_of(&self.all_threads()?),
        };
        // v1 lists a process in every cgroup in which it has a thread.
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Lists the processes that the kernel lists for this cgroup and for all below it. `None`: it
    /// is threaded, as all below it are, and the domain above lists their processes.
    fn listed_processes(&self) -> Result<Option<Vec<i32>>> {
        let mut pids = match self.processes() {
            Err(error) if error.os_error() == Some(libc::EOPNOTSUPP) => return Ok(None),
            other => other?,
        };
        for child in self.children()? {
            match child.listed_processes() {
                Ok(more) => pids.extend(more.into_iter().flatten()),
                Err(error) if error.is_gone() => (),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(pids))
    }

    /// Lists the cgroups directly below.
    pub fn children(&self) -> Result<Vec<Self>> {
        let folder = self.hierarchy.cpu_folder(&self.path);
        let failed = |source| CgroupError::file("list", &folder, source);
        let below = files::folders_in(&folder).map_err(failed)?.into_iter();
        let names = below.filter_map(|found| Some(self.child(found.file_name()?)));
        Ok(names.collect())
    }

    /// Opens the counter of the CPU time used by the cgroup and all below it.
    pub fn usage_counter(&self) -> Result<UsageCounter> {
        UsageCounter::open(self.usage_file(), self.version())
    }

    /// CPU time used by the cgroup and all below it, in nanoseconds.
    pub fn usage_ns(&self) -> Result<u64> {
        self.usage_counter()?.read_ns()
    }

    /// CPU time used, in microseconds; 0 for a foreign v1 cgroup without a twin in `cpuacct`.
    pub fn usage_usec(&self) -> Result<u64> {
        match self.usage_ns() {
            Err(error) if error.is_gone() && self.exists() => Ok(0),
            other => Ok(other? / 1000),
        }
    }

    fn usage_file(&self) -> PathBuf {
        match self.version() {
            Version::V1 => self
                .hierarchy
                .cpuacct_folder(&self.path)
                .unwrap_or_else(|| self.hierarchy.cpu_folder(&self.path))
                .join("cpuacct.usage"),
            Version::V2 => stat::stat_file(&self.hierarchy.cpu_folder(&self.path)),
        }
    }

    /// Reads the counters of the cgroup's bandwidth.
    pub fn stat(&self) -> Result<CpuStat> {
        let text = files::read_text(&stat::stat_file(&self.hierarchy.cpu_folder(&self.path)))?;
        Ok(CpuStat::parse(&text, self.version()))
    }

    /// Returns whether the kernel has `cpu.idle` for this cgroup (Linux 5.15 and later).
    pub fn has_idle(&self) -> bool {
        os::exists(&self.cpu_file("cpu.idle"))
    }

    /// Sets or clears the idle mark. Writing the present value is no error, unlike writing the
    /// weight of an idle group.
    pub fn write_idle(&self, idle: bool) -> Result<()> {
        self.write_file(&self.cpu_file("cpu.idle"), if idle { "1" } else { "0" })
    }

    /// Returns whether the cgroup is marked idle; without the file, it is not.
    pub fn read_idle(&self) -> Result<bool> {
        Ok(self.has_idle() && files::read_text(&self.cpu_file("cpu.idle"))? == "1")
    }

    /// Returns the file of the weight, and its text for `weight` (default 100).
    pub fn weight_setting(&self, weight: u32) -> (PathBuf, String) {
        match self.version() {
            Version::V1 => {
                let shares = (u64::from(weight) * SHARES_DEFAULT / u64::from(WEIGHT_DEFAULT))
                    .max(SHARES_MIN);
                (self.cpu_file("cpu.shares"), shares.to_string())
            }
            Version::V2 => (self.cpu_file("cpu.weight"), weight.to_string()),
        }
    }

    /// Sets the weight relative to the cgroup's siblings, 1 … 10000.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for an idle group.
    pub fn write_weight(&self, weight: u32) -> Result<()> {
        let (path, text) = self.weight_setting(weight);
        self.write_file(&path, &text)
    }

    /// Reads the weight relative to the cgroup's siblings, 1 … 10000.
    pub fn read_weight(&self) -> Result<u32> {
        let (path, _) = self.weight_setting(WEIGHT_DEFAULT);
        let text = files::read_text(&path)?;
        self.weight_of(&path, &text)
    }

    /// Parses the text of the weight's file; v1's shares become a weight.
    pub fn weight_of(&self, path: &Path, text: &str) -> Result<u32> {
        let number: u64 = text.parse().map_err(|_| CgroupError::Unreadable {
            path: path.to_owned(),
            text: text.to_owned(),
        })?;
        let weight = match self.version() {
            Version::V2 => number,
            Version::V1 => (number * u64::from(WEIGHT_DEFAULT)).div_ceil(SHARES_DEFAULT),
        };
        Ok(u32::try_from(weight).unwrap_or(u32::MAX))
    }

    /// Returns whether the cgroup has a weight, and so the cpu controller.
    pub fn has_weight(&self) -> bool {
        os::exists(&self.weight_setting(WEIGHT_DEFAULT).0)
    }
}

fn threads_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.threads",
    }
}

/// Moves a process into the cgroup of `folders`. One that has just ended counts as moved.
pub fn move_process(folders: &[PathBuf], pid: i32) -> Result<()> {
    move_task(folders, "cgroup.procs", pid, files::write_text)
}

fn move_task(
    folders: &[PathBuf],
    file: &str,
    id: i32,
    write: impl Fn(&Path, &str) -> Result<()>,
) -> Result<()> {
    for folder in folders {
        match write(&folder.join(file), &id.to_string()) {
            Err(error) if error.os_error() == Some(libc::ESRCH) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
