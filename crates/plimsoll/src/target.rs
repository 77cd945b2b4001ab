//! The group, cgroup or process that a user names.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use std::path::{Component, Path, PathBuf};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_cgroupfs::name::{path_of, shown, text_of};
use plimsoll_daemon::control::handles;

use crate::error::{CommandError, Result};

/// A target of requests, with the handle that tells the owner which process or cgroup is meant, in
/// whatever namespaces the two are.
pub struct Target {
    name: String,
    /// The path of a cgroup, below the mount point.
    path: Option<PathBuf>,
    handle: Option<OwnedFd>,
}

impl Target {
    /// Finds what a user names: a pid, the path of a cgroup, or a group.
    ///
    /// # Errors
    /// When there is no such process, or it cannot be opened.
    pub fn find(hierarchy: &Hierarchy, named: &str) -> Result<Self> {
        if let Ok(pid) = named.parse() {
            return Ok(Self {
                name: named.to_owned(),
                path: None,
                handle: Some(handles::of_process(pid)?),
            });
        }
        let Some(path) = cgroup_at(hierarchy, named).filter(|_| named.contains('/')) else {
            return Ok(Self::group(named));
        };
        let folder = hierarchy.cpu_folder(&path);
        let cannot_open = CommandError::io(folder.display().to_string());
        Ok(Self {
            name: shown(&path),
            path: Some(path),
            handle: Some(handles::of_cgroup(&folder).map_err(cannot_open)?),
        })
    }

    /// A group that the owner has named.
    pub fn group(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            path: None,
            handle: None,
        }
    }

    /// Name of the target in requests.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The path of a cgroup, below the mount point.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The handle that goes with a request.
    pub fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(OwnedFd::as_fd)
    }
}

/// The cgroup of a path, which may lead there through links, such as systemd's from `cpu` to
/// `cpu,cpuacct`. A path with `..` denotes another cgroup than it shows.
fn cgroup_at(hierarchy: &Hierarchy, named: &str) -> Option<PathBuf> {
    let path = path_of(named);
    let has_dots = path.components().any(|it| it == Component::ParentDir);
    let real = fs::canonicalize(&path).ok().filter(|_| !has_dots);
    let real = real.and_then(|real| hierarchy.resolve(&text_of(real)).ok());
    real.or_else(|| hierarchy.resolve(named).ok())
}
