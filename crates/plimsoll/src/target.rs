//! The group, cgroup or process that a user names.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_cgroupfs::name::shown;
use plimsoll_daemon::control::handles;

use crate::error::{CommandError, Result};

/// A target of requests, with the handle that tells the owner which process or cgroup is meant, in
/// whatever namespaces the two are.
pub struct Target {
    name: String,
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
                handle: Some(handles::of_process(pid)?),
            });
        }
        let path = hierarchy.resolve(named).ok();
        let Some(path) = path.filter(|_| named.contains('/')) else {
            return Ok(Self::group(named));
        };
        let folder = hierarchy.cpu_folder(&path);
        let cannot_open = CommandError::io(folder.display().to_string());
        Ok(Self {
            name: shown(&path),
            handle: Some(handles::of_cgroup(&folder).map_err(cannot_open)?),
        })
    }

    /// A group that the owner has named.
    pub fn group(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            handle: None,
        }
    }

    /// As requests name it.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The handle that goes with a request.
    pub fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(OwnedFd::as_fd)
    }
}
