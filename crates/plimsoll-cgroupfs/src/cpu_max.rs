//! Quota, period and burst.

use std::path::PathBuf;

use crate::error::{CgroupError, Result};
use crate::files;
use crate::group::CpuGroup;
use crate::version::Version;

/// Quota, period and burst of a cgroup, in the unit of the kernel's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMax {
    /// Runtime per period; `None`: unlimited.
    pub quota_usec: Option<u64>,
    /// The period.
    pub period_usec: u64,
    /// Unused quota that may be saved up; 0: none.
    pub burst_usec: u64,
}

impl CpuMax {
    /// Reads the text of v2's `cpu.max`, which says nothing of the burst.
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
    /// Whether it can save up unused quota (Linux 5.14 and later).
    pub fn has_burst(&self) -> bool {
        self.burst_file().exists()
    }

    fn burst_file(&self) -> PathBuf {
        self.cpu_file(match self.version() {
            Version::V1 => "cpu.cfs_burst_us",
            Version::V2 => "cpu.max.burst",
        })
    }

    /// Its quota, period and burst.
    ///
    /// # Errors
    /// When the kernel files cannot be read.
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

    /// The writes that lead from `old` to `new`, in an order in which the
    /// kernel takes them: it refuses a burst above the quota at every step,
    /// and v1 a child's rate above its parent's. So burst comes down first
    /// and goes up last, and no step in between has a higher rate than the
    /// first or the last.
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

    /// The files of quota, period and burst, with their text for `max`.
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

    /// Sets quota, period and burst.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write_cpu_max(&self, new: &CpuMax) -> Result<()> {
        let old = self.read_cpu_max()?;
        if old == *new {
            return Ok(());
        }
        for (path, text) in self.cpu_max_steps(&old, new) {
            files::write_text(&path, &text)?;
        }
        Ok(())
    }

    /// The file to which a new quota alone is written, with its text. The period stays.
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

    /// v1's file of the period, with its text.
    fn period_setting(&self, max: &CpuMax) -> (PathBuf, String) {
        let text = max.period_usec.to_string();
        (self.cpu_file("cpu.cfs_period_us"), text)
    }
}
