//! Hierarchy of the cpu controller on this host.
//!
//! The hierarchy is found through `/proc/self/mountinfo` and `/proc/self/cgroup`, not by a fixed
//! path, because hosts have either or both versions, with `cpu` and `cpuacct` in one v1 hierarchy
//! or in two.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;

use crate::error::{CgroupError, Result};
use crate::files;
use crate::name;
use crate::os;
use crate::proc::{self, Membership, Memberships, Mount};
use crate::version::Version;

/// Environment variable that names the cgroup below which groups are created, instead of the top;
/// for tests and containers. Its value is a path as in `/proc/PID/cgroup`.
pub const BASE_VARIABLE: &str = "PLIMSOLL_CGROUP_BASE";

const DELEGATION_HELP: &str = "run as root, or from a shell in a delegated cgroup v2 subtree \
     (`systemd-run --user --scope -p Delegate=yes bash`)";

/// A mounted hierarchy and this process's cgroup in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    /// Controller for which the hierarchy is used.
    controller: &'static str,
    mount_point: PathBuf,
    /// Cgroup that is mounted there, as in `/proc/PID/cgroup`.
    root: PathBuf,
    /// Cgroup of this process, as in `/proc/self/cgroup`.
    own: PathBuf,
}

impl Tree {
    /// Chooses among several mounts of a hierarchy the first in which this process sees its own
    /// cgroup, else the first.
    fn choose<'a>(
        controller: &'static str,
        mounts: impl Iterator<Item = &'a Mount>,
        membership: &Membership,
    ) -> Option<Self> {
        let own = &membership.cgroup;
        let mount = mounts.min_by_key(|mount| below(&mount.root, own).is_none())?;
        Some(Self {
            controller,
            mount_point: mount.point.clone(),
            root: mount.root.clone(),
            own: own.clone(),
        })
    }

    /// Converts a path as in `/proc/PID/cgroup` to one relative to the mount point.
    ///
    /// # Errors
    /// When the path is not below the mount point, or its place there is unknown.
    fn place(&self, target: impl fmt::Display, cgroup: &Path) -> Result<PathBuf> {
        below(&self.root, cgroup).ok_or_else(|| CgroupError::NotVisible {
            target: target.to_string(),
            cgroup: cgroup.to_owned(),
            mount_point: self.mount_point.clone(),
        })
    }

    fn own_place(&self) -> Result<PathBuf> {
        self.place("this process", &self.own)
    }
}

/// Hierarchy that controls CPU time, or the two of v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    cpu: Tree,
    /// v1 only: the tree of `cpuacct`, if it is mounted separately from `cpu`.
    cpuacct: Option<Tree>,
    /// Cgroup below which groups are created, relative to the mount point.
    base: PathBuf,
}

/// Removes the leading slash of a path. `None`: it contains `..`.
fn downward(path: &Path) -> Option<PathBuf> {
    let components = path.components();
    let names = components.filter(|c| !matches!(c, Component::RootDir | Component::CurDir));
    names
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect()
}

/// Returns the cgroup `path` relative to the cgroup `root`, both as in `/proc/PID/cgroup`, where
/// paths outside of the reader's cgroup namespace begin with `/..`. `None`: `path` is not below
/// `root`, or the kernel does not show the names in between.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    downward(path.strip_prefix(root).ok()?)
}

impl Hierarchy {
    /// Treats a plain folder as a hierarchy, for tests and models.
    pub fn at_folder(folder: &Path, version: Version) -> Self {
        Self {
            version,
            cpu: Tree {
                controller: "cpu",
                mount_point: folder.to_owned(),
                root: "/".into(),
                own: "/".into(),
            },
            cpuacct: None,
            base: PathBuf::new(),
        }
    }

    /// Finds the cpu controller of this host for this process.
    ///
    /// # Errors
    /// When there is no such controller, or the base cgroup of the environment does not exist.
    pub fn find() -> Result<Self> {
        let unreadable = |error: io::Error| CgroupError::NoController {
            reason: format!("/proc is not readable ({error})"),
        };
        let mounts = proc::mounts().map_err(unreadable)?;
        let memberships = Memberships::own().map_err(unreadable)?;
        let (hidden, visible): (Vec<_>, Vec<_>) = mounts.into_iter().partition(Mount::is_hidden);
        let mut found = Self::choose(&visible, &memberships)
            .map_err(|error| hidden_instead(&hidden).unwrap_or(error))?;
        found.base = found.choose_base()?;
        Ok(found)
    }

