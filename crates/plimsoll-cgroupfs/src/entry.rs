//! Types of file access and of events, shared by the real and the simulated kernel.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, DirEntryExt as _, MetadataExt as _, OpenOptionsExt as _,
};
use std::path::{Path, PathBuf};

use inotify::WatchDescriptor;

/// Mode of created files: only for their user.
const PRIVATE_FILE: u32 = 0o600;
/// Mode of created folders: only for their user.
const PRIVATE_FOLDER: u32 = 0o700;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo {
    pub is_folder: bool,
    /// Neither a folder nor a link, pipe, socket or device.
    pub is_regular: bool,
    /// Device number of the file system.
    pub device: u64,
    pub inode: u64,
    /// Number of links: 2 for a cgroup's folder, and one more for each child.
    pub nr_links: u64,
    /// Owner.
    pub uid: u32,
    /// Permissions, as of `chmod`.
    pub mode: u32,
}

impl FileInfo {
    pub(crate) fn of(found: &fs::Metadata) -> Self {
        Self {
            is_folder: found.is_dir(),
            is_regular: found.is_file(),
            device: found.dev(),
            inode: found.ino(),
            nr_links: found.nlink(),
            uid: found.uid(),
            mode: found.mode() & 0o7777,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub is_folder: bool,
    pub inode: u64,
}

impl Listed {
    /// Lists the entries of a folder as those of the folder `shown`.
    pub(crate) fn all(folder: &Path, shown: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            found.push(Self {
                path: shown.join(entry.file_name()),
                is_folder: entry.file_type()?.is_dir(),
                inode: entry.ino(),
            });
        }
        Ok(found)
    }
}

/// The ways to open a file. All but `Write` allow reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Writing in place.
    Write,
    /// Writing at the end.
    Append,
    /// Writing at the end of a new file; fails if the file exists.
    AppendNew,
    /// Writing at the end; creates the file if it does not exist.
    AppendAny,
}

impl Access {
    pub(crate) fn open(self, path: &Path) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        match self {
            Self::Read => options.read(true),
            Self::Write => options.write(true),
            Self::Append => options.read(true).append(true),
            Self::AppendNew => options.read(true).append(true).create_new(true),
            Self::AppendAny => options.read(true).append(true).create(true),
        };
        options.mode(PRIVATE_FILE).open(path)
    }
}

pub(crate) fn create_private_folders(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_FOLDER).create(path)
}

/// Kind of events that a queue reports of the folders that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Folders inside that come and go.
    Folders,
    /// Files inside that are written to.
    Writes,
}

/// Watch of a folder, which outlives neither the folder nor the queue, or of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchId(pub(crate) Id);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Real(WatchDescriptor),
    #[cfg(feature = "simulated")]
    Simulated(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The queue ran over: events are missing.
    Lost,
    /// The watched folder is gone, and the watch with it. That of a cgroup's file stays.
    Ended(WatchId),
    /// The watched file has changed.
    Changed(WatchId),
    /// A folder of this name has come into the watched one.
    Came(WatchId, OsString),
    /// A folder of this name has left the watched one.
    Went(WatchId, OsString),
    /// A file of this name in the watched folder was written to.
    Written(WatchId, OsString),
    /// Another event, of no interest.
    Other,
}

#[cfg(feature = "simulated")]
impl WatchId {
    pub(crate) fn simulated(number: u64) -> Self {
        Self(Id::Simulated(number))
    }
}
