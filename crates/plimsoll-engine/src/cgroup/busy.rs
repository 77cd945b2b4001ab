//! How much CPU time the whole machine has used, live and in fine units.
//!
//! `/proc/stat` counts in ticks of 10 ms and so does the root of cgroup v2,
//! which is too coarse for a loop of that length. v1 has an exact counter
//! at its root. On v2 every top-level cgroup has one; what runs in the root
//! cgroup itself, kernel threads mostly, is the rest: what `/proc/schedstat`
//! says that all tasks ran, less what the cgroups used. A task counts there
//! only when it leaves its CPU, so the rest is averaged over a second. On a
//! kernel without that file the ticks have to do.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::files;
use super::hierarchy::{Hierarchy, Version};
use super::stat::{self, CpuStat};
use crate::error::{EngineError, Result};

/// The root cgroup's own part is trusted only when summed over this long.
const ROOT_AVERAGE: Duration = Duration::from_secs(1);
/// How often new top-level cgroups are looked for.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// No `cpu.stat` is longer.
const FILE_BYTES_MAX: usize = 4096;

/// A counter in a kernel file that stays open.
#[derive(Debug)]
pub(crate) struct UsageCounter {
    file: File,
    path: PathBuf,
    version: Version,
}

impl UsageCounter {
    pub(crate) fn open(path: PathBuf, version: Version) -> Result<Self> {
        let file =
            File::open(&path).map_err(|source| EngineError::cgroup("open", &path, source))?;
        Ok(Self {
            file,
            path,
            version,
        })
    }

    /// Nanoseconds so far.
    pub(crate) fn read_ns(&self) -> Result<u64> {
        let mut buffer = [0; FILE_BYTES_MAX];
        let length = self
            .file
            .read_at(&mut buffer, 0)
            .map_err(|source| EngineError::cgroup("read", &self.path, source))?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let value = match self.version {
            Version::V1 => text.trim().parse().ok(),
            Version::V2 => CpuStat::parse_usage_ns(&text),
        };
        value.ok_or_else(|| EngineError::Unreadable {
            path: self.path.clone(),
            text: text.into_owned(),
        })
    }
}

/// What all tasks of a v2 machine ran, whichever cgroup they are in.
#[derive(Debug)]
enum WholeMachine {
    /// In nanoseconds, of tasks that have left their CPU since.
    Schedstat(PathBuf),
    /// In ticks.
    RootCgroup(UsageCounter),
}

impl WholeMachine {
    fn open(hierarchy: &Hierarchy) -> Result<Self> {
        let path = PathBuf::from("/proc/schedstat");
        if files::read_text(&path).is_ok_and(|text| schedstat_run_ns(&text).is_some()) {
            return Ok(Self::Schedstat(path));
        }
        let root = stat::stat_file(&hierarchy.cpu_folder(Path::new("")));
        Ok(Self::RootCgroup(UsageCounter::open(root, Version::V2)?))
    }

    fn read_ns(&self) -> Result<u64> {
        match self {
            Self::RootCgroup(counter) => counter.read_ns(),
            Self::Schedstat(path) => {
                let text = files::read_text(path)?;
                schedstat_run_ns(&text).ok_or_else(|| EngineError::Unreadable {
                    path: path.clone(),
                    text,
                })
            }
        }
    }
}

/// The run time of all CPUs: the seventh number of each `cpuN` line
/// (Documentation/scheduler/sched-stats.rst).
fn schedstat_run_ns(text: &str) -> Option<u64> {
    let of_cpu = |line: &str| line.split_whitespace().nth(7)?.parse::<u64>().ok();
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    cpus.map(of_cpu)
        .try_fold(None, |sum, run_ns| Some(Some(sum.unwrap_or(0) + run_ns?)))?
}

/// The root cgroup's own share of a v2 machine.
#[derive(Debug, Default)]
struct RootShare {
    /// When, and with which counts, the present average began.
    since: Option<(Instant, u64, u64)>,
    /// What the root cgroup's own tasks use, in ppm of one CPU.
    rate_ppm: u64,
}

impl RootShare {
    fn is_due(&self, now: Instant) -> bool {
        self.since
            .is_none_or(|(since, ..)| now - since >= ROOT_AVERAGE)
    }