    /// Chooses among the mounts: v2 if it has the controller, else v1.
    fn choose(mounts: &[Mount], memberships: &Memberships) -> Result<Self> {
        Self::choose_v2(mounts, memberships)
            .or_else(|| Self::choose_v1(mounts, memberships))
            .ok_or_else(|| Self::nothing_found(mounts))
    }

    fn choose_v2(mounts: &[Mount], memberships: &Memberships) -> Option<Self> {
        let membership = memberships.find(Version::V2, "cpu")?;
        let with_cpu = mounts
            .iter()
            .filter(|mount| mount.version == Version::V2 && has_cpu(&mount.point));
        Some(Self {
            version: Version::V2,
            cpu: Tree::choose("cpu", with_cpu, membership)?,
            cpuacct: None,
            base: PathBuf::new(),
        })
    }

    fn choose_v1(mounts: &[Mount], memberships: &Memberships) -> Option<Self> {
        let tree = |controller: &'static str| {
            let membership = memberships.find(Version::V1, controller)?;
            let with_it = mounts.iter().filter(|mount| mount.has(controller));
            Tree::choose(controller, with_it, membership)
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

    fn nothing_found(mounts: &[Mount]) -> CgroupError {
        let has_version = |version| mounts.iter().any(|mount| mount.version == version);
        let reason = if mounts.iter().any(|mount| mount.has("cpu")) {
            "cgroup v1 has cpu but not cpuacct mounted; mount cpuacct, which counts what a group uses"
        } else if has_version(Version::V2) {
            "a cgroup v2 hierarchy is mounted without it, and no v1 hierarchy has it; boot without \
             cgroup_disable=cpu and cgroup_no_v1, or enable CONFIG_CGROUP_SCHED"
        } else if has_version(Version::V1) {
            "cgroup v1 is mounted without it; mount it: mount -t cgroup -o cpu cgroup /sys/fs/cgroup/cpu"
        } else {
            "no cgroup file system is mounted; mount it: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
        };
        CgroupError::NoController {
            reason: reason.into(),
        }
    }

    /// Finds the cgroup below which this process may create others.
    fn choose_base(&self) -> Result<PathBuf> {
        if let Some(named) = std::env::var_os(BASE_VARIABLE) {
            let missing = |path: &Path| CgroupError::NoTarget {
                target: path.display().to_string(),
                what: "cgroup (from PLIMSOLL_CGROUP_BASE)",
            };
            let base = downward(Path::new(&named)).ok_or_else(|| missing(Path::new(&named)))?;
            // v1 may have it in one of two hierarchies.
            let mut folders = self.folders(&base).into_iter();
            let lacking = folders.find(|folder| !os::is_folder(folder));
            return lacking.map_or(Ok(base), |folder| Err(missing(&folder)));
        }
        if nix::unistd::geteuid().is_root() {
            return Ok(PathBuf::new());
        }
        // The highest ancestor that was delegated to this user.
        let writable = |path: &Path| {
            let folder = self.cpu.mount_point.join(path);
            os::check_writable(&folder).is_ok()
                && os::check_writable(&folder.join("cgroup.procs")).is_ok()
        };
        let Ok(own) = self.cpu.own_place() else {
            return Ok(PathBuf::new());
        };
        let highest = own.ancestors().take_while(|path| writable(path)).last();
        Ok(highest.unwrap_or(&own).to_owned())
    }

    /// Checks that this process may create groups here.
    ///
    /// # Errors
    /// When the process may not create groups; the error names a remedy.
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
            if os::check_writable(&folder).is_err() {
                let read_only = nix::unistd::geteuid().is_root();
                let help = "it is mounted read-only; in a container, mount it read-write";
                return no_permission(if read_only { help } else { DELEGATION_HELP });
            }
            if self.version == Version::V2 && !has_cpu(&folder) {
                return no_permission(
                    "the cpu controller is not delegated to it \
                     (`systemctl edit user@.service`, add Delegate=cpu cpuset io memory pids)",
                );
            }
        }
        Ok(())
    }

    /// Checks that this process may change the knobs of an existing cgroup.
    ///
    /// # Errors
    /// When the process may not write; the error names a remedy.
    pub fn check_writable(&self, path: &Path) -> Result<()> {
        let folder = self.cpu_folder(path);
        if os::check_writable(&folder.join("cgroup.procs")) == Err(Errno::EACCES) {
            return Err(CgroupError::NoPermission {
                path: folder,
                help: DELEGATION_HELP.into(),
            });
        }
        Ok(())
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Cgroup below which groups are created, relative to the mount point.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns whether groups are created at the top, where they compete with all work of the
    /// machine.
    pub fn is_top(&self) -> bool {
        self.base.as_os_str().is_empty()
    }

    /// Returns whether the top of what is mounted is the root of the tree. In a cgroup namespace,
    /// or where only a part of the tree is mounted, it is another cgroup. v1 always counts as
    /// whole; v2 does if the top has no `cgroup.events`, a file that the root lacks.
    pub fn is_whole(&self) -> bool {
        let events = self.cpu_folder(Path::new("")).join("cgroup.events");
        self.version() == Version::V1 || !events.exists()
    }

    /// Moves this process to the top of all mounted hierarchies but those of the cpu controller, as
    /// far as it may write there.
    pub fn leave_others(&self) {
        let own = std::process::id().to_string();
        // Without a list of mounts this process stays where it is.
        let mounts = proc::mounts().unwrap_or_default();
        for point in self.others(&mounts) {
            let _ = files::write_text(&point.join("cgroup.procs"), &own);
        }
    }

    /// Mount points of the hierarchies without the cpu controller.
    fn others<'a>(&self, mounts: &'a [Mount]) -> impl Iterator<Item = &'a Path> {
        let version = self.version;
        let is_other = move |mount: &&Mount| match mount.version {
            Version::V1 => !mount.has("cpu") && !mount.has("cpuacct"),
            Version::V2 => version == Version::V1,
        };
        let others = mounts.iter().filter(is_other);
        others.map(|mount| mount.point.as_path())
    }

    pub fn mount_point(&self) -> &Path {
        &self.cpu.mount_point
    }

    pub fn cpu_folder(&self, path: &Path) -> PathBuf {
        self.cpu.mount_point.join(path)
    }

    /// Folder of a cgroup's twin in `cpuacct`, if that is mounted separately.
    pub fn cpuacct_folder(&self, path: &Path) -> Option<PathBuf> {
        self.cpuacct
            .as_ref()
            .map(|tree| tree.mount_point.join(path))
    }

    /// Folders of a cgroup, one for each hierarchy.
    pub fn folders(&self, path: &Path) -> Vec<PathBuf> {
        self.trees()
            .map(|tree| tree.mount_point.join(path))
            .collect()
    }

    fn trees(&self) -> impl Iterator<Item = &Tree> {
        std::iter::once(&self.cpu).chain(&self.cpuacct)
    }

    /// Returns the cgroup of a process or thread in the hierarchy of the cpu controller, below the
    /// mount point.
    ///
    /// # Errors
    /// When there is no such process, or its cgroup is not visible here.
    pub fn cgroup_of(&self, pid: i32) -> Result<PathBuf> {
        self.place_of(&self.cpu, &memberships_of(pid)?, pid)
    }

    /// Returns the folders of the cgroup of a process or thread, one for each hierarchy.
    ///
    /// # Errors
    /// When there is no such process, or its cgroup is not visible here.
    pub fn folders_of(&self, pid: i32) -> Result<Vec<PathBuf>> {
        let memberships = memberships_of(pid)?;
        self.trees()
            .map(|tree| {
                let place = self.place_of(tree, &memberships, pid)?;
                Ok(tree.mount_point.join(place))
            })
            .collect()
    }

    fn place_of(&self, tree: &Tree, memberships: &Memberships, pid: i32) -> Result<PathBuf> {
        let membership = memberships
            .find(self.version, tree.controller)
            .ok_or_else(|| no_process(pid))?;
        tree.place(format_args!("process {pid}"), &membership.cgroup)
    }

    /// Resolves the text ([`name`]) of a user's path of a cgroup, as in `/proc/PID/cgroup` or in
    /// the file system, to a path below the mount point. Follows no links, and refuses a path with
    /// `..`, which denotes another cgroup than it shows.
    ///
    /// # Errors
    /// When there is no such cgroup, or it is the root.
    pub fn resolve(&self, target: &str) -> Result<PathBuf> {
        let path = &name::path_of(target);
        let below = path.strip_prefix(&self.cpu.mount_point).unwrap_or(path);
        let is_there = |path: &PathBuf| {
            let is_root = path.as_os_str().is_empty();
            !is_root && os::is_folder(&self.cpu_folder(path))
        };
        downward(below)
            .filter(is_there)
            .ok_or_else(|| CgroupError::NoTarget {
                target: target.to_owned(),
                what: "cgroup",
            })
    }
}

