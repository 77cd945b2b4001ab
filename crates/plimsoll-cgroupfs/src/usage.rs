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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_open_counter_follows_its_file_of_either_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage");
        for (version, first, second) in [
            (Version::V1, "1000\n", "25000\n"),
            (
                Version::V2,
                "usage_usec 1\n",
                "usage_usec 25\nuser_usec 3\n",
            ),
        ] {
            fs::write(&path, first).unwrap();
            let counter = UsageCounter::open(path.clone(), version).unwrap();
            assert_eq!(counter.read_ns().unwrap(), 1_000);
            fs::write(&path, second).unwrap();
            assert_eq!(counter.read_ns().unwrap(), 25_000);
            fs::write(&path, "much").unwrap();
            let error = counter.read_ns().unwrap_err().to_string();
            assert!(error.ends_with("cannot make sense of `much`"), "{error}");
        }
        let gone = UsageCounter::open(folder.path().join("gone"), Version::V2).unwrap_err();
        assert!(gone.is_gone());
    }
}
