//! Control groups of the simulated kernel.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::error::error;
use super::tasks::Tasks;
use crate::entry::{FileInfo, Listed};
use crate::version::Version;

/// Mount point of the simulated cgroups.
pub const MOUNT: &str = "/simulated/cgroup";

const DEVICE: u64 = 2;
/// Bound of the sum of quota and burst: `max_bw_runtime_us` of kernel/sched.
const RUNTIME_MAX_USEC: u64 = (1 << 44) / 1_000;

/// Settings of the cpu controller for a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuSettings {
    /// Runtime per period; `None`: unlimited.
    pub quota_usec: Option<u64>,
    pub period_usec: u64,
    /// Quota that may be saved up.
    pub burst_usec: u64,
    /// Weight in the unit of its file: shares on v1.
    pub weight: u64,
    pub is_idle: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cgroup {
    inode: u64,
    /// v2: its children have the cpu controller.
    gives_cpu: bool,
    /// v2: its processes, and those below it, are frozen.
    freezes: bool,
    /// Settings; `None`: the cpu controller is disabled.
    cpu: Option<CpuSettings>,
    /// CPU time used in the cgroup and below it.
    usage_usec: u64,
}

/// Cgroups by their paths below the mount point.
#[derive(Debug)]
pub struct Cgroups {
    version: Version,
    all: BTreeMap<PathBuf, Cgroup>,
    nr_created: u64,
}

fn number(text: &str) -> io::Result<u64> {
    text.parse().map_err(|_| error(libc::EINVAL))
}

/// Rate as the kernel compares it: `to_ratio` of kernel/sched/core.c.
fn ratio(cpu: &CpuSettings) -> Option<u64> {
    cpu.quota_usec.map(|quota| (quota << 20) / cpu.period_usec)
}

impl Cgroups {
    pub(super) fn new(version: Version) -> Self {
        let mut new = Self {
            version,
            all: BTreeMap::new(),
            nr_created: 1,
        };
        let root = Cgroup {
            inode: 1,
            gives_cpu: false,
            freezes: false,
            // The root of v2 has no knobs.
            cpu: (version == Version::V1).then(|| new.fresh_cpu()),
            usage_usec: 0,
        };
        new.all.insert(PathBuf::new(), root);
        new
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    fn fresh_cpu(&self) -> CpuSettings {
        CpuSettings {
            quota_usec: None,
            period_usec: 100_000,
            burst_usec: 0,
            weight: match self.version {
                Version::V1 => 1_024,
                Version::V2 => 100,
            },
            is_idle: false,
        }
    }

    fn get(&self, path: &Path) -> io::Result<&Cgroup> {
        self.all.get(path).ok_or(error(libc::ENOENT))
    }

    /// Returns the settings of the cpu controller for a cgroup; `None`: there is no such cgroup, or
    /// it has no such controller.
    #[must_use]
    pub fn cpu(&self, path: &Path) -> Option<&CpuSettings> {
        self.all.get(path)?.cpu.as_ref()
    }

    /// Lists all cgroups but the root.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.all.keys().skip(1).map(PathBuf::as_path)
    }

    /// Inode number, which distinguishes recreated cgroups.
    #[must_use]
    pub fn inode(&self, path: &Path) -> Option<u64> {
        Some(self.all.get(path)?.inode)
    }

    /// v2: returns whether the children of a cgroup have the controller.
    #[must_use]
    pub fn gives_cpu(&self, path: &Path) -> bool {
        self.all.get(path).is_some_and(|cgroup| cgroup.gives_cpu)
    }

    /// Adds CPU usage to a cgroup and to those above it.
    pub fn use_cpu(&mut self, path: &Path, usage_usec: u64) {
        for above in path.ancestors() {
            if let Some(cgroup) = self.all.get_mut(above) {
                cgroup.usage_usec += usage_usec;
            }
        }
    }

    pub(super) fn rate_ppm(&self, path: &Path) -> Option<u64> {
        let cpus = path.ancestors().filter_map(|above| self.cpu(above));
        let rates = cpus.filter_map(|cpu| Some(cpu.quota_usec? * 1_000_000 / cpu.period_usec));
        rates.min()
    }

    pub(super) fn is_idle(&self, path: &Path) -> bool {
        let mut cpus = path.ancestors().filter_map(|above| self.cpu(above));
        cpus.any(|cpu| cpu.is_idle)
    }

