//! Quota, period and burst.

use std::path::PathBuf;

use crate::error::{CgroupError, Result};
use crate::files;
use crate::group::CpuGroup;
use crate::os;
use crate::version::Version;

/// Quota, period and burst of a cgroup, in the unit of the kernel's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMax {
    /// Runtime per period; `None`: unlimited.
    pub quota_usec: Option<u64>,
    pub period_usec: u64,
    /// Unused quota that may be saved up; 0: none.
    pub burst_usec: u64,
}

impl CpuMax {
    /// Returns an unlimited one, with the kernel's default period.
    pub fn unlimited() -> Self {
        Self {
            quota_usec: None,
            period_usec: 100_000,
            burst_usec: 0,
        }
    }

    /// Returns the rate in ppm of one CPU; `None`: unlimited.
    pub fn rate_ppm(&self) -> Option<u64> {
        let ppm = u128::from(self.quota_usec?) * 1_000_000 / u128::from(self.period_usec.max(1));
        Some(u64::try_from(ppm).unwrap_or(u64::MAX))
    }

    /// Parses v2's `cpu.max`, which does not contain the burst.
    fn parse(text: &str) -> Option<Self> {
        let (quota, period) = text.split_once(' ')?;
        let quota_usec = match quota {
            "max" => None,
            quota => Some(quota.parse().ok()?),
        };
        Some(Self {
            quota_usec,
            period_usec: period.parse().ok()?,
            burst_usec: 0,
        })
    }

    /// Takes the value of a kernel file of quota, period or burst. Returns whether the file is one
    /// of them and its text is valid.
    pub fn take_text(&mut self, file: &str, text: &str) -> bool {
        let number = text.parse::<u64>().ok();
        match (file, number) {
            ("cpu.max", _) => {
                let Some(read) = Self::parse(text) else {
                    return false;
                };
                (self.quota_usec, self.period_usec) = (read.quota_usec, read.period_usec);
            }
            // -1: unlimited.
            ("cpu.cfs_quota_us", quota_usec) => self.quota_usec = quota_usec,
            ("cpu.cfs_period_us", Some(usec)) => self.period_usec = usec,
            ("cpu.cfs_burst_us" | "cpu.max.burst", Some(usec)) => self.burst_usec = usec,
            _ => return false,
        }
        true
    }

    fn quota_text(&self, version: Version) -> String {
        let unlimited = match version {
            Version::V1 => "-1",
            Version::V2 => "max",
        };
        self.quota_usec
            .map_or_else(|| unlimited.to_owned(), |usec| usec.to_string())
    }
}

impl CpuGroup {
    /// Returns whether the cgroup can have a burst (Linux 5.14 and later).
    pub fn has_burst(&self) -> bool {
        os::exists(&self.burst_file())
    }

    fn burst_file(&self) -> PathBuf {
        self.cpu_file(match self.version() {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        })
    }

    /// Reads the cgroup's quota, period and burst.
    pub fn read_cpu_max(&self) -> Result<CpuMax> {
        let mut found = match self.version() {
            Version::V1 => {
                let quota: i64 = files::read_number(&self.cpu_file("cpu.cfs_quota_us"))?;
                CpuMax {
                    quota_usec: u64::try_from(quota).ok(),
                    period_usec: files::read_number(&self.cpu_file("cpu.cfs_period_us"))?,
                    burst_usec: 0,
                }
            }
            Version::V2 => {
                let path = self.cpu_file("cpu.max");
                let text = files::read_text(&path)?;
                CpuMax::parse(&text).ok_or(CgroupError::Unreadable { path, text })?
            }
        };
        if self.has_burst() {
            found.burst_usec = files::read_number(&self.burst_file())?;
        }
        Ok(found)
    }

    /// Returns the writes from `old` to `new` in an order that the kernel accepts: it refuses a
    /// burst above the quota at every step, and v1 a child's rate above its parent's. So burst is
    /// lowered first and raised last, and no step in between has a higher rate than the first or
    /// the last.
    pub fn cpu_max_steps(&self, old: &CpuMax, new: &CpuMax) -> Vec<(PathBuf, String)> {
        let mut steps = Vec::new();
        let new_burst = if self.has_burst() { new.burst_usec } else { 0 };
        let low_burst = new_burst.min(old.burst_usec);
        if low_burst < old.burst_usec {
            steps.push((self.burst_file(), low_burst.to_string()));
        }
        let quota = self.quota_setting(new);
        match self.version() {
            Version::V2 => steps.push(quota),
            Version::V1 if new.period_usec > old.period_usec => {
                steps.extend([self.period_setting(new), quota]);
            }
            Version::V1 => steps.extend([quota, self.period_setting(new)]),
        }
        if new_burst > low_burst {
            steps.push((self.burst_file(), new_burst.to_string()));
        }
        steps
    }

    /// Returns the files of quota, period and burst, with their text for `max`.
    pub fn cpu_max_settings(&self, max: &CpuMax) -> Vec<(PathBuf, String)> {
        let mut settings = vec![self.quota_setting(max)];
        if self.version() == Version::V1 {
            settings.push(self.period_setting(max));
        }
        if self.has_burst() {
            settings.push((self.burst_file(), max.burst_usec.to_string()));
        }
        settings
    }

    pub fn write_cpu_max(&self, new: &CpuMax) -> Result<()> {
        let old = self.read_cpu_max()?;
        if old == *new {
            return Ok(());
        }
        for (path, text) in self.cpu_max_steps(&old, new) {
            self.write_file(&path, &text)?;
        }
        Ok(())
    }

    /// Returns the file for a change of the quota alone, with its text; the period stays as it is.
    pub fn quota_setting(&self, max: &CpuMax) -> (PathBuf, String) {
        let quota = max.quota_text(self.version());
        match self.version() {
            Version::V1 => (self.cpu_file("cpu.cfs_quota_us"), quota),
            Version::V2 => {
                let text = format!("{quota} {}", max.period_usec);
                (self.cpu_file("cpu.max"), text)
            }
        }
    }

    fn period_setting(&self, max: &CpuMax) -> (PathBuf, String) {
        let text = max.period_usec.to_string();
        (self.cpu_file("cpu.cfs_period_us"), text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::group::tests::cgroup;

    fn name(path: &Path) -> &str {
        path.file_name().unwrap().to_str().unwrap()
    }

    const OLD: CpuMax = CpuMax {
        quota_usec: Some(20_000),
        period_usec: 100_000,
        burst_usec: 10_000,
    };

    #[test]
    fn burst_is_not_written_without_kernel_support() {
        for version in [Version::V1, Version::V2] {
            let old = CpuMax {
                burst_usec: 0,
                ..OLD
            };
            let (_folder, group) = cgroup(version, &[]);
            let steps = group.cpu_max_steps(&old, &OLD);
            let names = steps.iter().map(|(path, _)| name(path));
            assert!(
                !names.clone().any(|name| name.contains("burst")),
                "{steps:?}"
            );
            assert!(!group.has_burst());
        }
    }

    #[test]
    fn invalid_bandwidth_text_is_an_error() {
        let (_folder, group) = cgroup(Version::V2, &[]);
        for text in [
            "",
            "max",
            "20000",
            "x 100000",
            "20000 y",
            "-1 100000",
            "1 2 3",
        ] {
            fs::write(group.cpu_file("cpu.max"), text).unwrap();
            let error = group.read_cpu_max().unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("cannot make sense of `{text}`")),
                "{error}"
            );
        }
    }
}
