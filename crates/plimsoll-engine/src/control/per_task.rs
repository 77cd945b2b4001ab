//! Caps of single tasks: every task gets a leaf cgroup of its own.
//!
//! A new task starts in the leaf of its parent and shares the parent's cap until it is found.
//! On v2 the leaves are threaded, so that threads of one process can have separate leaves.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CpuGroup, CpuMax, Version};

use super::soft_cap::SoftCapLoop;
use crate::error::Result;
use crate::knobs::{HalfLife, SoftCap};
use crate::sample::{PerTaskSample, SoftCapSample};

/// Interval of the search for new tasks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(10);
/// Largest number of tasks with a leaf of their own; further ones share their parent's.
const LEAVES_MAX: usize = 4096;
/// Weight of a leaf within its soft cap.
const LEAF_WEIGHT: u32 = 100;

/// Beginning of the name of a leaf, before the number of its task.
const LEAF_PREFIX: &str = "task-";

/// Returns whether a cgroup has the name of a task's leaf.
pub(crate) fn is_leaf(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    let number = name.and_then(|name| name.strip_prefix(LEAF_PREFIX));
    number.is_some_and(|number| number.parse::<i32>().is_ok())
}

/// Cgroup of one task.
#[derive(Debug)]
struct Leaf {
    group: CpuGroup,
    soft_cap: Option<SoftCapLoop>,
}

#[derive(Debug)]
pub(crate) struct PerTaskCaps {
    group: CpuGroup,
    hard: Option<CpuMax>,
    soft: Option<(SoftCap, HalfLife)>,
    leaves: HashMap<i32, Leaf>,
    due: Instant,
    /// Counts of tasks that have ended.
    ended: PerTaskSample,
}

impl PerTaskCaps {
    /// Creates the state without leaves. `hard`: bandwidth of each task's leaf.
    pub fn new(
        group: CpuGroup,
        hard: Option<CpuMax>,
        soft: Option<(SoftCap, HalfLife)>,
        now: Instant,
    ) -> Self {
        let ended = PerTaskSample::default();
        Self {
            group,
            hard,
            soft,
            leaves: HashMap::new(),
            due: now,
            ended,
        }
    }

    /// Returns whether another state has the same cgroup and the same limits.
    pub fn is_like(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.group.path().to_owned(), it.hard, it.soft);
        parts(self) == parts(other)
    }

    /// Runs the loop. Returns when to call again.
    pub fn tick(&mut self, now: Instant) -> Result<Instant> {
        if now >= self.due {
            self.due = now + INTERVAL;
            self.adopt_new_tasks(now)?;
        }
        for leaf in self.leaves.values_mut() {
            match leaf.soft_cap.as_mut().map(|soft_cap| soft_cap.tick(now)) {
                Some(Err(error)) if !error.is_gone() => return Err(error),
                _ => (),
            }
        }
        Ok(self.due)
    }

    /// Creates a leaf for every task that has none, and removes leaves of tasks that have ended.
    fn adopt_new_tasks(&mut self, now: Instant) -> Result<()> {
        let mut new_tasks = self.group.threads()?;
        let mut empty = Vec::new();
        for (owner, leaf) in &self.leaves {
            match leaf.group.threads() {
                Ok(tasks) if tasks.is_empty() => empty.push(*owner),
                Ok(tasks) => new_tasks.extend(tasks.into_iter().filter(|tid| tid != owner)),
                Err(error) if error.is_gone() => empty.push(*owner),
                Err(error) => return Err(error.into()),
            }
        }
        for owner in empty {
            self.remove(owner);
        }
        for tid in new_tasks {
            if self.leaves.len() >= LEAVES_MAX || self.leaves.contains_key(&tid) {
                continue;
            }
            match self.adopt(tid, now) {
                // The task has ended in the meantime.
                Err(error) if error.is_gone() => (),
                other => other?,
            }
        }
        Ok(())
    }

    fn adopt(&mut self, tid: i32, now: Instant) -> Result<()> {
        let leaf = self.group.child(format!("{LEAF_PREFIX}{tid}"));
        leaf.create()?;
        if leaf.hierarchy().version() == Version::V2 {
            leaf.make_threaded()?;
            self.group.enable_children()?;
        }
        if let Some(hard) = &self.hard {
            leaf.write_cpu_max(hard)?;
        }
        let soft_cap = self
            .soft
            .map(|cap| SoftCapLoop::new(leaf.clone(), cap, LEAF_WEIGHT, now));
        let soft_cap = soft_cap.transpose()?;
        leaf.add_thread(tid)?;
        self.leaves.insert(
            tid,
            Leaf {
                group: leaf,
                soft_cap,
            },
        );
        self.ended.tasks_total += 1;
        Ok(())
    }

    fn remove(&mut self, owner: i32) {
        let Some(leaf) = self.leaves.remove(&owner) else {
            return;
        };
        let stat = leaf.group.stat().unwrap_or_default();
        for folder in leaf.group.folders() {
            match std::fs::remove_dir(folder) {
                // A task was forked in between: it gets a leaf of its own
                // the next time.
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    self.leaves.insert(owner, leaf);
                    return;
                }
                _ => (),
            }
        }
        self.ended.nr_periods += stat.nr_periods;
        self.ended.nr_throttled += stat.nr_throttled;
    }

    pub fn sample(&self) -> PerTaskSample {
        let mut sample = self.ended;
        sample.tasks = self.leaves.len() as u64;
        for stat in self
            .leaves
            .values()
            .filter_map(|leaf| leaf.group.stat().ok())
        {
            sample.nr_periods += stat.nr_periods;
            sample.nr_throttled += stat.nr_throttled;
        }
        sample
    }

    /// Returns the soft cap of a task that has a leaf of its own.
    pub fn soft_cap_of(&self, tid: i32) -> Option<SoftCapSample> {
        let soft_cap = self.leaves.get(&tid)?.soft_cap.as_ref()?;
        Some(soft_cap.sample())
    }

    /// Returns the highest rate of all tasks, and whether any task is in the background.
    pub fn soft_cap_sample(&self) -> Option<SoftCapSample> {
        self.soft?;
        let samples = self
            .leaves
            .values()
            .filter_map(|leaf| leaf.soft_cap.as_ref());
        Some(
            samples
                .map(SoftCapLoop::sample)
                .fold(SoftCapSample::default(), |all, one| SoftCapSample {
                    rate_ppm: all.rate_ppm.max(one.rate_ppm),
                    background: all.background || one.background,
                    nr_switches: all.nr_switches + one.nr_switches,
                }),
        )
    }
}
