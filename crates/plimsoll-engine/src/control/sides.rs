//! The side groups of a host, each kept by a process of its own, and who of
//! them runs the one headroom controller.
//!
//! Each side group leaves a description in the runtime folder. Whoever holds
//! the controller's lock controls them all, so that the largest headroom
//! wins and the allowance is shared by weight. The kernel frees the lock of
//! a process that dies, and the next one takes over.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cgroup::Version;
use crate::error::{EngineError, Result};
use crate::journal::{SIDE_EXTENSION, file_stem};
use crate::knobs::{Headroom, Tolerance};
use crate::runtime::{RuntimeFolder, write_atomically};

/// A side group, as its keeper describes it to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SideDescription {
    pub name: String,
    /// Against the other side groups.
    pub weight: u32,
    /// What it asks for.
    pub headroom: Headroom,
    pub tolerance: Tolerance,
    pub version: Version,
    /// The cgroup whose quota the controller writes, below the mount point.
    pub group: PathBuf,
    /// The most that its quota may be: v1 refuses more than its parents'.
    pub quota_max_ns: u64,
}

impl SideDescription {
    fn path(runtime: &RuntimeFolder, name: &str) -> PathBuf {
        let stem = file_stem(name);
        runtime.path().join(format!("{stem}.{SIDE_EXTENSION}"))
    }

    /// Announces the group to the controller.
    pub fn announce(&self, runtime: &RuntimeFolder) -> Result<()> {
        let path = Self::path(runtime, &self.name);
        write_atomically(&path, self, false).map_err(|source| EngineError::Journal { path, source })
    }

    /// The group is no side group any more.
    pub fn withdraw(runtime: &RuntimeFolder, name: &str) {
        // Gone already is what is wanted; a controller ignores the
        // description of a cgroup that is not there.
        let _ = fs::remove_file(Self::path(runtime, name));
    }

    /// All groups that are announced now. Unreadable ones are skipped: they
    /// stay at the quota that they have.
    pub fn all(runtime: &RuntimeFolder) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(runtime.path()) else {
            return Vec::new();
        };
        let mut sides: Vec<Self> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|found| found == SIDE_EXTENSION)
            })
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
            .collect();
        sides.sort_by(|a, b| a.name.cmp(&b.name));
        sides
    }
}

/// Held by the one process that runs the controller.
#[derive(Debug)]
pub(crate) struct ControllerLock {
    _file: File,
}

impl ControllerLock {
    /// Takes the lock if nobody has it.
    pub fn try_take(runtime: &RuntimeFolder) -> Result<Option<Self>> {
        let path = runtime.path().join("headroom.lock");
        let failed = |source| EngineError::Journal {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// Where the controller publishes its state.
pub(crate) fn state_file(runtime: &Path) -> PathBuf {
    runtime.join("headroom.json")
}
