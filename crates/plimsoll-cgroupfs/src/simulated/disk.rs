//! Disk of the simulated kernel: a scratch folder, into whose files faults are injected.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Kernel, Write, ask, error};
use crate::entry::Listed;

#[derive(Debug)]
pub struct Disk(TempDir);

/// Open file of a cgroup, with the cgroup's inode number.
#[derive(Debug)]
pub struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) inode: u64,
}

impl Disk {
    pub(super) fn new() -> Self {
        // In memory where there is such a folder.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(folder.expect("a scratch folder"))
    }

    pub(crate) fn real(&self, path: &Path) -> PathBuf {
        self.0.path().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Lists all files.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut folders = vec![PathBuf::from("/")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let found = Listed::all(&self.real(&folder), &folder);
            for found in found.expect("a folder of the scratch folder") {
                let paths = if found.is_folder {
                    &mut folders
                } else {
                    &mut files
                };
                paths.push(found.path);
            }
        }
        files
    }

    /// Reads a file as another program; `None`: there is no such file, or it is no text.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<String> {
        fs::read_to_string(self.real(path)).ok()
    }

    /// Writes a file as another program.
    pub fn others_write(&self, path: &Path, text: &str) {
        let path = self.real(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(path, text))
            .expect("a file of the scratch folder");
    }

    /// Removes a file, if it is there, as another program.
    pub fn forget(&self, path: &Path) {
        let _ = fs::remove_file(self.real(path));
    }
}

impl Kernel {
    /// Counts a write that succeeds on a full disk, and fails if another fault is due.
    pub(super) fn begin_freeing(&mut self, what: impl FnOnce() -> String) -> io::Result<()> {
        let is_full = std::mem::take(&mut self.faults.disk_is_full);
        let begun = self.begin(Write::Disk, what);
        self.faults.disk_is_full = is_full;
        begun
    }

    pub(crate) fn cut(&mut self, file: &fs::File, length: u64) -> io::Result<()> {
        self.begin_freeing(|| format!("{file:?} cut to {length}"))?;
        file.set_len(length)
    }

    pub(crate) fn append(&mut self, mut file: &fs::File, text: &str) -> io::Result<()> {
        let begun = self.begin(Write::Disk, || format!("{file:?} << {text}"));
        // A death or a full disk writes half of the text.
        let length = match &begun {
            Ok(()) => text.len(),
            Err(_) if self.dies || self.faults.disk_is_full => text.len() / 2,
            Err(_) => 0,
        };
        file.write_all(&text.as_bytes()[..length])?;
        begun
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
