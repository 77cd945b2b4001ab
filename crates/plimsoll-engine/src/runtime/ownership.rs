//! Ownership of a cgroup tree.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use crate::error::Result;
use plimsoll_cgroupfs::{CgroupError, Hierarchy};

/// Right to decide and to write below the base of a hierarchy. The kernel frees it with the
/// process, however that ends.
///
/// It is a lock on the base's `cgroup.procs`, so that processes of containers that share the tree
/// see each other, whatever other folders they have. The lock requires a file open for writing, so
/// a process without write access to the tree cannot block an owner. (`flock` on the folder would
/// allow any process to do so.)
#[derive(Debug)]
pub struct Ownership {
    _file: File,
}

impl Ownership {
    /// Takes the ownership. `None`: another process has it.
    ///
    /// # Errors
    /// When the tree is not writable.
    pub fn take(hierarchy: &Hierarchy) -> Result<Option<Self>> {
        hierarchy.check_writable(hierarchy.base())?;
        let file = Self::open(hierarchy)?;
        let whole = libc::flock {
            // The constant is one of 0, 1 and 2.
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole)) {
            Ok(_) => Ok(Some(Self { _file: file })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => {
                Err(CgroupError::file("lock", &Self::path(hierarchy), error.into()).into())
            }
        }
    }

    pub(crate) fn open(hierarchy: &Hierarchy) -> Result<File> {
        let path = Self::path(hierarchy);
        let file = OpenOptions::new().write(true).open(&path);
        Ok(file.map_err(|source| CgroupError::file("lock", &path, source))?)
    }

    fn path(hierarchy: &Hierarchy) -> PathBuf {
        hierarchy.cpu_folder(hierarchy.base()).join("cgroup.procs")
    }
}
