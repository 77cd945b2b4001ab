//! Open files of simulated cgroups.

use std::io;
use std::path::{Path, PathBuf};

use super::{Kernel, MOUNT, Write, ask, error};
use crate::entry::Access;

/// Open file of a cgroup, with the cgroup's inode number.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    inode: u64,
}

impl Kernel {
    /// Opens a file of a cgroup. `None`: it is one of the disk, which is to be opened there.
    pub(crate) fn open(&mut self, path: &Path, access: Access) -> io::Result<Option<OpenFile>> {
        self.alive()?;
        if let Ok(below) = path.strip_prefix(MOUNT) {
            let inode = self.cgroups.look(below)?.inode;
            let path = path.to_owned();
            return Ok(Some(OpenFile { path, inode }));
        }
        let creates = matches!(access, Access::AppendNew | Access::AppendAny);
        if creates && !self.disk.real(path).exists() {
            self.begin(Write::Disk, || format!("create {}", path.display()))?;
        }
        Ok(None)
    }

    /// Fails if the cgroup of an open file was removed, even if another has its path.
    fn still_there(&self, path: &Path, inode: u64) -> io::Result<()> {
        let below = path.strip_prefix(MOUNT).unwrap_or(path);
        let found = self.cgroups.look(below);
        if found.is_ok_and(|found| found.inode == inode) {
            return Ok(());
        }
        Err(error(libc::ENODEV))
    }
}

/// Calls the kernel of this thread, which opened the file.
fn asked<R>(act: impl FnOnce(&mut Kernel) -> io::Result<R>) -> io::Result<R> {
    ask(act).unwrap_or_else(|| Err(error(libc::EBADF)))
}

impl OpenFile {
    pub(crate) fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = asked(|kernel| {
            kernel.still_there(&self.path, self.inode)?;
            kernel.read(&self.path)
        })?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    pub(crate) fn write_start(&self, text: &str) -> io::Result<()> {
        asked(|kernel| {
            kernel.still_there(&self.path, self.inode)?;
            kernel.write(&self.path, text)
        })
    }
}
