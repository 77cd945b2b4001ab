//! One cgroup: its knobs, members and counters.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files;
use super::hierarchy::{Hierarchy, Version};
use super::stat::{self, CpuStat};
use crate::error::{EngineError, Result};
use crate::knobs::{Bandwidth, Quota};

/// v1 `cpu.shares` of a group of default weight.
const SHARES_DEFAULT: u64 = 1024;
/// Every group's weight, unless it asks for another.
pub(crate) use plimsoll_policy::batch::GROUP_WEIGHT_DEFAULT as WEIGHT_DEFAULT;
/// The weight of a group in the background where there is no idle mark.
pub(crate) use plimsoll_policy::batch::GROUP_WEIGHT_MIN as WEIGHT_BACKGROUND;
/// The least that v1 takes (kernel/sched/sched.h, MIN_SHARES).
const SHARES_MIN: u64 = 2;

/// The open files through which a process that is about to `exec` moves
/// itself into a group: nothing but `write` is safe there.
#[derive(Debug)]
pub struct Membership {
    /// One `cgroup.procs` a hierarchy.
    pub files: Vec<File>,
    /// The scheduling policy to take once it is in, if not its own.
    pub policy: Option<i32>,
}

/// A cgroup by its path below the mount point.
#[derive(Debug, Clone)]
pub struct CpuGroup {
    hierarchy: Arc<Hierarchy>,
    path: PathBuf,
}

impl CpuGroup {
    /// The cgroup at `path`, whether or not it is there yet.
    pub fn at(hierarchy: &Arc<Hierarchy>, path: impl Into<PathBuf>) -> Self {
        Self {
            hierarchy: Arc::clone(hierarchy),
            path: path.into(),
        }
    }

    /// The cgroup `name` directly below this one.
    pub fn child(&self, name: &str) -> Self {
        Self::at(&self.hierarchy, self.path.join(name))
    }

    /// The cgroup directly above this one.
    pub fn parent(&self) -> Option<Self> {
        self.path
            .parent()
            .map(|path| Self::at(&self.hierarchy, path))
    }

    /// Below the mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The hierarchy it is in.
    pub fn hierarchy(&self) -> &Arc<Hierarchy> {
        &self.hierarchy
    }

