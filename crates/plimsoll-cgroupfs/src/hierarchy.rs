//! Where the cpu controller is on this host.
//!
//! Found through `/proc/self/mountinfo` and `/proc/self/cgroup`, never from
//! a fixed path: both versions exist in the wild, together or apart, with
//! `cpu` and `cpuacct` in one v1 hierarchy or in two.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use procfs::process::MountInfo;
use procfs::{ProcError, ProcessCGroup};
use serde::{Deserialize, Serialize};

use crate::error::{CgroupError, Result};
use crate::files;

/// Names the cgroup below which groups are created, instead of the top; for
/// tests and for containers. A path as in `/proc/PID/cgroup`.
pub const BASE_VARIABLE: &str = "PLIMSOLL_CGROUP_BASE";

const DELEGATION_HELP: &str = "run as root, or from a shell in a delegated cgroup v2 subtree \
     (`systemd-run --user --scope -p Delegate=yes bash`)";

/// The two interfaces of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// A hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        })
    }
}

/// One mounted hierarchy and this process's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    mount_point: PathBuf,
    /// This process's cgroup, relative to the mount point.
    own: PathBuf,
}

/// The hierarchy, or the two of v1, through which CPU time is controlled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    cpu: Tree,
    /// v1 only: `cpuacct`, where it is mounted apart from `cpu`.
    cpuacct: Option<Tree>,
    /// Groups are created below this cgroup, relative to the mount point.
    base: PathBuf,
}

/// Path components below a root: no leading slash, no `..`.
fn relative(path: &Path) -> PathBuf {
    path.components()
        .filter(|c| matches!(c, Component::Normal(_)))
        .collect()
}

/// The place that `/proc/self/cgroup` names, as seen below a mount point.
fn place(mount: &MountInfo, pathname: &str) -> PathBuf {
    let path = Path::new(pathname);
    relative(path.strip_prefix(&mount.root).unwrap_or(path))
}

fn tree_of(mount: &MountInfo, membership: &ProcessCGroup) -> Tree {
    Tree {
        mount_point: mount.mount_point.clone(),
        own: place(mount, &membership.pathname),
    }
}

impl Hierarchy {
    /// A folder in the shape of a hierarchy, for tests and models: no kernel is behind it.
    pub fn at_folder(folder: &Path, version: Version) -> Self {
        Self {
            version,
            cpu: Tree {
                mount_point: folder.to_owned(),
                own: PathBuf::new(),
            },
            cpuacct: None,
            base: PathBuf::new(),
        }
    }

    /// Finds the cpu controller of this host for this process.
    ///
    /// # Errors
    /// When there is none, or a base cgroup was named that is not there.
    pub fn find() -> Result<Self> {
        let unreadable = |error: ProcError| CgroupError::NoController {
            reason: format!("/proc is not readable ({error})"),
        };
        let me = procfs::process::Process::myself().map_err(unreadable)?;
        let mounts: Vec<MountInfo> = me.mountinfo().map_err(unreadable)?.0;
        let memberships = me.cgroups().map_err(unreadable)?.0;
        let mut found = Self::choose(&mounts, &memberships)?;
        found.base = found.choose_base()?;
        Ok(found)
    }

    /// Chooses among what is mounted: v2 where it has the controller, else v1.
    fn choose(mounts: &[MountInfo], memberships: &[ProcessCGroup]) -> Result<Self> {
        Self::choose_v2(mounts, memberships)
            .or_else(|| Self::choose_v1(mounts, memberships))
            .ok_or_else(|| Self::nothing_found(mounts))
    }

    fn choose_v2(mounts: &[MountInfo], memberships: &[ProcessCGroup]) -> Option<Self> {
        let membership = memberships.iter().find(|m| m.hierarchy == 0)?;
        let mount = mounts.iter().find(|mount| {
            let controllers = mount.mount_point.join("cgroup.controllers");
            mount.fs_type == "cgroup2"
                && files::read_text(&controllers)
                    .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
        })?;
        Some(Self {
            version: Version::V2,
            cpu: tree_of(mount, membership),
            cpuacct: None,
            base: PathBuf::new(),
        })
    }

