//! Types of file access, shared by the real and the simulated kernel.

use std::path::PathBuf;

/// The attributes of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Whether it is a folder.
    pub is_folder: bool,
    /// The device number of its file system.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its number of links: 2 for a cgroup's folder, and one more for each child.
    pub nr_links: u64,
    /// The user that owns it.
    pub uid: u32,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// The ways to open a file. All but `Write` allow reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For reading only.
    Read,
    /// For writing in place.
    Write,
    /// For writing at the end.
    Append,
    /// The same; fails if the file exists.
    AppendNew,
    /// The same; creates the file if it does not exist.
    AppendAny,
}
