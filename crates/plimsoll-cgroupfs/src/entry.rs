//! Types of file access, shared by the real and the simulated kernel.

use std::path::PathBuf;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub is_folder: bool,
    /// Device number of the file system.
    pub device: u64,
    pub inode: u64,
    /// Number of links: 2 for a cgroup's folder, and one more for each child.
    pub nr_links: u64,
    /// Owner.
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: PathBuf,
    pub is_folder: bool,
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
