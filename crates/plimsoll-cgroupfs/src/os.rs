//! System calls of this crate and of the engine: access to files of cgroups and of the runtime
//! folder, and waits.
//!
//! The calls are in one place so that the kernel in memory of `simulated` can replace them. Without
//! that feature each is a call of the standard library.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, DirEntryExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, access};

pub use crate::entry::{Access, Found, Listed};
#[cfg(feature = "simulated")]
use crate::simulated;

/// Size into which most files of a cgroup fit.
const FILE_BYTES: usize = 4096;
/// Mode of created files: only for their user.
const PRIVATE_FILE: u32 = 0o600;
/// Mode of created folders: only for their user.
const PRIVATE_FOLDER: u32 = 0o700;

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
pub fn look(path: &Path) -> io::Result<Found> {
    or_simulated!(kernel => kernel.look(path));
    fs::metadata(path).map(|found| found_of(&found))
}

/// Reads the attributes of the file at a path; does not follow links.
pub fn look_at_link(path: &Path) -> io::Result<Found> {
    or_simulated!(kernel => kernel.look(path));
    fs::symlink_metadata(path).map(|found| found_of(&found))
}

fn found_of(found: &fs::Metadata) -> Found {
    Found {
        is_folder: found.is_dir(),
        is_regular: found.is_file(),
        device: found.dev(),
        inode: found.ino(),
        nr_links: found.nlink(),
        uid: found.uid(),
        mode: found.mode() & 0o7777,
    }
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
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        found.push(Listed {
            path: entry.path(),
            is_folder: entry.file_type()?.is_dir(),
            inode: entry.ino(),
        });
    }
    Ok(found)
}

pub fn create_folder(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folder(path));
    fs::create_dir(path)
}

/// Creates a folder for this user alone, and its missing parents. An existing one is not changed.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folders(path));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_FOLDER).create(path)
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

/// Dispatches to the real file or to the one in memory.
macro_rules! of_file {
    ($inner:expr, $file:ident => $real:expr, $open:ident => $simulated:expr) => {
        match $inner {
            Inner::Real($file) => $real,
            #[cfg(feature = "simulated")]
            Inner::Simulated($open) => $simulated,
        }
    };
}

impl File {
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        or_simulated!(kernel => Ok(Self(Inner::Simulated(kernel.open(path, access)?))));
        let mut options = fs::OpenOptions::new();
        match access {
            Access::Read => options.read(true),
            Access::Write => options.write(true),
            Access::Append => options.read(true).append(true),
            Access::AppendNew => options.read(true).append(true).create_new(true),
            Access::AppendAny => options.read(true).append(true).create(true),
        };
        let file = options.mode(PRIVATE_FILE).open(path)?;
        Ok(Self(Inner::Real(file)))
    }

    pub fn look(&self) -> io::Result<Found> {
        of_file!(&self.0, file => file.metadata().map(|found| found_of(&found)), open => open.look())
    }

    /// Length in bytes.
    pub fn length(&self) -> io::Result<u64> {
        of_file!(&self.0, file => Ok(file.metadata()?.len()), open => open.length())
    }

    pub fn cut(&self, length: u64) -> io::Result<()> {
        of_file!(&self.0, file => file.set_len(length), open => open.cut(length))
    }

    /// Reads the file from the beginning to the end.
    pub fn read_whole(&mut self) -> io::Result<Vec<u8>> {
        self.read_up_to(u64::MAX)
    }

    /// Reads the file from the beginning to the end, or up to a number of bytes: the length of a
    /// file of the kernel is 0, and others may grow.
    pub fn read_up_to(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        of_file!(&mut self.0, file => {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.take(bytes_max).read_to_end(&mut bytes)?;
            Ok(bytes)
        }, open => open.read())
    }

    /// Reads the file's beginning into a buffer. Returns the number of bytes.
    pub fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        of_file!(&self.0, file => file.read_at(buffer, 0), open => open.read_start(buffer))
    }

    /// Writes to the file's beginning in one call, as kernel files require.
    pub fn write_start(&self, text: &str) -> io::Result<()> {
        of_file!(
            &self.0,
            file => file.write_at(text.as_bytes(), 0).map(drop),
            open => open.write_start(text)
        )
    }

    /// Appends text. After an error a part of it may have been written.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        of_file!(&mut self.0, file => file.write_all(text.as_bytes()), open => open.append(text))
    }

    /// Waits until the content is on disk.
    pub fn sync(&self) -> io::Result<()> {
        of_file!(&self.0, file => file.sync_data(), open => open.sync())
    }

    /// Tries to lock the file exclusively for this open file. Returns whether that succeeded.
    pub fn try_lock(&self) -> io::Result<bool> {
        of_file!(&self.0, file => is_locked(file.try_lock()), open => Ok(open.try_lock()))
    }

    /// Returns whether the file is unlocked.
    pub fn is_free(&self) -> io::Result<bool> {
        of_file!(&self.0, file => {
            let free = is_locked(file.try_lock_shared())?;
            if free {
                file.unlock()?;
            }
            Ok(free)
        }, open => Ok(open.is_free()))
    }
}

fn is_locked(tried: Result<(), fs::TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
