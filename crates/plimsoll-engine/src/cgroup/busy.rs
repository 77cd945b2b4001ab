//! CPU time used by the whole machine, live and in fine units.
//!
//! `/proc/stat` counts in ticks of 10 ms, as does the root of cgroup v2, which is too coarse for a
//! loop of that length. v1 has an exact counter at its root. On v2 every top-level cgroup has one.
//! The work in the root cgroup itself, kernel threads mostly, is the run time of all tasks in
//! `/proc/schedstat` less the usage of the cgroups. A task counts there only when it leaves its
//! CPU, so this rest is averaged over a second. A kernel without that file leaves only the ticks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CgroupError, CpuGroup, Hierarchy, UsageCounter, Version, os, read_text};

use crate::error::{EngineError, Result};

/// Time over which the root cgroup's own part is summed: over less it cannot be trusted.
const ROOT_AVERAGE: Duration = Duration::from_secs(1);
/// Interval between scans for new top-level cgroups.
const SCAN_INTERVAL: Duration = Duration::from_millis(500);
/// Run time of all tasks of a v2 machine, in any cgroup.
#[derive(Debug)]
enum WholeMachine {
    /// File with nanoseconds; a running task counts there only when it leaves its CPU.
    Schedstat(PathBuf),
    /// Counter of the root cgroup, which counts in ticks.
    RootCgroup(UsageCounter),
}

impl WholeMachine {
    fn open(hierarchy: &Arc<Hierarchy>) -> Result<Self> {
        let path = PathBuf::from("/proc/schedstat");
        if read_text(&path).is_ok_and(|text| schedstat_run(&text).is_some()) {
            return Ok(Self::Schedstat(path));
        }
        let root = CpuGroup::at(hierarchy, "");
        Ok(Self::RootCgroup(root.usage_counter()?))
    }

