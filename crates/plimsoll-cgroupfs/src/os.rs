//! System calls of this crate and of the engine: access to files of cgroups and of the runtime
//! folder, and waits.
//!
//! The calls are in one place so that the kernel in memory of `simulated` can replace them. Without
//! that feature each is a call of the standard library.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, access};

use crate::entry;
pub use crate::entry::{Access, FileInfo, Listed};
#[cfg(feature = "simulated")]
use crate::simulated;

/// Size into which most files of a cgroup fit.
const FILE_BYTES: usize = 4096;

/// Returns the answer of the kernel in memory, if this thread has one.
macro_rules! or_simulated {
    ($kernel:ident => $answer:expr) => {
        #[cfg(feature = "simulated")]
        if let Some(answer) = simulated::ask(|$kernel| $answer) {
            return answer;
        }
    };
}

/// Reads a whole file.
///
/// Most kernel files need one call. [`fs::read`] begins with a few bytes because their length is
/// 0, which is slow for thousands of files.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    or_simulated!(kernel => kernel.read(path));
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    let file = fs::File::open(path)?;
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes to an existing file in one call, as kernel files require.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    or_simulated!(kernel => kernel.write(path, text));
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// Reads the attributes of the file at a path; follows links.
pub fn look(path: &Path) -> io::Result<FileInfo> {
    or_simulated!(kernel => kernel.look(path));
    fs::metadata(path).map(|found| FileInfo::of(&found))
}

/// Reads the attributes of the file at a path; does not follow links.
pub fn look_at_link(path: &Path) -> io::Result<FileInfo> {
    or_simulated!(kernel => kernel.look(path));
    fs::symlink_metadata(path).map(|found| FileInfo::of(&found))
}

/// Reads the target of a link.
pub fn read_link(path: &Path) -> io::Result<PathBuf> {
    or_simulated!(kernel => kernel.read_link(path));
    fs::read_link(path)
}

#[must_use]
pub fn exists(path: &Path) -> bool {
    look(path).is_ok()
}

#[must_use]
pub fn is_folder(path: &Path) -> bool {
    look(path).is_ok_and(|found| found.is_folder)
}

pub fn check_writable(path: &Path) -> nix::Result<()> {
    or_simulated!(_kernel => Ok(()));
    access(path, AccessFlags::W_OK)
}

/// Lists the entries of a folder, in no order.
pub fn list(path: &Path) -> io::Result<Vec<Listed>> {
    or_simulated!(kernel => kernel.list(path));
    Listed::all(path, path)
}

pub fn create_folder(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folder(path));
    fs::create_dir(path)
}

/// Creates a folder for this user alone, and its missing parents. An existing one is not changed.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folders(path));
    entry::create_private_folders(path)
}

/// Removes an empty folder, or a cgroup without processes.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.remove_folder(path));
    fs::remove_dir(path)
}

pub fn remove_file(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.remove_file(path));
    fs::remove_file(path)
}

/// Renames a file, replacing one of the new name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.rename(from, to));
    fs::rename(from, to)
}

/// Reads the monotonic clock.
#[must_use]
pub fn now() -> Instant {
    or_simulated!(kernel => kernel.now());
    Instant::now()
}

pub fn sleep(time: Duration) {
    or_simulated!(kernel => kernel.pass(time));
    std::thread::sleep(time);
}

#[derive(Debug)]
pub struct File(Inner);

#[derive(Debug)]
enum Inner {
    Real(fs::File),
    #[cfg(feature = "simulated")]
    Simulated(simulated::OpenFile),
}

impl File {
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        or_simulated!(kernel => Ok(Self(match kernel.open(path, access)? {
            Some(of_cgroup) => Inner::Simulated(of_cgroup),
            None => Inner::Real(access.open(&kernel.disk().real(path))?),
        })));
        access.open(path).map(|file| Self(Inner::Real(file)))
    }

    /// The kernel's file; an error for one of a cgroup in memory.
    fn real(&self) -> io::Result<&fs::File> {
        match &self.0 {
            Inner::Real(file) => Ok(file),
            #[cfg(feature = "simulated")]
            Inner::Simulated(_) => Err(simulated::error(libc::EINVAL)),
        }
    }

    pub fn look(&self) -> io::Result<FileInfo> {
        self.real()?.metadata().map(|found| FileInfo::of(&found))
    }

    /// Length in bytes.
    pub fn length(&self) -> io::Result<u64> {
        Ok(self.real()?.metadata()?.len())
    }

    pub fn cut(&self, length: u64) -> io::Result<()> {
        let file = self.real()?;
        or_simulated!(kernel => kernel.cut(file, length));
        file.set_len(length)
    }

    /// Reads the file from the beginning to the end.
    pub fn read_whole(&mut self) -> io::Result<Vec<u8>> {
        self.read_up_to(u64::MAX)
    }

    /// Reads the file from the beginning to the end, or up to a number of bytes: the length of a
    /// file of the kernel is 0, and others may grow.
    pub fn read_up_to(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = self.real()?;
        let mut bytes = Vec::new();
        file.rewind()?;
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the file's beginning into a buffer. Returns the number of bytes.
    pub fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Inner::Real(file) => file.read_at(buffer, 0),
            #[cfg(feature = "simulated")]
            Inner::Simulated(file) => file.read_start(buffer),
        }
    }

    /// Writes to the file's beginning in one call, as kernel files require.
    pub fn write_start(&self, text: &str) -> io::Result<()> {
        match &self.0 {
            Inner::Real(file) => file.write_at(text.as_bytes(), 0).map(drop),
            #[cfg(feature = "simulated")]
            Inner::Simulated(file) => file.write_start(text),
        }
    }

    /// Appends text. After an error a part of it may have been written.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        let mut file = self.real()?;
        or_simulated!(kernel => kernel.append(file, text));
        file.write_all(text.as_bytes())
    }

    /// Waits until the content is on disk.
    pub fn sync(&self) -> io::Result<()> {
        or_simulated!(kernel => kernel.alive());
        self.real()?.sync_data()
    }

    /// Tries to lock the file exclusively for this open file. Returns whether that succeeded.
    pub fn try_lock(&self) -> io::Result<bool> {
        is_locked(self.real()?.try_lock())
    }

    /// Returns whether the file is unlocked.
    pub fn is_free(&self) -> io::Result<bool> {
        let file = self.real()?;
        let free = is_locked(file.try_lock_shared())?;
        if free {
            file.unlock()?;
        }
        Ok(free)
    }
}

fn is_locked(tried: Result<(), fs::TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
