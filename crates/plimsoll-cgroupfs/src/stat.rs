//! Bandwidth counters of a cgroup.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::version::Version;

/// Counters of a group's bandwidth, in the same units for both versions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStat {
    /// Periods that elapsed while the group was active.
    pub nr_periods: u64,
    /// Number of these periods that ended throttled.
    pub nr_throttled: u64,
    /// Time spent throttled, summed over CPUs.
    pub throttled_usec: u64,
    /// Periods whose usage exceeded the quota.
    pub nr_bursts: u64,
    /// Runtime beyond the quota in these periods, summed.
    pub burst_usec: u64,
}

impl CpuStat {
    /// Parses the text of `cpu.stat`. Fields that this kernel lacks are 0.
    pub fn parse(text: &str, version: Version) -> Self {
        let field = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.trim().parse::<u64>().ok())
                .unwrap_or(0)
        };
        let (throttled_usec, burst_usec) = match version {
            Version::V1 => (field("throttled_time") / 1000, field("burst_time") / 1000),
            Version::V2 => (field("throttled_usec"), field("burst_usec")),
        };
        Self {
            nr_periods: field("nr_periods"),
            nr_throttled: field("nr_throttled"),
            throttled_usec,
            nr_bursts: field("nr_bursts"),
            burst_usec,
        }
    }

    /// Adds the counts of two successive cgroups of a group.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            nr_periods: self.nr_periods + other.nr_periods,
            nr_throttled: self.nr_throttled + other.nr_throttled,
            throttled_usec: self.throttled_usec + other.throttled_usec,
            nr_bursts: self.nr_bursts + other.nr_bursts,
            burst_usec: self.burst_usec + other.burst_usec,
        }
    }

    /// Parses `usage_usec` of a v2 `cpu.stat`, and converts it to nanoseconds.
    pub(crate) fn parse_usage_ns(text: &str) -> Option<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))?;
        line.trim().parse::<u64>().ok()?.checked_mul(1000)
    }
}

pub(crate) fn stat_file(folder: &Path) -> std::path::PathBuf {
    folder.join("cpu.stat")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_both_versions_are_in_microseconds() {
        let v1 = "nr_periods 21\nnr_throttled 20\nthrottled_time 1580000000\nnr_bursts 1\nburst_time 20000000\n";
        let v2 = "usage_usec 5\nnr_periods 21\nnr_throttled 20\nthrottled_usec 1580000\nnr_bursts 1\nburst_usec 20000\n";
        assert_eq!(
            CpuStat::parse(v1, Version::V1),
            CpuStat::parse(v2, Version::V2)
        );
        let stat = CpuStat::parse(v2, Version::V2);
        let bursts = (stat.nr_bursts, stat.burst_usec);
        assert_eq!((stat.throttled_usec, bursts), (1_580_000, (1, 20_000)));
        assert_eq!(CpuStat::parse_usage_ns(v2), Some(5_000));
        assert_eq!(CpuStat::parse_usage_ns(v1), None);
    }
}