    fn read(&self) -> Result<BusyTime> {
        match self {
            Self::RootCgroup(counter) => Ok(BusyTime {
                ns: counter.read_ns()?,
                cpus: None,
            }),
            Self::Schedstat(path) => {
                let text = read_text(path)?;
                let run = schedstat_run(&text);
                let path = path.clone();
                Ok(run.ok_or(CgroupError::Unreadable { path, text })?)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BusyTime {
    ns: u64,
    /// Number of CPUs that were counted, which are those online; `None`: all, by ticks.
    cpus: Option<u64>,
}

/// Parses the run time of all CPUs: the seventh number of each `cpuN` line
/// (Documentation/scheduler/sched-stats.rst).
fn schedstat_run(text: &str) -> Option<BusyTime> {
    let of_cpu = |line: &str| line.split_whitespace().nth(7)?.parse::<u64>().ok();
    let cpus = text.lines().filter(|line| line.starts_with("cpu"));
    let all: Vec<u64> = cpus.map(of_cpu).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| BusyTime {
        ns: all.iter().sum(),
        cpus: Some(all.len() as u64),
    })
}

/// CPU usage of the root cgroup's own tasks on a v2 machine.
///
/// `/proc/schedstat` misses a running thread until the thread leaves its CPU, which may take
/// seconds; the cgroups' counters miss nothing. Meanwhile their difference is too small, even
/// negative, and it rises at once when the thread leaves. So only a rise above the highest
/// difference so far is work of the root cgroup, done since that difference was seen.
#[derive(Debug, Default)]
struct RootShare {
    /// Time at which the difference was the highest, the difference in ns, and the number of CPUs
    /// that were counted.
    highest: Option<(Instant, i64, Option<u64>)>,
    looked: Option<Instant>,
    /// CPU usage of the root cgroup's own tasks, in ppm of one CPU.
    rate_ppm: u64,
    /// End of the present rate, which holds for as long as the interval over which it was measured.
    until: Option<Instant>,
}

impl RootShare {
    fn is_due(&self, now: Instant) -> bool {
        self.looked.is_none_or(|then| now - then >= ROOT_AVERAGE)
    }

    /// Updates the rate. `all`: the run time of all tasks. `below_ns`: the cgroups' counters,
    /// summed.
    fn update(&mut self, now: Instant, all: BusyTime, below_ns: u64) {
        let is_first = self.until.is_none();
        self.looked = Some(now);
        let own_ns = all.ns.cast_signed().wrapping_sub(below_ns.cast_signed());
        let (since, highest_ns, cpus) = *self.highest.get_or_insert((now, own_ns, all.cpus));
        let elapsed = now - since;
        let risen_ns = u64::try_from(own_ns.saturating_sub(highest_ns)).unwrap_or(0);
        // Ticks count late by no more than the interval between two updates. A CPU that comes or
        // goes brings or takes away its run time since the boot.
        if risen_ns > 0 || all.cpus.is_none() || all.cpus != cpus {
            self.highest = Some((now, own_ns, all.cpus));
        }
        if all.cpus != cpus || elapsed.is_zero() {
            return;
        }
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let most_ns = all
            .cpus
            .map_or(u64::MAX, |cpus| elapsed_ns.saturating_mul(cpus));
        if risen_ns > 0 {
            self.until = Some(now + elapsed);
            // The first rise, or one beyond what the CPUs can run, has work from before `since`.
            if all.cpus.is_none() || (!is_first && risen_ns <= most_ns) {
                self.rate_ppm = risen_ns.saturating_mul(1000) / (elapsed_ns / 1000).max(1);
            }
        } else if self.until.is_none_or(|until| now >= until) {
            self.rate_ppm = 0;
        }
    }
}

/// Measures the machine's busy time between calls.
#[derive(Debug)]
pub struct BusyMeter {
    hierarchy: Arc<Hierarchy>,
    /// Counters with their last values. v1: of the root. v2: of the top-level cgroups.
    counters: HashMap<PathBuf, (UsageCounter, u64)>,
    /// Run time of all tasks; v2 only.
    whole: Option<WholeMachine>,
    root_share: RootShare,
    /// Sum of all increments of top-level cgroups; v2 only.
    below_ns: u64,
    measured: Instant,
    scanned: Instant,
}

impl BusyMeter {
    pub fn start(hierarchy: &Arc<Hierarchy>) -> Result<Self> {
        let now = os::now();
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

    /// Finds new top-level cgroups of v2. Their usage before they were found counts, except at the
    /// `start`.
    fn scan(&mut self, start: bool) -> Result<()> {
        let top = self.hierarchy.cpu_folder(Path::new(""));
        let entries = os::list(&top).map_err(|source| EngineError::file("list", &top, source))?;
        for entry in entries.into_iter().filter(|entry| entry.is_folder) {
            let path = entry.path.join("cpu.stat");
            if self.counters.contains_key(&path) || !os::exists(&path) {
                continue;
            }
            match UsageCounter::open(path.clone(), Version::V2) {
                Ok(counter) => {
                    let value = if start { counter.read_ns()? } else { 0 };
                    self.counters.insert(path, (counter, value));
                }
                Err(error) if error.os_error() == Some(libc::ENOENT) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Updates the usage of the root cgroup's own tasks on v2, once a second.
    fn measure_root(&mut self, now: Instant, whole: WholeMachine) -> Result<()> {
        if self.root_share.is_due(now) {
            self.root_share.update(now, whole.read()?, self.below_ns);
        }
        self.whole = Some(whole);
        Ok(())
    }

    /// Returns the CPU time that the machine used since the last call (or the start), in
    /// nanoseconds over all CPUs.
    ///
    /// # Errors
    /// When the top-level cgroups cannot be listed, or the run time of all tasks, or v1's root
    /// counter, cannot be read.
    pub fn busy_ns(&mut self) -> Result<u64> {
        let now = os::now();
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
            return Err(CgroupError::NoController { reason }.into());
        }
        self.measured = now;
        Ok(busy_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    /// Run time on two CPUs.
    fn run(ns: u64) -> BusyTime {
        BusyTime { ns, cpus: Some(2) }
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn schedstat_is_summed_over_cpus() {
        let text = "version 17\ntimestamp 4294937296\ncpu0 0 0 0 0 0 0 500 7 9\n\
                    domain0 SMT 03 1 2 3\ncpu1 0 0 0 0 0 0 40 7 9\n";
        assert_eq!(schedstat_run(text), Some(run(540)));
        assert_eq!(schedstat_run("version 17\n"), None);
        assert_eq!(schedstat_run("cpu0 0 0\n"), None);
    }

    #[test]
    fn the_root_share_is_what_the_children_did_not_use() {
        let start = os::now();
        let mut share = RootShare::default();
        share.update(start, run(1_000), 500);
        assert!(
            !share.is_due(start + Duration::from_millis(500)),
            "too soon"
        );
        for second in 1..4 {
            let below_ns = second * 300 * MS;
            share.update(
                at(start, second),
                run(below_ns + second * 200 * MS),
                below_ns,
            );
        }
        assert_eq!(share.rate_ppm, 200_000);
    }

    #[test]
    fn a_thread_that_leaves_its_cpu_after_seconds_is_not_the_roots() {
        let start = os::now();
        let mut share = RootShare::default();
        share.update(start, run(0), 0);
        // The root has 10 ms a second. A child has a CPU for itself for 4 s, and leaves it for a
        // moment.
        let mut counted_ns = 0;
        for second in 1..30 {
            if second % 5 == 0 {
                counted_ns = second * 1_000 * MS;
            }
            let all = run(counted_ns + second * 10 * MS);
            share.update(at(start, second), all, second * 1_000 * MS);
            // The first rise may have begun before the start.
            let expected_ppm = if second < 10 { 0 } else { 10_000 };
            assert_eq!(share.rate_ppm, expected_ppm, "in second {second}");
        }
    }

    #[test]
    fn what_ran_before_the_start_is_not_the_roots() {
        let start = os::now();
        let mut share = RootShare::default();
        share.update(start, run(0), 3_600_000 * MS);
        share.update(at(start, 1), run(3_600_000 * MS), 3_600_100 * MS);
        assert_eq!(share.rate_ppm, 0, "the first rise");
        share.update(at(start, 2), run(3_600_200 * MS), 3_600_200 * MS);
        assert_eq!(share.rate_ppm, 100_000);
        share.update(at(start, 3), run(3_610_000 * MS), 3_600_300 * MS);
        assert_eq!(share.rate_ppm, 100_000, "two CPUs run 2 s in a second");
        share.update(at(start, 4), run(3_610_200 * MS), 3_600_400 * MS);
        assert_eq!(share.rate_ppm, 100_000);
    }

    #[test]
    fn a_cpu_that_comes_or_goes_changes_nothing() {
        let start = os::now();
        let mut share = RootShare::default();
        let hours_ns = 3_600_000 * MS;
        for second in 0..4 {
            share.update(at(start, second), run(hours_ns + second * 50 * MS), 0);
        }
        assert_eq!(share.rate_ppm, 50_000);
        for second in 4..10 {
            let one = BusyTime {
                ns: second * 50 * MS,
                cpus: Some(1),
            };
            share.update(at(start, second), one, 0);
            assert_eq!(share.rate_ppm, 50_000, "in second {second}");
        }
        share.update(at(start, 10), run(hours_ns + 500 * MS), 0);
        assert_eq!(share.rate_ppm, 50_000);
    }

    #[test]
    fn what_ticks_have_missed_is_forgotten() {
        let start = os::now();
        let mut share = RootShare::default();
        let ticks = |ns| BusyTime { ns, cpus: None };
        share.update(start, ticks(0), 0);
        share.update(at(start, 1), ticks(900 * MS), 1_000 * MS);
        assert_eq!(share.rate_ppm, 0);
        share.update(at(start, 2), ticks(950 * MS), 1_000 * MS);
        assert_eq!(share.rate_ppm, 50_000);
    }
}
