//! Handover of groups to the scheduler and back.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::Result;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;

use super::SchedExtEnforcer;
use crate::Error;
use crate::groups::cgroup_id;
use crate::objects::Objects;
use crate::sample::Counts;
use crate::supervisor::Context;

/// Groups of the scheduler, by name.
pub(super) type ScheduledGroups = BTreeMap<String, Scheduled>;

#[derive(Debug)]
pub(super) struct Scheduled {
    pub knobs: Knobs,
    /// The kernel's id of its cgroup, which may be gone.
    pub cgroup_id: u64,
    /// Its counters in earlier schedulers and cgroups.
    pub earlier: Counts,
    /// Cgroups that it had before. They are limited until no process is left in them.
    pub behind: Vec<u64>,
}

impl Scheduled {
    /// Returns its counters up to now.
    pub fn counts(&self, objects: Option<&Objects>) -> Counts {
        let now = objects.map(|objects| Counts::of(objects, self.cgroup_id));
        now.unwrap_or_default().after(&self.earlier)
    }

    /// Has the scheduler apply the knobs, as soon as one is loaded.
    pub fn apply(
        &self,
        context: &Context,
        objects: Option<&Objects>,
    ) -> std::result::Result<(), Error> {
        context.groups.put(objects, self.cgroup_id, &self.knobs)
    }
}

impl SchedExtEnforcer {
    /// Hands cgroups to the scheduler before their files are written: those of an earlier owner may
    /// hold quotas that the scheduler is to hold. Returns the names of the groups.
    pub(super) fn hand_over_early<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a GroupPolicy>,
    ) -> BTreeSet<String> {
        let mut early = BTreeSet::new();
        for group in groups.filter(|group| group.is_scheduled) {
            let folder = match group.is_foreign() {
                true => Some(CpuGroup::at(&self.context.hierarchy, group.path()).cpu_file("")),
                false => self.stock.left_folder(&group.name),
            };
            let Some(id) = folder.and_then(|folder| cgroup_id(&folder).ok()) else {
                continue;
            };
            // The cgroup of another group is refused later.
            let is_free = !self.scheduled.contains_key(&group.name)
                && !self.context.groups.lock().contains_key(&id);
            if is_free && self.hand_over(group, id).is_ok() {
                early.insert(group.name.clone());
            }
        }
        early
    }

    /// Hands a group, whose cgroup exists, to the scheduler, or changes it there.
    pub(super) fn hand_over_present(&mut self, group: &GroupPolicy) -> Result<()> {
        let id = cgroup_id(&self.folder(&group.name)?)?;
        self.hand_over(group, id)
    }

    fn hand_over(&mut self, group: &GroupPolicy, cgroup_id: u64) -> Result<()> {
        let objects = self.link.objects.as_deref();
        let scheduled = &mut self.scheduled;
        hand_over(scheduled, &self.context, objects, group, cgroup_id)
    }

    /// Takes the cgroups back that a group had before it was made anew.
    pub(super) fn take_back_behind(&mut self, name: &str) {
        let Some(scheduled) = self.scheduled.get_mut(name) else {
            return;
        };
        let behind = std::mem::take(&mut scheduled.behind);
        self.take_cgroups_back(&behind, &mut UndoReport::default());
    }

    /// Takes groups back, whose tasks then belong to the groups around them. Groups that the
    /// scheduler does not have are ignored.
    pub(super) fn take_back(&mut self, names: &[&str], report: &mut UndoReport) {
        for name in names {
            if let Some(mut taken) = self.scheduled.remove(*name) {
                taken.behind.push(taken.cgroup_id);
                self.take_cgroups_back(&taken.behind, report);
            }
        }
    }

    fn take_cgroups_back(&mut self, cgroups: &[u64], report: &mut UndoReport) {
        for id in cgroups {
            let removed = self
                .context
                .groups
                .remove(self.link.objects.as_deref(), *id);
            report.problems.extend(removed.err().map(|e| e.to_string()));
        }
    }
}

/// Hands a cgroup to the scheduler: that of a group which it does not have yet, the one that it
/// has, with other knobs, or one that was made for it anew.
pub(super) fn hand_over(
    scheduled: &mut ScheduledGroups,
    context: &Context,
    objects: Option<&Objects>,
    group: &GroupPolicy,
    cgroup_id: u64,
) -> Result<()> {
    let mut now = Scheduled {
        knobs: group.knobs.clone(),
        cgroup_id,
        earlier: Counts::default(),
        behind: Vec::new(),
    };
    now.apply(context, objects)?;
    if let Some(before) = scheduled.remove(&group.name) {
        let is_anew = before.cgroup_id != cgroup_id;
        now.earlier = match is_anew {
            true => before.counts(objects),
            false => before.earlier,
        };
        now.behind = before.behind;
        now.behind.extend(is_anew.then_some(before.cgroup_id));
    }
    scheduled.insert(group.name.clone(), now);
    Ok(())
}
