//! Types of file access and of events, shared by the real and the simulated kernel.

use std::ffi::OsString;
use std::path::PathBuf;

use inotify::WatchDescriptor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub is_folder: bool,
    pub inode: u64,
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

/// Kind of events that a queue reports of the folders that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Folders inside that come and go.
    Folders,
    /// Files inside that are written to.
    Writes,
}

/// Watch of a folder, which outlives neither the folder nor the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatchId(pub(crate) Id);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    Real(WatchDescriptor),
    #[cfg(feature = "simulated")]
    Simulated(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The queue ran over: events are missing.
    Lost,
    /// The watched folder is gone, and the watch with it.
    Ended(WatchId),
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