    /// Its folders, one a hierarchy.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.hierarchy.folders(&self.path)
    }

    /// A file of the cpu controller.
    pub fn cpu_file(&self, name: &str) -> PathBuf {
        self.hierarchy.cpu_folder(&self.path).join(name)
    }

    fn version(&self) -> Version {
        self.hierarchy.version()
    }

    /// Whether it is there.
    pub fn exists(&self) -> bool {
        self.hierarchy.cpu_folder(&self.path).is_dir()
    }

    /// Tells it from another that was made under its name; `None`: it is not
    /// there.
    pub(crate) fn identity(&self) -> Option<u64> {
        let found = fs::metadata(self.hierarchy.cpu_folder(&self.path));
        found.ok().map(|found| found.ino())
    }

    /// Whether it is the one of that identity, and not gone, as an error.
    pub(crate) fn check_is(&self, identity: Option<u64>) -> Result<()> {
        if self.identity() == identity {
            return Ok(());
        }
        let gone = std::io::Error::from_raw_os_error(libc::ENOENT);
        let folder = self.hierarchy.cpu_folder(&self.path);
        Err(EngineError::cgroup("find", &folder, gone))
    }

    /// Whether it is there, as an error.
    pub(crate) fn check_exists(&self) -> Result<()> {
        let folder = self.hierarchy.cpu_folder(&self.path);
        match fs::metadata(&folder) {
            Ok(_) => Ok(()),
            Err(source) => Err(EngineError::cgroup("find", &folder, source)),
        }
    }

    /// Creates it; what is there already is left alone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(&self) -> Result<()> {
        for folder in self.folders() {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(EngineError::cgroup("create", &folder, error));
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// v2: lets children of this cgroup have knobs of their own. Returns
    /// whether that changed anything.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enable_children(&self) -> Result<bool> {
        if self.version() == Version::V1 || self.children_enabled()? {
            return Ok(false);
        }
        files::write_text(&self.subtree_control(), "+cpu")?;
        Ok(true)
    }

    /// v2: whether children of this cgroup have knobs of their own.
    ///
    /// # Errors
    /// When the kernel file cannot be read.
    pub fn children_enabled(&self) -> Result<bool> {
        if self.version() == Version::V1 {
            return Ok(true);
        }
        let enabled = files::read_text(&self.subtree_control())?;
        Ok(enabled.split_whitespace().any(|name| name == "cpu"))
    }

    /// v2: the file that says which controllers the children have.
    pub fn subtree_control(&self) -> PathBuf {
        self.cpu_file("cgroup.subtree_control")
    }

    /// Opens what a process needs to move itself here.
    ///
    /// # Errors
    /// When the group is not there or not writable.
    pub fn membership(&self) -> Result<Membership> {
        let open = |folder: PathBuf| {
            let path = folder.join("cgroup.procs");
            OpenOptions::new()
                .write(true)
                .open(&path)
                .map_err(|source| EngineError::cgroup("open", &path, source))
        };
        Ok(Membership {
            files: self
                .folders()
                .into_iter()
                .map(open)
                .collect::<Result<_>>()?,
            policy: None,
        })
    }

    /// Moves a process here. One that has just ended counts as moved.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_process(&self, pid: i32) -> Result<()> {
        move_process(&self.folders(), pid)
    }

    /// Its processes, of itself alone.
    ///
    /// # Errors
    /// When it is not there.
    pub fn processes(&self) -> Result<Vec<i32>> {
        files::read_ids(&self.cpu_file("cgroup.procs"))
    }

    /// Whether it or a cgroup below it has a process.
    ///
    /// # Errors
    /// When it is not there.
    pub fn is_populated(&self) -> Result<bool> {
        if self.version() == Version::V2 {
            let events = files::read_text(&self.cpu_file("cgroup.events"))?;
            return Ok(events.lines().any(|line| line == "populated 1"));
        }
        Ok(!self.all_processes()?.is_empty())
    }

    /// The processes of this cgroup and of all below it.
    ///
    /// # Errors
    /// When it is not there.
    pub fn all_processes(&self) -> Result<Vec<i32>> {
        let mut pids = match self.processes() {
            // A threaded v2 cgroup has no processes of its own: its threads
            // belong to those of the domain above.
            Err(EngineError::Cgroup { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) =>
            {
                Vec::new()
            }
            other => other?,
        };
        for child in self.children() {
            match child.all_processes() {
                Ok(more) => pids.extend(more),
                Err(error) if error.is_gone() => (),
                Err(error) => return Err(error),
            }
        }
        // v1 lists a process in every cgroup in which it has a thread.
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// The cgroups directly below.
    pub fn children(&self) -> Vec<Self> {
        let folder = self.hierarchy.cpu_folder(&self.path);
        // The kernel counts them: 2, and one for each. To list all its files
        // for nothing is what costs most of looking at thousands of cgroups.
        if fs::metadata(&folder).is_ok_and(|found| found.nlink() == 2) {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(folder) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| self.child(&name))
            .collect()
    }

    /// CPU time used so far by it and all below it, in nanoseconds.
    ///
    /// # Errors
    /// When it is not there.
    pub fn usage_ns(&self) -> Result<u64> {
        match self.version() {
            Version::V1 => files::read_number(&self.usage_file()),
            Version::V2 => {
                let path = self.usage_file();
                let text = files::read_text(&path)?;
                CpuStat::parse_usage_ns(&text).ok_or(EngineError::Unreadable { path, text })
            }
        }
    }

    /// The same in microseconds. A cgroup of v1 that somebody else made need not have a
    /// twin that counts it; then 0.
    ///
    /// # Errors
    /// When the cgroup is not there.
    pub fn usage_usec(&self) -> Result<u64> {
        match self.usage_ns() {
            Err(error) if error.is_gone() && self.exists() => Ok(0),
            other => Ok(other? / 1000),
        }
    }

    /// The file that `usage_ns` reads.
    pub fn usage_file(&self) -> PathBuf {
        match self.version() {
            Version::V1 => self
                .hierarchy
                .cpuacct_folder(&self.path)
                .unwrap_or_else(|| self.hierarchy.cpu_folder(&self.path))
                .join("cpuacct.usage"),
            Version::V2 => stat::stat_file(&self.hierarchy.cpu_folder(&self.path)),
        }
    }

    /// What the kernel counts of its bandwidth.
    ///
    /// # Errors
    /// When it is not there.
    pub fn stat(&self) -> Result<CpuStat> {
        let text = files::read_text(&stat::stat_file(&self.hierarchy.cpu_folder(&self.path)))?;
        Ok(CpuStat::parse(&text, self.version()))
    }

    /// Whether this cgroup has the idle mark (Linux 5.15 and later).
    pub fn has_idle(&self) -> bool {
        self.cpu_file("cpu.idle").exists()
    }

    /// Whether it can save up unused quota (Linux 5.14 and later).
    pub fn has_burst(&self) -> bool {
        self.burst_file().exists()
    }

    /// Sets or clears the idle mark. Writing what is there is not an error,
    /// as it would be for a weight of an idle group.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write_idle(&self, idle: bool) -> Result<()> {
        files::write_text(&self.cpu_file("cpu.idle"), if idle { "1" } else { "0" })
    }

    /// Whether it is marked idle; without the file, it is not.
    ///
    /// # Errors
    /// When the kernel file cannot be read.
    pub fn read_idle(&self) -> Result<bool> {
        Ok(self.has_idle() && files::read_text(&self.cpu_file("cpu.idle"))? == "1")
    }

    /// Its weight's file and what stands there for `weight` (of 100).
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

    /// Sets its weight against its siblings, 1 … 10000.
    ///
    /// # Errors
    /// When the kernel refuses, as it does for an idle group.
    pub fn write_weight(&self, weight: u32) -> Result<()> {
        let (path, text) = self.weight_setting(weight);
        files::write_text(&path, &text)
    }

    /// Its weight; 100 is every group's default.
    ///
    /// # Errors
    /// When the kernel file cannot be read.
    pub fn read_weight(&self) -> Result<u32> {
        let (path, _) = self.weight_setting(WEIGHT_DEFAULT);
        let text = files::read_text(&path)?;
        self.weight_of(&path, &text)
    }

    /// What the text of its weight's file means.
    pub(crate) fn weight_of(&self, path: &Path, text: &str) -> Result<u32> {
        let number: u64 = text.parse().map_err(|_| EngineError::Unreadable {
            path: path.to_owned(),
            text: text.to_owned(),
        })?;
        let weight = match self.version() {
            Version::V2 => number,
            Version::V1 => (number * u64::from(WEIGHT_DEFAULT)).div_ceil(SHARES_DEFAULT),
        };
        Ok(u32::try_from(weight).unwrap_or(u32::MAX))
    }

    /// Whether it has a weight, and so the cpu controller.
    pub(crate) fn has_weight(&self) -> bool {
        self.weight_setting(WEIGHT_DEFAULT).0.exists()
    }

    fn burst_file(&self) -> PathBuf {
        self.cpu_file(match self.version() {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        })
    }

    /// Its quota, period and burst.
    ///
    /// # Errors
    /// When the kernel files cannot be read.
    pub fn read_bandwidth(&self) -> Result<Bandwidth> {
        let (quota_us, period_us) = match self.version() {
            Version::V1 => {
                let quota: i64 = files::read_number(&self.cpu_file("cpu.cfs_quota_us"))?;
                let period: u64 = files::read_number(&self.cpu_file("cpu.cfs_period_us"))?;
                (u64::try_from(quota).ok(), period)
            }
            Version::V2 => {
                let path = self.cpu_file("cpu.max");
                let text = files::read_text(&path)?;
                let (quota, period) = text.split_once(' ').unwrap_or((&text, "100000"));
                let period = period.parse().map_err(|_| EngineError::Unreadable {
                    path,
                    text: text.clone(),
                })?;
                (quota.parse().ok(), period)
            }
        };
        let burst_us: u64 = if self.has_burst() {
            files::read_number(&self.burst_file())?
        } else {
            0
        };
        Ok(Bandwidth {
            quota: Quota {
                quota_ns: quota_us.map(|us| us * 1000),
                period_ns: period_us * 1000,
            },
            burst_ns: burst_us * 1000,
        })
    }

    /// The writes that lead from `old` to `new`, in an order in which the
    /// kernel takes them: it refuses a burst above the quota at every step,
    /// and v1 a child's rate above its parent's. So burst comes down first
    /// and goes up last, and no step in between has a higher rate than the
    /// first or the last.
    pub fn bandwidth_steps(&self, old: &Bandwidth, new: &Bandwidth) -> Vec<(PathBuf, String)> {
        let us = |ns: u64| (ns / 1000).to_string();
        let mut steps = Vec::new();
        // Where the kernel has no burst, the plan has refused one that was
        // asked for; a cap does without.
        let new_burst_ns = if self.has_burst() { new.burst_ns } else { 0 };
        let low_burst = new_burst_ns.min(old.burst_ns);
        if low_burst < old.burst_ns {
            steps.push((self.burst_file(), us(low_burst)));
        }
        let period = us(new.quota.period_ns);
        match self.version() {
            Version::V2 => {
                let quota = new.quota.quota_ns.map_or_else(|| "max".into(), us);
                steps.push((self.cpu_file("cpu.max"), format!("{quota} {period}")));
            }
            Version::V1 => {
                let quota = new.quota.quota_ns.map_or_else(|| "-1".into(), us);
                let quota = (self.cpu_file("cpu.cfs_quota_us"), quota);
                let period = (self.cpu_file("cpu.cfs_period_us"), period);
                if new.quota.period_ns > old.quota.period_ns {
                    steps.extend([period, quota]);
                } else {
                    steps.extend([quota, period]);
                }
            }
        }
        if new_burst_ns > low_burst {
            steps.push((self.burst_file(), us(new_burst_ns)));
        }
        steps
    }

    /// The files of quota, period and burst, with what stands there for
    /// `bandwidth`.
    pub fn bandwidth_settings(&self, bandwidth: &Bandwidth) -> Vec<(PathBuf, String)> {
        let us = |ns: u64| (ns / 1000).to_string();
        let mut settings = vec![self.quota_setting(bandwidth)];
        if self.version() == Version::V1 {
            let period = us(bandwidth.quota.period_ns);
            settings.push((self.cpu_file("cpu.cfs_period_us"), period));
        }
        if self.has_burst() {
            settings.push((self.burst_file(), us(bandwidth.burst_ns)));
        }
        settings
    }

    /// Sets quota, period and burst.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write_bandwidth(&self, new: &Bandwidth) -> Result<()> {
        let old = self.read_bandwidth()?;
        if old == *new {
            return Ok(());
        }
        for (path, text) in self.bandwidth_steps(&old, new) {
            files::write_text(&path, &text)?;
        }
        Ok(())
    }

    /// The file to which a controller writes a new quota alone, with the
    /// text for it. The period stays.
    pub(crate) fn quota_setting(&self, bandwidth: &Bandwidth) -> (PathBuf, String) {
        let quota_us = bandwidth.quota.quota_ns.map(|ns| ns / 1000);
        match self.version() {
            Version::V1 => {
                let text = quota_us.map_or_else(|| "-1".into(), |us| us.to_string());
                (self.cpu_file("cpu.cfs_quota_us"), text)
            }
            Version::V2 => {
                let quota = quota_us.map_or_else(|| "max".into(), |us| us.to_string());
                let period_us = bandwidth.quota.period_ns / 1000;
                (self.cpu_file("cpu.max"), format!("{quota} {period_us}"))
            }
        }
    }
}

/// Moves a process into the cgroup that `folders` stand for. One that has
/// just ended counts as moved.
pub(crate) fn move_process(folders: &[PathBuf], pid: i32) -> Result<()> {
    for folder in folders {
        let path = folder.join("cgroup.procs");
        match files::write_text(&path, &pid.to_string()) {
            Err(EngineError::Cgroup { source, .. })
                if source.raw_os_error() == Some(libc::ESRCH) =>
            {
                return Ok(());
            }
            other => other?,
        }
    }
    Ok(())
}