    fn choose_v1(mounts: &[MountInfo], memberships: &[ProcessCGroup]) -> Option<Self> {
        let tree = |controller: &str| {
            let membership = memberships
                .iter()
                .find(|m| m.hierarchy != 0 && m.controllers.iter().any(|c| c == controller))?;
            let mount = mounts.iter().find(|mount| {
                mount.fs_type == "cgroup" && mount.super_options.contains_key(controller)
            })?;
            Some(tree_of(mount, membership))
        };
        let cpu = tree("cpu")?;
        let cpuacct = tree("cpuacct")?;
        Some(Self {
            version: Version::V1,
            cpuacct: (cpuacct.mount_point != cpu.mount_point).then_some(cpuacct),
            cpu,
            base: PathBuf::new(),
        })
    }

    fn nothing_found(mounts: &[MountInfo]) -> CgroupError {
        let v1 = |name: &str| {
            mounts
                .iter()
                .any(|m| m.fs_type == "cgroup" && m.super_options.contains_key(name))
        };
        let reason = if v1("cpu") {
            "cgroup v1 has cpu but not cpuacct mounted; mount cpuacct, which counts what a group uses"
        } else if mounts.iter().any(|m| m.fs_type == "cgroup2") {
            "a cgroup v2 hierarchy is mounted without it, and no v1 hierarchy has it; boot without \
             cgroup_disable=cpu and cgroup_no_v1, or enable CONFIG_CGROUP_SCHED"
        } else if mounts.iter().any(|m| m.fs_type == "cgroup") {
            "cgroup v1 is mounted without it; mount it: mount -t cgroup -o cpu cgroup /sys/fs/cgroup/cpu"
        } else {
            "no cgroup file system is mounted; mount it: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        };
        CgroupError::NoController {
            reason: reason.into(),
        }
    }

    /// The cgroup below which this process may create its own.
    fn choose_base(&self) -> Result<PathBuf> {
        if let Some(named) = std::env::var_os(BASE_VARIABLE) {
            let base = relative(Path::new(&named));
            if !self.cpu.mount_point.join(&base).is_dir() {
                let target = Path::new(&named).display().to_string();
                return Err(CgroupError::NoTarget {
                    target,
                    what: "cgroup (from PLIMSOLL_CGROUP_BASE)",
                });
            }
            return Ok(base);
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(PathBuf::new());
        }
        // The highest ancestor that was delegated to this user.
        let writable = |path: &Path| {
            let folder = self.cpu.mount_point.join(path);
            access(&folder, AccessFlags::W_OK).is_ok()
                && access(&folder.join("cgroup.procs"), AccessFlags::W_OK).is_ok()
        };
        let own = &self.cpu.own;
        let highest = own.ancestors().take_while(|path| writable(path)).last();
        Ok(highest.unwrap_or(own).to_owned())
    }

    /// Whether this process may create groups here.
    ///
    /// # Errors
    /// Says what would give the permission.
    pub fn check_permission(&self) -> Result<()> {
        let folders = [
            Some(self.cpu_folder(&self.base)),
            self.cpuacct_folder(&self.base),
        ];
        for folder in folders.into_iter().flatten() {
            let no_permission = |help: &str| {
                Err(CgroupError::NoPermission {
                    path: folder.clone(),
                    help: help.into(),
                })
            };
            if access(&folder, AccessFlags::W_OK).is_err() {
                let read_only = nix::unistd::geteuid().is_root();
                let help = "it is mounted read-only; in a container, mount it read-write";
                return no_permission(if read_only { help } else { DELEGATION_HELP });
            }
            if self.version == Version::V2 && !self.has_controller(&folder) {
                return no_permission(
                    "the cpu controller is not delegated to it \
                     (`systemctl edit user@.service`, add Delegate=cpu cpuset io memory pids)",
                );
            }
        }
        Ok(())
    }

    /// Whether this process may change the knobs of a cgroup that is there.
    ///
    /// # Errors
    /// When not: it says what would give the permission.
    pub fn check_writable(&self, path: &Path) -> Result<()> {
        let folder = self.cpu_folder(path);
        if access(&folder.join("cgroup.procs"), AccessFlags::W_OK) == Err(Errno::EACCES) {
            return Err(CgroupError::NoPermission {
                path: folder,
                help: DELEGATION_HELP.into(),
            });
        }
        Ok(())
    }

    fn has_controller(&self, folder: &Path) -> bool {
        files::read_text(&folder.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
    }

    /// v1 or v2.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The cgroup below which groups are created, relative to the mount point.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Whether groups are created at the very top, so that they compete with
    /// everything on the machine.
    pub fn is_top(&self) -> bool {
        self.base.as_os_str().is_empty()
    }

    /// Where the hierarchy of the cpu controller is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.cpu.mount_point
    }

    /// The folder of a cgroup in the hierarchy of the cpu controller.
    pub fn cpu_folder(&self, path: &Path) -> PathBuf {
        self.cpu.mount_point.join(path)
    }

    /// The folder of a cgroup's twin in `cpuacct`, where that is mounted apart.
    pub fn cpuacct_folder(&self, path: &Path) -> Option<PathBuf> {
        self.cpuacct
            .as_ref()
            .map(|tree| tree.mount_point.join(path))
    }

    /// Every folder that stands for one cgroup.
    pub fn folders(&self, path: &Path) -> Vec<PathBuf> {
        [Some(self.cpu_folder(path)), self.cpuacct_folder(path)]
            .into_iter()
            .flatten()
            .collect()
    }

    /// This process's own cgroup, one folder a hierarchy.
    pub fn own_folders(&self) -> Vec<PathBuf> {
        [Some(&self.cpu), self.cpuacct.as_ref()]
            .into_iter()
            .flatten()
            .map(|tree| tree.mount_point.join(&tree.own))
            .collect()
    }

    /// The folders of the cgroup that a process is in.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn folders_of(&self, pid: i32) -> Result<Vec<PathBuf>> {
        let no_process = || CgroupError::NoTarget {
            target: pid.to_string(),
            what: "process",
        };
        let process = procfs::process::Process::new(pid).map_err(|_| no_process())?;
        let memberships = process.cgroups().map_err(|_| no_process())?.0;
        let place_in = |tree: &Tree, controller: &str| {
            let membership = memberships.iter().find(|m| match self.version {
                Version::V2 => m.hierarchy == 0,
                Version::V1 => m.controllers.iter().any(|c| c == controller),
            })?;
            Some(
                tree.mount_point
                    .join(relative(Path::new(&membership.pathname))),
            )
        };
        let cpu = place_in(&self.cpu, "cpu");
        let cpuacct = self
            .cpuacct
            .as_ref()
            .and_then(|tree| place_in(tree, "cpuacct"));
        Ok([cpu, cpuacct].into_iter().flatten().collect())
    }

    /// Where a path that a user gave is below the mount point: either as in
    /// `/proc/PID/cgroup`, or as a path in the file system. One with `..` in it
    /// is none: who writes it means another cgroup than is easily seen.
    ///
    /// # Errors
    /// When there is no such cgroup.
    pub fn resolve(&self, target: &str) -> Result<PathBuf> {
        let path = Path::new(target);
        let below = path.strip_prefix(&self.cpu.mount_point).unwrap_or(path);
        let goes_up = below.components().any(|c| c == Component::ParentDir);
        let below = relative(below);
        if goes_up || below.as_os_str().is_empty() || !self.cpu_folder(&below).is_dir() {
            return Err(CgroupError::NoTarget {
                target: target.into(),
                what: "cgroup",
            });
        }
        Ok(below)
    }
}