/// v2: returns whether children of a cgroup can have the cpu controller.
fn has_cpu(folder: &Path) -> bool {
    files::read_text(&folder.join("cgroup.controllers"))
        .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpu"))
}

/// Error for a controller that is mounted, but hidden. `None`: the controller is not among these
/// mounts.
fn hidden_instead(hidden: &[Mount]) -> Option<CgroupError> {
    let mut with_cpu = hidden
        .iter()
        .filter(|mount| mount.version == Version::V2 || mount.has("cpu"));
    let point = with_cpu.next()?.point.display();
    Some(CgroupError::NoController {
        reason: format!("another file system is mounted over {point}; unmount it"),
    })
}

fn no_process(pid: i32) -> CgroupError {
    CgroupError::NoTarget {
        target: pid.to_string(),
        what: "process",
    }
}

fn memberships_of(pid: i32) -> Result<Memberships> {
    Memberships::of(pid).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => no_process(pid),
        _ => {
            let path = format!("/proc/{pid}/cgroup");
            CgroupError::file("read", Path::new(&path), source)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::proc::tests::{memberships_of, mounts_of};

    #[test]
    fn the_root_of_v2_lacks_a_file_that_other_cgroups_have() {
        let folder = tempfile::tempdir().unwrap();
        let is_whole = |version| Hierarchy::at_folder(folder.path(), version).is_whole();
        assert!(is_whole(Version::V2) && is_whole(Version::V1));
        // As in a container.
        fs::write(folder.path().join("cgroup.events"), "populated 0\n").unwrap();
        assert!(!is_whole(Version::V2) && is_whole(Version::V1));
    }

    #[test]
    fn a_cgroup_is_found_below_its_mount_or_not_at_all() {
        for (root, cgroup, expected) in [
            ("/", "/", Some("")),
            ("/", "/a/b", Some("a/b")),
            // Only a part is mounted, as in a container.
            ("/docker/x", "/docker/x", Some("")),
            ("/docker/x", "/docker/x/a", Some("a")),
            ("/docker/x", "/docker/xy", None),
            ("/docker/x", "/other", None),
            ("/docker/x", "/", None),
            // Outside of the cgroup namespace.
            ("/", "/..", None),
            ("/", "/../a", None),
            ("/", "/../../a", None),
            ("/", "/a/../b", None),
            // The mount was made outside of the namespace, one above.
            ("/..", "/..", Some("")),
            ("/..", "/../a", Some("a")),
            ("/..", "/../..", None),
            ("/..", "/../../a", None),
            // The name of the namespace's own root is not known.
            ("/..", "/", None),
            ("/../..", "/../a", None),
        ] {
            let found = below(Path::new(root), Path::new(cgroup));
            let expected = expected.map(PathBuf::from);
            assert_eq!(found, expected, "{cgroup} in a mount of {root}");
        }
    }

    const V1_MOUNTS: &str = "\
        30 25 0:25 / /c/cpu rw - cgroup cgroup rw,cpu\n\
        31 25 0:26 / /c/cpuacct rw - cgroup cgroup rw,cpuacct\n";
    const V1_PLACES: &str = "4:cpuacct:/b\n3:cpu:/a\n0::/\n";

    fn choose(mounts: &str, places: &str) -> Result<Hierarchy> {
        Hierarchy::choose(&mounts_of(mounts), &memberships_of(places))
    }

    fn own_folders(hierarchy: &Hierarchy) -> Result<Vec<PathBuf>> {
        let trees = hierarchy.trees();
        let folder = |tree: &Tree| Ok(tree.mount_point.join(tree.own_place()?));
        trees.map(folder).collect()
    }

    #[test]
    fn v1_has_one_folder_or_two() {
        let apart = choose(V1_MOUNTS, V1_PLACES).unwrap();
        assert_eq!(apart.version(), Version::V1);
        let expected: [&Path; 2] = [Path::new("/c/cpu/a"), Path::new("/c/cpuacct/b")];
        assert_eq!(own_folders(&apart).unwrap(), expected);

        let mounts = "30 25 0:25 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let together = choose(mounts, "3:cpu,cpuacct:/a\n").unwrap();
        let expected: [&Path; 1] = [Path::new("/c/cpu,cpuacct/a")];
        assert_eq!(own_folders(&together).unwrap(), expected);
        assert_eq!(together.cpuacct_folder(Path::new("x")), None);
    }

    fn v2(controllers: &str) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
        let point = folder.path().display();
        let line = format!("40 25 0:30 / {point} rw - cgroup2 none rw\n");
        (folder, line)
    }

    #[test]
    fn other_hierarchies_are_those_without_the_cpu_controller() {
        let others = "\
            32 25 0:27 / /c/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            33 25 0:28 / /c/freezer rw - cgroup cgroup rw,freezer\n";
        let (folder, v2) = v2("cpu\n");
        let others_of = |controllers: &str, mounts: &str| {
            fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
            let mounts = mounts_of(mounts);
            let found = Hierarchy::choose(&mounts, &memberships_of(V1_PLACES)).unwrap();
            let others: Vec<PathBuf> = found.others(&mounts).map(PathBuf::from).collect();
            others
        };
        let v1: [&Path; 2] = [Path::new("/c/systemd"), Path::new("/c/freezer")];
        assert_eq!(others_of("cpu\n", &format!("{others}{v2}")), v1);
        let hybrid = others_of("memory\n", &format!("{V1_MOUNTS}{others}{v2}"));
        assert_eq!(hybrid, [v1[0], v1[1], folder.path()]);
    }

    #[test]
    fn v2_is_chosen_where_it_has_the_controller() {
        let (folder, line) = v2("cpuset cpu io\n");
        let found = choose(&format!("{V1_MOUNTS}{line}"), V1_PLACES).unwrap();
        assert_eq!(found.version(), Version::V2);
        assert_eq!(found.mount_point(), folder.path());

        let (_folder, line) = v2("cpuset memory\n");
        let hybrid = choose(&format!("{V1_MOUNTS}{line}"), V1_PLACES).unwrap();
        assert_eq!(hybrid.version(), Version::V1);
    }

    #[test]
    fn mount_that_shows_this_process_is_chosen() {
        let mounts = "\
            29 25 0:25 /../.. /old rw - cgroup cgroup rw,cpu,cpuacct\n\
            30 25 0:25 / /new rw - cgroup cgroup rw,cpu,cpuacct\n";
        let found = choose(mounts, "3:cpu,cpuacct:/a\n").unwrap();
        assert_eq!(own_folders(&found).unwrap(), [Path::new("/new/a")]);
    }

    #[test]
    fn missing_controller_is_reported_with_a_remedy() {
        let (_folder, v2) = v2("memory\n");
        let only_cpu = "30 25 0:25 / /c/cpu rw - cgroup cgroup rw,cpu\n";
        let only_memory = "30 25 0:25 / /c/memory rw - cgroup cgroup rw,memory\n";
        for (mounts, expected) in [
            (only_cpu, "mount cpuacct"),
            (only_memory, "mount -t cgroup -o cpu"),
            (&v2, "boot without cgroup_disable=cpu"),
            ("", "mount -t cgroup2"),
        ] {
            let error = choose(mounts, V1_PLACES).unwrap_err().to_string();
            assert!(error.starts_with("no cpu controller: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }
}
