//! State that own and foreign groups have in common.

use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, CpuMax, Hierarchy, Version, WEIGHT_DEFAULT};

use super::layout::{Layer, Layout};
use super::loops::Loops;
use crate::cgroup::bandwidth::{KERNEL_PERIOD_MAX_USEC, fit_below};
use crate::control::headroom::{BatchGroup, HeadroomControl};
use crate::error::Result;
use crate::journal::KeptJournal;
use crate::knobs::units::NSEC_PER_USEC;
use crate::knobs::{Class, Knobs};
use crate::tasks;
use crate::undo;

/// Number of external changes beyond which the oldest are forgotten.
const EXTERNAL_CHANGES_MAX: usize = 32;

/// Called with the name and the outermost cgroup of a group that is made, before any process is in
/// it.
pub type OnMade<'a> = &'a mut dyn FnMut(&str, &CpuGroup) -> Result<()>;

/// State shared by all groups of an enforcer.
#[derive(Debug)]
pub(in crate::cgroup) struct Context {
    pub hierarchy: Arc<Hierarchy>,
    pub headroom: HeadroomControl,
    /// Whether any group demands headroom.
    pub has_demand: bool,
    /// Journal of all groups.
    pub journal: KeptJournal,
}

impl Context {
    /// Removes parents that hold no group any more.
    pub fn remove_parents(&mut self) {
        let gone = undo::remove_parents(self.journal.restores());
        self.journal.note(gone);
    }

    /// Returns whether a group yields to the machine's headroom: batch work that stock knobs
    /// enforce does.
    pub fn yields(&self, knobs: &Knobs, is_scheduled: bool, is_foreign: bool) -> bool {
        self.has_demand && yields(knobs, is_scheduled, is_foreign, self.hierarchy.version())
    }
}

/// Whether a group yields to headroom once some group demands it.
#[must_use]
pub fn yields(knobs: &Knobs, is_scheduled: bool, is_foreign: bool, version: Version) -> bool {
    knobs.class == Some(Class::Batch)
        && !is_scheduled
        && cannot_yield(knobs, is_foreign, version).is_none()
}

/// Returns the reason why headroom cannot be kept from a batch group; `None`: it can.
#[must_use]
pub fn cannot_yield(knobs: &Knobs, is_foreign: bool, version: Version) -> Option<&'static str> {
    if is_foreign && (knobs.quota.is_some() || knobs.cap.is_some()) {
        return Some(
            "a cgroup has one quota, and that is its limit's; a sched_ext scheduler can do both",
        );
    }
    let of_tasks = knobs.per_task && version == Version::V1;
    of_tasks.then_some("on cgroup v1 its tasks' limits cannot be inside of one that changes")
}

pub(super) fn nr_real_time(layout: &Layout) -> u64 {
    tasks::nr_real_time(&layout.top.all_threads().unwrap_or_default())
}

/// State of a group that does not depend on its origin.
#[derive(Debug)]
pub(in crate::cgroup) struct Common {
    pub name: Box<str>,
    /// Knobs in force.
    pub knobs: Knobs,
    /// Whether the BPF scheduler enforces the knobs that no file of the kernel holds.
    pub is_scheduled: bool,
    pub layout: Layout,
    pub loops: Loops,
    /// Writes of other processes to files of the group, a line each.
    pub external_changes: Vec<String>,
    /// Differences that were found last between the files and the knobs, a line each.
    pub differences: Vec<String>,
}

impl Common {
    pub fn new(name: &str, knobs: Knobs, is_scheduled: bool, layout: Layout) -> Self {
        Self {
            name: name.into(),
            knobs,
            is_scheduled,
            layout,
            loops: Loops::default(),
            external_changes: Vec::new(),
            differences: Vec::new(),
        }
    }

    /// Keeps the newest external changes.
    pub fn note_external(&mut self, changes: &[String]) {
        self.external_changes.extend_from_slice(changes);
        let surplus = self.external_changes.len();
        let surplus = surplus.saturating_sub(EXTERNAL_CHANGES_MAX);
        self.external_changes.drain(..surplus);
    }

    /// Describes the group for the headroom controller; `None`: the group does not yield.
    pub fn batch_group(&self) -> Option<BatchGroup> {
        let group = self.layout.layer(Layer::Headroom)?;
        let weight = self.knobs.weight.map(|weight| weight.weight);
        Some(BatchGroup {
            name: self.name.as_ref().into(),
            weight: weight.unwrap_or(WEIGHT_DEFAULT),
            version: group.hierarchy().version(),
            group: group.path().to_owned(),
            inode: group.inode(),
            quota_max_ns: quota_max_ns(group),
        })
    }

    /// Adds the group to the headroom controller, or removes it.
    pub fn follow_headroom(&self, headroom: &HeadroomControl) {
        match self.batch_group() {
            Some(group) => headroom.add(&group),
            None => headroom.remove(&self.name),
        }
    }
}

/// Returns the highest quota that the headroom controller may write: v1 refuses a rate above those
/// of the cgroups around it.
fn quota_max_ns(group: &CpuGroup) -> u64 {
    let version = group.hierarchy().version();
    let runtime_max_usec = plimsoll_policy::RUNTIME_MAX_NS / NSEC_PER_USEC;
    let mut most = CpuMax {
        quota_usec: Some(runtime_max_usec),
        period_usec: KERNEL_PERIOD_MAX_USEC,
        burst_usec: 0,
    };
    let mut above = group.parent().filter(|_| version == Version::V1);
    while let Some(parent) = above {
        // The root has no quota to read.
        if let Ok(outer) = parent.read_cpu_max() {
            most = fit_below(&outer, most, version);
        }
        above = parent.parent();
    }
    most.quota_usec.unwrap_or(runtime_max_usec) * NSEC_PER_USEC
}