    /// v2: returns whether the processes of a cgroup are frozen.
    fn is_frozen(&self, path: &Path) -> bool {
        let mut above = path.ancestors().filter_map(|above| self.all.get(above));
        above.any(|cgroup| cgroup.freezes)
    }

    fn children<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        let below = self.all.keys();
        below.filter(move |below| below.parent() == Some(path))
    }

    pub fn create(&mut self, path: &Path) -> io::Result<()> {
        if self.all.contains_key(path) {
            return Err(error(libc::EEXIST));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let has_cpu = self.get(parent)?.gives_cpu || self.version == Version::V1;
        self.nr_created += 1;
        let new = Cgroup {
            inode: self.nr_created,
            gives_cpu: false,
            freezes: false,
            cpu: has_cpu.then(|| self.fresh_cpu()),
            usage_usec: 0,
        };
        self.all.insert(path.to_owned(), new);
        Ok(())
    }

    pub fn remove(&mut self, path: &Path, tasks: &Tasks) -> io::Result<()> {
        self.get(path)?;
        if self.children(path).next().is_some() || tasks.is_used(path) {
            return Err(error(libc::EBUSY));
        }
        self.all.remove(path);
        Ok(())
    }

    /// v1: renames a cgroup within its parent, as `cgroup1_rename` does.
    pub(super) fn rename(&mut self, from: &Path, to: &Path, tasks: &mut Tasks) -> io::Result<()> {
        if self.version == Version::V2 {
            return Err(error(libc::EPERM));
        }
        self.get(from)?;
        if self.all.contains_key(to) {
            return Err(error(libc::EEXIST));
        }
        if from.parent() != to.parent() {
            return Err(error(libc::EIO));
        }
        let moved = |path: &Path| {
            Some(
                to.join(path.strip_prefix(from).ok()?)
                    .components()
                    .collect(),
            )
        };
        let all = std::mem::take(&mut self.all).into_iter();
        self.all = all
            .map(|(path, cgroup)| (moved(&path).unwrap_or(path), cgroup))
            .collect();
        tasks.rename(moved);
        Ok(())
    }

    pub(super) fn look(&self, below: &Path) -> io::Result<FileInfo> {
        let (is_folder, cgroup) = match self.get(below) {
            Ok(cgroup) => (true, cgroup),
            Err(_) => {
                let (folder, file) = split(below)?;
                self.text(folder, file, &Tasks::default())?;
                (false, self.get(folder)?)
            }
        };
        Ok(FileInfo {
            is_folder,
            is_regular: !is_folder,
            device: DEVICE,
            inode: cgroup.inode,
            nr_links: 2 + self.children(below).count() as u64,
            uid: 0,
            mode: if is_folder { 0o755 } else { 0o644 },
        })
    }

    pub(super) fn list(&self, below: &Path) -> io::Result<Vec<Listed>> {
        self.get(below)?;
        let listed = |path: &PathBuf| Listed {
            path: Path::new(MOUNT).join(path),
            is_folder: true,
            inode: self.all[path].inode,
        };
        Ok(self.children(below).map(listed).collect())
    }

    pub(super) fn read(&self, below: &Path, tasks: &Tasks) -> io::Result<String> {
        let (folder, file) = split(below)?;
        self.text(folder, file, tasks)
    }

    /// Returns the text of `cgroup.type`. No test makes a cgroup threaded, so a cgroup is a thread
    /// root only where the controller was enabled beside processes, and then the cgroups inside are
    /// invalid. A dying process makes its cgroup a thread root for so short a time that it does not
    /// count.
    fn kind(&self, folder: &Path, tasks: &Tasks) -> &'static str {
        let is_thread_root = |path: &&Path| {
            **path != *Path::new("") && self.gives_cpu(path) && !tasks.list(path).is_empty()
        };
        match folder.ancestors().find(is_thread_root) {
            None => "domain",
            Some(root) if root == folder => "domain threaded",
            Some(_) => "domain invalid",
        }
    }

    fn takes_processes(&self, path: &Path, tasks: &Tasks) -> bool {
        self.version == Version::V1 || self.kind(path, tasks) != "domain invalid"
    }

    pub(super) fn nr_invalid(&self, tasks: &Tasks) -> usize {
        let invalid = self
            .all
            .keys()
            .filter(|path| !self.takes_processes(path, tasks));
        invalid.count()
    }

    fn text(&self, folder: &Path, file: &str, tasks: &Tasks) -> io::Result<String> {
        let cgroup = self.get(folder)?;
        let is_v2 = self.version == Version::V2;
        let of_all = match (file, is_v2) {
            // v2 shows a task that ends at this moment as 0. Here one always does.
            ("cgroup.procs" | "cgroup.threads", true) => Some(tasks.list(folder) + "0\n"),
            ("cgroup.procs" | "tasks", false) => Some(tasks.list(folder)),
            ("cgroup.subtree_control", true) => {
                Some(if cgroup.gives_cpu { "cpu" } else { "" }.to_owned())
            }
            ("cgroup.controllers", true) => {
                let has_cpu = cgroup.cpu.is_some() || folder == Path::new("");
                Some(if has_cpu { "cpu" } else { "" }.to_owned())
            }
            ("cgroup.type", true) if folder != Path::new("") => {
                Some(self.kind(folder, tasks).to_owned())
            }
            ("cgroup.events", true) => {
                let populated = u8::from(tasks.is_used_below(folder));
                let frozen = u8::from(self.is_frozen(folder));
                Some(format!("populated {populated}\nfrozen {frozen}\n"))
            }
            ("cgroup.freeze", true) if folder != Path::new("") => {
                Some(u8::from(cgroup.freezes).to_string())
            }
            ("cpu.stat", true) => Some(format!("usage_usec {}\n", cgroup.usage_usec)),
            ("cpuacct.usage", false) => Some((cgroup.usage_usec * 1_000).to_string()),
            _ => None,
        };
        if let Some(text) = of_all {
            return Ok(text);
        }
        let cpu = cgroup.cpu.as_ref().ok_or(error(libc::ENOENT))?;
        let quota = |unlimited: &str| match cpu.quota_usec {
            Some(usec) => usec.to_string(),
            None => unlimited.to_owned(),
        };
        Ok(match (file, is_v2) {
            ("cpu.idle", _) => u8::from(cpu.is_idle).to_string(),
            // An idle cgroup has a weight of 3 of 1024.
            ("cpu.weight", true) if cpu.is_idle => "0".to_owned(),
            ("cpu.shares", false) if cpu.is_idle => "3".to_owned(),
            ("cpu.weight", true) | ("cpu.shares", false) => cpu.weight.to_string(),
            ("cpu.max", true) => format!("{} {}", quota("max"), cpu.period_usec),
            ("cpu.cfs_quota_us", false) => quota("-1"),
            ("cpu.cfs_period_us", false) => cpu.period_usec.to_string(),
            ("cpu.max.burst", true) | ("cpu.cfs_burst_us", false) => cpu.burst_usec.to_string(),
            ("cpu.stat", false) => "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n".to_owned(),
            _ => return Err(error(libc::ENOENT)),
        })
    }

    pub fn write(&mut self, below: &Path, text: &str, tasks: &mut Tasks) -> io::Result<()> {
        let (folder, file) = split(below)?;
        // The file must exist.
        self.text(folder, file, tasks)?;
        match file {
            "cgroup.procs" => {
                let pid = text.parse().map_err(|_| error(libc::EINVAL))?;
                assert_ne!(pid, 0, "the writer moves itself");
                if !self.takes_processes(folder, tasks) {
                    return Err(error(libc::EOPNOTSUPP));
                }
                let is_root = folder == Path::new("");
                if self.gives_cpu(folder) && !is_root && self.is_used_inside(folder, tasks) {
                    return Err(error(libc::EBUSY));
                }
                tasks.move_to(pid, folder)
            }
            "cgroup.freeze" => {
                let cgroup = self.all.get_mut(folder).ok_or(error(libc::ENOENT))?;
                cgroup.freezes = number(text)? == 1;
                Ok(())
            }
            "cgroup.subtree_control" => self.give_cpu(folder, text, tasks),
            _ => self.write_cpu(folder, file, text),
        }
    }

    fn give_cpu(&mut self, folder: &Path, text: &str, tasks: &Tasks) -> io::Result<()> {
        let gives = match text {
            "+cpu" => true,
            "-cpu" => false,
            _ => return Err(error(libc::EINVAL)),
        };
        let is_root = folder == Path::new("");
        if gives && !is_root {
            if self.get(folder)?.cpu.is_none() {
                return Err(error(libc::ENOENT));
            }
            // Else it becomes a thread root.
            if tasks.is_used(folder) && self.is_used_inside(folder, tasks) {
                return Err(error(libc::EBUSY));
            }
        }
        let children: Vec<PathBuf> = self.children(folder).cloned().collect();
        if !gives && children.iter().any(|child| self.gives_cpu(child)) {
            return Err(error(libc::EBUSY));
        }
        let fresh = self.fresh_cpu();
        for child in children {
            if let Some(cgroup) = self.all.get_mut(&child) {
                let kept = cgroup.cpu.take();
                cgroup.cpu = gives.then(|| kept.unwrap_or_else(|| fresh.clone()));
            }
        }
        if let Some(cgroup) = self.all.get_mut(folder) {
            cgroup.gives_cpu = gives;
        }
        Ok(())
    }

    /// v2: returns whether a cgroup inside has processes, which keeps the folder's cgroup from
    /// being a thread root.
    fn is_used_inside(&self, folder: &Path, tasks: &Tasks) -> bool {
        let mut children = self.children(folder);
        children.any(|child| tasks.is_used_below(child))
    }

    fn write_cpu(&mut self, folder: &Path, file: &str, text: &str) -> io::Result<()> {
        let default = self.fresh_cpu().weight;
        let cgroup = self.all.get_mut(folder).ok_or(error(libc::ENOENT))?;
        let cpu = cgroup.cpu.as_mut().ok_or(error(libc::EINVAL))?;
        let before = cpu.clone();
        match file {
            "cpu.idle" => {
                let is_idle = number(text)? == 1;
                if is_idle != cpu.is_idle {
                    cpu.weight = default;
                }
                cpu.is_idle = is_idle;
            }
            "cpu.weight" | "cpu.shares" => {
                let range = if file == "cpu.weight" {
                    1..=10_000
                } else {
                    2..=262_144
                };
                if cpu.is_idle || !range.contains(&number(text)?) {
                    return Err(error(libc::EINVAL));
                }
                cpu.weight = number(text)?;
            }
            "cpu.max" => {
                let (quota, period) = text.split_once(' ').unwrap_or((text, ""));
                cpu.quota_usec = match quota {
                    "max" => None,
                    quota => Some(number(quota)?),
                };
                if !period.is_empty() {
                    cpu.period_usec = number(period)?;
                }
            }
            "cpu.cfs_quota_us" => cpu.quota_usec = number(text).ok(),
            "cpu.cfs_period_us" => cpu.period_usec = number(text)?,
            "cpu.max.burst" | "cpu.cfs_burst_us" => cpu.burst_usec = number(text)?,
            _ => return Err(error(libc::EINVAL)),
        }
        if !is_taken(cpu) || !self.is_schedulable() {
            // A second lookup, because the check borrows all cgroups.
            if let Some(cgroup) = self.all.get_mut(folder) {
                cgroup.cpu = Some(before);
            }
            return Err(error(libc::EINVAL));
        }
        Ok(())
    }

    /// v1: returns whether no rate is above those of its ancestors.
    fn is_schedulable(&self) -> bool {
        let is_within = |(path, cgroup): (&PathBuf, &Cgroup)| {
            let Some(own) = cgroup.cpu.as_ref().and_then(ratio) else {
                return true;
            };
            let above = path.ancestors().skip(1).filter_map(|above| self.cpu(above));
            above.filter_map(ratio).all(|outer| own <= outer)
        };
        self.version == Version::V2 || self.all.iter().all(is_within)
    }
}

/// Checks the rules of `tg_set_cfs_bandwidth` in kernel/sched/core.c.
fn is_taken(cpu: &CpuSettings) -> bool {
    let is_period = (1_000..=1_000_000).contains(&cpu.period_usec);
    is_period
        && cpu.quota_usec.is_none_or(|quota_usec| {
            quota_usec >= 1_000
                && cpu.burst_usec <= quota_usec
                && quota_usec + cpu.burst_usec <= RUNTIME_MAX_USEC
        })
}

fn split(below: &Path) -> io::Result<(&Path, &str)> {
    let file = below.file_name().and_then(|name| name.to_str());
    let folder = below.parent();
    folder.zip(file).ok_or(error(libc::EISDIR))
}
