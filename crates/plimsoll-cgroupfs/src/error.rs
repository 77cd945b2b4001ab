//! Errors of kernel files.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A kernel file, a cgroup or the controller could not be used. One readable line each.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// A kernel file or folder could not be used.
    #[error("{path}: cannot {action}: {source}", path = path.display())]
    File {
        /// The attempt, such as `write "max 100000"`.
        action: String,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A kernel file holds something unexpected.
    #[error("{path}: cannot make sense of `{text}`", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its text.
        text: String,
    },
    /// No cpu controller is available.
    #[error("no cpu controller: {reason}")]
    NoController {
        /// The controllers that were found, and the remedy.
        reason: String,
    },
    /// Neither root nor a delegated subtree.
    #[error("no permission to create or change cgroups below {path}: {help}", path = path.display())]
    NoPermission {
        /// The folder without permission.
        path: PathBuf,
        /// The step that gives the permission.
        help: String,
    },
    /// v2: the cpu controller cannot be had for the children of a cgroup that has processes.
    #[error("{path}: holds process {pid} itself; with the cpu controller for the cgroups in it, cgroup v2 would make it threaded, and these would take no processes any more; move its processes into a cgroup of their own in it first", path = path.display())]
    HasProcesses {
        /// The cgroup's folder.
        path: PathBuf,
        /// One of its processes.
        pid: i32,
    },
    /// v2: a process would make a cgroup threaded whose children have a controller.
    #[error("{path}: gives controllers to the cgroups in it, and takes no process itself", path = path.display())]
    HasChildren {
        /// The cgroup's folder.
        path: PathBuf,
    },
    /// v2: the cgroup is of the type "domain invalid".
    #[error("{path}: is in a threaded subtree and takes no processes (`domain invalid` in its cgroup.type)", path = path.display())]
    InThreadedSubtree {
        /// The cgroup's folder.
        path: PathBuf,
    },
    /// There is no such cgroup or process.
    #[error("{target}: no such {what}")]
    NoTarget {
        /// The name that was given.
        target: String,
        /// The kind of target.
        what: &'static str,
    },
    /// A cgroup outside of what is mounted, or of this process's cgroup namespace.
    #[error(
        "{target}: its cgroup {cgroup} cannot be found below {mount_point}; try from outside of this container or cgroup namespace",
        cgroup = cgroup.display(),
        mount_point = mount_point.display()
    )]
    NotVisible {
        /// The process that is in it.
        target: String,
        /// The cgroup as in `/proc/PID/cgroup`.
        cgroup: PathBuf,
        /// The mount point of the hierarchy.
        mount_point: PathBuf,
    },
}

impl CgroupError {
    /// A failed use of a kernel file.
    pub fn file(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::File {
            action: action.into(),
            path: path.to_owned(),
            source,
        }
    }

    /// The kernel's error number for a failed use of a file.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::File { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Returns whether a cgroup vanished: its folder, or the device of an open file.
    pub fn is_gone(&self) -> bool {
        matches!(self.os_error(), Some(libc::ENOENT | libc::ENODEV))
    }
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, CgroupError>;
