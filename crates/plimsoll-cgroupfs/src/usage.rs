//! The CPU time of one cgroup, from a file that stays open.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use crate::error::{CgroupError, Result};
use crate::stat::CpuStat;
use crate::version::Version;

/// No `cpu.stat` is longer.
const FILE_BYTES_MAX: usize = 4096;

/// A counter of CPU time in a kernel file that stays open.
#[derive(Debug)]
pub struct UsageCounter {
    file: File,
    path: PathBuf,
    version: Version,
}

impl UsageCounter {
    /// Opens the counter of a cgroup: `cpuacct.usage` of v1, `cpu.stat` of v2.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: PathBuf, version: Version) -> Result<Self> {
        let file = File::open(&path).map_err(|source| CgroupError::file("open", &path, source))?;
        Ok(Self {
            file,
            path,
            version,
        })
    }

    /// Nanoseconds so far.
    ///
    /// # Errors
    /// When it cannot be read or holds something else.
    pub fn read_ns(&self) -> Result<u64> {
        let mut buffer = [0; FILE_BYTES_MAX];
        let length = self
            .file
            .read_at(&mut buffer, 0)
            .map_err(|source| CgroupError::file("read", &self.path, source))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let value = match self.version {
            Version::V1 => text.trim().parse().ok(),
            Version::V2 => CpuStat::parse_usage_ns(&text),
        };
        value.ok_or_else(|| CgroupError::Unreadable {
            path: self.path.clone(),
            text: text.into_owned(),
        })
    }
}