    /// `all_ns`: the root's counter. `below_ns`: its children's, summed.
    fn update(&mut self, now: Instant, all_ns: u64, below_ns: u64) {
        let Some((since, first_all_ns, first_below_ns)) = self.since else {
            self.since = Some((now, all_ns, below_ns));
            return;
        };
        let elapsed = now - since;
        let all = all_ns.saturating_sub(first_all_ns);
        let own_ns = all.saturating_sub(below_ns.saturating_sub(first_below_ns));
        let elapsed_us = u64::try_from(elapsed.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        self.rate_ppm = own_ns.saturating_mul(1000) / elapsed_us;
        self.since = Some((now, all_ns, below_ns));
    }
}

/// Measures the machine's busy time between calls.
#[derive(Debug)]
pub struct BusyMeter {
    hierarchy: Arc<Hierarchy>,
    /// v1: the root's counter. v2: those of the top-level cgroups, each with
    /// its last value.
    counters: HashMap<PathBuf, (UsageCounter, u64)>,
    /// v2: what all tasks ran.
    whole: Option<WholeMachine>,
    root_share: RootShare,
    /// v2: the sum of all increments of top-level cgroups.
    below_ns: u64,
    measured: Instant,
    scanned: Instant,
}

impl BusyMeter {
    /// Starts to measure.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn start(hierarchy: &Arc<Hierarchy>) -> Result<Self> {
        let now = Instant::now();
        let mut meter = Self {
            hierarchy: Arc::clone(hierarchy),
            counters: HashMap::new(),
            whole: None,
            root_share: RootShare::default(),
            below_ns: 0,
            measured: now,
            scanned: now,
        };
        match hierarchy.version() {
            Version::V1 => {
                let root = hierarchy.cpuacct_folder(Path::new(""));
                let root = root.unwrap_or_else(|| hierarchy.cpu_folder(Path::new("")));
                let counter = UsageCounter::open(root.join("cpuacct.usage"), Version::V1)?;
                let value = counter.read_ns()?;
                meter.counters.insert(root, (counter, value));
            }
            Version::V2 => {
                meter.scan(true)?;
                meter.measure_root(now, WholeMachine::open(hierarchy)?)?;
            }
        }
        Ok(meter)
    }

    /// v2: takes up top-level cgroups that are new. What they used before
    /// they were found counts, except at the `start`.
    fn scan(&mut self, start: bool) -> Result<()> {
        let top = self.hierarchy.cpu_folder(Path::new(""));
        let entries =
            fs::read_dir(&top).map_err(|source| EngineError::cgroup("list", &top, source))?;
        for entry in entries.flatten() {
            let path = stat::stat_file(&entry.path());
            if self.counters.contains_key(&path) || !path.exists() {
                continue;
            }
            match UsageCounter::open(path.clone(), Version::V2) {
                Ok(counter) => {
                    let value = if start { counter.read_ns()? } else { 0 };
                    self.counters.insert(path, (counter, value));
                }
                Err(EngineError::Cgroup { source, .. }) if source.kind() == ErrorKind::NotFound => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// v2: sees what the root cgroup's own tasks use, once a second.
    fn measure_root(&mut self, now: Instant, whole: WholeMachine) -> Result<()> {
        if self.root_share.is_due(now) {
            self.root_share.update(now, whole.read_ns()?, self.below_ns);
        }
        self.whole = Some(whole);
        Ok(())
    }

    /// The CPU time that the machine used since the last call (or the start),
    /// in nanoseconds over all CPUs.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn busy_ns(&mut self) -> Result<u64> {
        let now = Instant::now();
        if self.whole.is_some() && now - self.scanned >= SCAN_INTERVAL {
            self.scan(false)?;
            self.scanned = now;
        }
        let mut busy_ns = 0;
        self.counters
            .retain(|_, (counter, last_ns)| match counter.read_ns() {
                Ok(value_ns) => {
                    busy_ns += value_ns.saturating_sub(*last_ns);
                    *last_ns = value_ns;
                    true
                }
                // The cgroup was removed.
                Err(_) => false,
            });
        if let Some(whole) = self.whole.take() {
            self.below_ns += busy_ns;
            self.measure_root(now, whole)?;
            let elapsed_us = u64::try_from((now - self.measured).as_micros()).unwrap_or(0);
            busy_ns += self.root_share.rate_ppm * elapsed_us / 1000;
        } else if self.counters.is_empty() {
            let reason = "the root of cpuacct has become unreadable".into();
            return Err(EngineError::NoController { reason });
        }
        self.measured = now;
        Ok(busy_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_is_summed_over_cpus() {
        let text = "version 17\ntimestamp 4294937296\ncpu0 0 0 0 0 0 0 500 7 9\n\
                    domain0 SMT 03 1 2 3\ncpu1 0 0 0 0 0 0 40 7 9\n";
        assert_eq!(schedstat_run_ns(text), Some(540));
        assert_eq!(schedstat_run_ns("version 17\n"), None);
        assert_eq!(schedstat_run_ns("cpu0 0 0\n"), None);
    }

    #[test]
    fn the_root_share_is_what_the_children_did_not_use() {
        let start = Instant::now();
        let mut share = RootShare::default();
        share.update(start, 1_000, 500);
        assert!(
            !share.is_due(start + Duration::from_millis(500)),
            "half a second is too short"
        );
        share.update(
            start + Duration::from_secs(2),
            1_000 + 900_000_000,
            500 + 300_000_000,
        );
        assert_eq!(share.rate_ppm, 300_000);
    }
}
