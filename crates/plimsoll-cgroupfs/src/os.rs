//! The calls to the operating system through which the engine reaches files and waits: those of
//! cgroups and those of the runtime folder.
//!
//! They are in one place so that the kernel in memory of `simulated` can answer them. Without that
//! feature each is one call of the standard library.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, access};

#[cfg(feature = "simulated")]
use crate::simulated;

/// Most files of a cgroup fit into so many bytes.
const FILE_BYTES: usize = 4096;
/// Files that are created are for their user alone.
const PRIVATE_FILE: u32 = 0o600;
/// The same for folders.
const PRIVATE_FOLDER: u32 = 0o700;

/// Returns what the kernel in memory answers, where this thread has one.
macro_rules! or_simulated {
    ($kernel:ident => $answer:expr) => {
        #[cfg(feature = "simulated")]
        if let Some(answer) = simulated::ask(|$kernel| $answer) {
            return answer;
        }
    };
}

/// The attributes of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The file system that it is in.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// A cgroup's folder has 2, and one more for each that is directly below.
    pub nr_links: u64,
    /// The user that owns it.
    pub uid: u32,
}

/// Something in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// The ways to open a file. All of them allow reading, but `Write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// As it is.
    Read,
    /// To be written in place.
    Write,
    /// To be written at its end.
    Append,
    /// The same, and it must not be there yet.
    AppendNew,
    /// The same, and it is created if it is not there.
    AppendAny,
}

/// The whole of a file.
///
/// Most of the kernel's files fit into one call. [`fs::read`] believes their length of 0 and begins
/// with a few bytes, which is dear for thousands of them.
///
/// # Errors
/// As `read(2)`.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    or_simulated!(kernel => kernel.read(path));
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    let file = fs::File::open(path)?;
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes to a file that is there in one call, as the kernel's files want it.
///
/// # Errors
/// As `write(2)`.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    or_simulated!(kernel => kernel.write(path, text));
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())
}

/// The attributes of the file at a path. Links are followed.
///
/// # Errors
/// As `stat(2)`.
pub fn look(path: &Path) -> io::Result<Found> {
    or_simulated!(kernel => kernel.look(path));
    fs::metadata(path).map(|found| found_of(&found))
}

/// The attributes of the file at a path. Links are not followed.
///
/// # Errors
/// As `lstat(2)`.
pub fn look_at_link(path: &Path) -> io::Result<Found> {
    or_simulated!(kernel => kernel.look(path));
    fs::symlink_metadata(path).map(|found| found_of(&found))
}

fn found_of(found: &fs::Metadata) -> Found {
    Found {
        is_folder: found.is_dir(),
        device: found.dev(),
        inode: found.ino(),
        nr_links: found.nlink(),
        uid: found.uid(),
    }
}

/// Whether anything is at a path.
#[must_use]
pub fn exists(path: &Path) -> bool {
    look(path).is_ok()
}

/// Whether a folder is at a path.
#[must_use]
pub fn is_folder(path: &Path) -> bool {
    look(path).is_ok_and(|found| found.is_folder)
}

/// Whether this process may write to a file or folder.
///
/// # Errors
/// As `access(2)`.
pub fn check_writable(path: &Path) -> nix::Result<()> {
    or_simulated!(_kernel => Ok(()));
    access(path, AccessFlags::W_OK)
}

/// The entries of a folder, in no order.
///
/// # Errors
/// As `getdents(2)`.
pub fn list(path: &Path) -> io::Result<Vec<Listed>> {
    or_simulated!(kernel => kernel.list(path));
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        found.push(Listed {
            path: entry.path(),
            is_folder: entry.file_type()?.is_dir(),
        });
    }
    Ok(found)
}

/// Makes a folder.
///
/// # Errors
/// As `mkdir(2)`.
pub fn create_folder(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folder(path));
    fs::create_dir(path)
}

/// Makes a folder for this user alone, and those above it. One that is there stays as it is.
///
/// # Errors
/// As `mkdir(2)`.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.create_folders(path));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Removes an empty folder, or a cgroup without processes.
///
/// # Errors
/// As `rmdir(2)`.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.remove_folder(path));
    fs::remove_dir(path)
}

