//! Errors of kernel files.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Failed use of a kernel file, a cgroup or the controller. Each text is one line.
#[derive(Debug, Error)]
pub enum CgroupError {
    #[error("{path}: cannot {action}: {source}", path = path.display())]
    File {
        /// The attempt, such as `write "max 100000"`.
        action: String,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path}: cannot make sense of `{text}`", path = path.display())]
    Unreadable { path: PathBuf, text: String },
    #[error("no cpu controller: {reason}")]
    NoController {
        /// The controllers that were found, and the remedy.
        reason: String,
    },
    /// Lack of permission: the process is neither root nor in a subtree delegated to it.
    #[error("no permission to create or change cgroups below {path}: {help}", path = path.display())]
    NoPermission {
        path: PathBuf,
        /// The step that gives the permission.
        help: String,
    },
    #[error("{path}: holds process {pid} itself; with the cpu controller for the cgroups in it, cgroup v2 would make it threaded, and these would take no processes any more; move its processes into another cgroup first", path = path.display())]
    HasProcesses { path: PathBuf, pid: i32 },
    #[error("{path}: gives controllers to the cgroups in it, and takes no process itself", path = path.display())]
    HasChildren { path: PathBuf },
    #[error("{path}: is in a threaded subtree and takes no processes (`domain invalid` in its cgroup.type)", path = path.display())]
    InThreadedSubtree { path: PathBuf },
    #[error("{path}: cannot create: a cgroup above has reached its cgroup.max.descendants or cgroup.max.depth", path = path.display())]
    TooMany { path: PathBuf },
    #[error("{target}: no such {what}")]
    NoTarget {
        target: String,
        /// Kind of target, such as `cgroup`.
        what: &'static str,
    },
    #[error(
        "{target}: its cgroup {cgroup} cannot be found below {mount_point}; try from outside of this container or cgroup namespace",
        cgroup = cgroup.display(),
        mount_point = mount_point.display()
    )]
    NotVisible {
        /// Process that is in the cgroup.
        target: String,
        /// Path as in `/proc/PID/cgroup`.
        cgroup: PathBuf,
        mount_point: PathBuf,
    },
}

impl CgroupError {
    pub fn file(action: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::File {
            action: action.into(),
            path: path.to_owned(),
            source,
        }
    }

    /// A cgroup cannot be created.
    pub(crate) fn creation(path: &Path, source: io::Error) -> Self {
        match source.raw_os_error() {
            // `cgroup_mkdir` in kernel/cgroup/cgroup.c.
            Some(libc::EAGAIN) => Self::TooMany {
                path: path.to_owned(),
            },
            _ => Self::file("create", path, source),
        }
    }

    /// Returns the kernel's error number for a failed use of a file.
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

pub type Result<T> = std::result::Result<T, CgroupError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_number_of_cgroups_is_named() {
        let failed = |number| {
            let source = io::Error::from_raw_os_error(number);
            CgroupError::creation(Path::new("/a/b"), source).to_string()
        };
        let too_many = failed(libc::EAGAIN);
        assert!(too_many.contains("/a/b: cannot create"), "{too_many}");
        assert!(too_many.contains("cgroup.max.descendants"), "{too_many}");
        assert!(failed(libc::ENOSPC).contains("No space left"));
    }
}
