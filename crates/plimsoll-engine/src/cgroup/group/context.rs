//! State that the groups of an enforcer share.

use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version};

use crate::control::headroom::HeadroomControl;
use crate::error::Result;
use crate::journal::KeptJournal;
use crate::knobs::{Class, Knobs};
use crate::undo;

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