/// Removes a file.
///
/// # Errors
/// As `unlink(2)`.
pub fn remove_file(path: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.remove_file(path));
    fs::remove_file(path)
}

/// Renames a file; one of the new name is replaced.
///
/// # Errors
/// As `rename(2)`.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    or_simulated!(kernel => kernel.rename(from, to));
    fs::rename(from, to)
}

/// The time.
#[must_use]
pub fn now() -> Instant {
    or_simulated!(kernel => kernel.now());
    Instant::now()
}

/// Waits.
pub fn sleep(time: Duration) {
    or_simulated!(kernel => kernel.sleep(time));
    std::thread::sleep(time);
}

/// An open file.
#[derive(Debug)]
pub struct File(Inner);

#[derive(Debug)]
enum Inner {
    Real(fs::File),
    #[cfg(feature = "simulated")]
    Simulated(simulated::OpenFile),
}

/// Asks the kernel's file, or the one in memory.
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
    /// Opens a file.
    ///
    /// # Errors
    /// As `open(2)`.
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

    /// Its attributes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn look(&self) -> io::Result<Found> {
        of_file!(&self.0, file => file.metadata().map(|found| found_of(&found)), open => open.look())
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn length(&self) -> io::Result<u64> {
        of_file!(&self.0, file => Ok(file.metadata()?.len()), open => open.length())
    }

    /// Cuts it.
    ///
    /// # Errors
    /// As `ftruncate(2)`.
    pub fn cut(&self, length: u64) -> io::Result<()> {
        of_file!(&self.0, file => file.set_len(length), open => open.cut(length))
    }

    /// Its whole text, from the beginning.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn read_whole(&mut self) -> io::Result<Vec<u8>> {
        of_file!(&mut self.0, file => {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        }, open => open.read())
    }

    /// As much of its beginning as fits. Returns how much that is.
    ///
    /// # Errors
    /// As `pread(2)`.
    pub fn read_start(&self, buffer: &mut [u8]) -> io::Result<usize> {
        of_file!(&self.0, file => file.read_at(buffer, 0), open => open.read_start(buffer))
    }

    /// Writes to its beginning in one call, as the kernel's files want it.
    ///
    /// # Errors
    /// As `pwrite(2)`.
    pub fn write_start(&self, text: &str) -> io::Result<()> {
        of_file!(
            &self.0,
            file => file.write_at(text.as_bytes(), 0).map(drop),
            open => open.write_start(text)
        )
    }

    /// Writes at its end.
    ///
    /// # Errors
    /// As `write(2)`; then half of it may be there.
    pub fn append(&mut self, text: &str) -> io::Result<()> {
        of_file!(&mut self.0, file => file.write_all(text.as_bytes()), open => open.append(text))
    }

    /// Waits until it is on disk.
    ///
    /// # Errors
    /// As `fdatasync(2)`.
    pub fn sync(&self) -> io::Result<()> {
        of_file!(&self.0, file => file.sync_data(), open => open.sync())
    }

    /// Locks it for this open file alone. Returns whether that was possible at once.
    ///
    /// # Errors
    /// As `flock(2)`.
    pub fn try_lock(&self) -> io::Result<bool> {
        of_file!(&self.0, file => is_locked(file.try_lock()), open => Ok(open.try_lock()))
    }

    /// Whether nobody has locked it.
    ///
    /// # Errors
    /// As `flock(2)`.
    pub fn is_free(&self) -> io::Result<bool> {
        of_file!(&self.0, file => {
            let free = is_locked(file.try_lock_shared())?;
            if free {
                file.unlock()?;
            }
            Ok(free)
        }, open => Ok(open.is_free()))
    }

    /// The same open file, with the same lock.
    ///
    /// # Errors
    /// When this process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(of_file!(
            &self.0,
            file => Inner::Real(file.try_clone()?),
            open => Inner::Simulated(open.clone())
        )))
    }
}

fn is_locked(tried: Result<(), fs::TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
