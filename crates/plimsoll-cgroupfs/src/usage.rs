//! Counter of a cgroup's CPU time, with a file that stays open.

use std::path::PathBuf;

use crate::error::{CgroupError, Result};
use crate::os::{Access, File};
use crate::stat::CpuStat;
use crate::version::Version;

/// Number of bytes read from a counter's file. `cpu.stat` is longer, but begins with the usage
/// (`cgroup_base_stat_cputime_show()` in kernel/cgroup/rstat.c), and a reader pays for its buffer.
const READ_BYTES: usize = 64;

/// Counter of CPU time in a kernel file that stays open.
#[derive(Debug)]
pub struct UsageCounter {
    file: File,
    path: PathBuf,
    version: Version,
}

impl UsageCounter {
    /// Opens the counter of a cgroup: `cpuacct.usage` of v1, `cpu.stat` of v2.
    pub fn open(path: PathBuf, version: Version) -> Result<Self> {
        let file = File::open(&path, Access::Read)
            .map_err(|source| CgroupError::file("open", &path, source))?;
        Ok(Self {
            file,
            path,
            version,
        })
    }

    /// Reads the CPU time in nanoseconds.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else.
    pub fn read_ns(&self) -> Result<u64> {
        let mut buffer = [0; READ_BYTES];
        let length = self
            .file
            .read_start(&mut buffer)
            .map_err(|source| CgroupError::file("read", &self.path, source))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        // The last line may go on.
        let lines = match text.rfind('\n') {
            Some(end) if length == READ_BYTES => &text[..end],
            _ => &text,
        };
        let value = match self.version {
            Version::V1 => lines.trim().parse().ok(),
            Version::V2 => CpuStat::parse_usage_ns(lines),
        };
        value.ok_or_else(|| CgroupError::Unreadable {
            path: self.path.clone(),
            text: text.into_owned(),
        })
    }
}
