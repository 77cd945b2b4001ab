//! Handover of groups to the scheduler and back.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::Result;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;

use super::{Link, SchedExtEnforcer};
use crate::SchedExtError;
use crate::bpf_intf::plimsoll_params;
use crate::loading::PolicyChange;
use crate::objects::Objects;
use crate::params::{self, cgroup_id};
use crate::sample::GroupCounts;

/// Groups of the scheduler, by name.
pub(super) type ScheduledGroups = BTreeMap<String, Scheduled>;

#[derive(Debug)]
pub(super) struct Scheduled {
    pub knobs: Knobs,
    /// Its knobs and its cgroup, which may be gone.
    pub params: plimsoll_params,
    /// Its counters in earlier schedulers and cgroups.
    pub earlier: GroupCounts,
    /// Cgroups that it had before. They are limited until no process is left in them.
    pub behind: Vec<plimsoll_params>,
}

impl Scheduled {
    /// Returns its counters up to now.
    pub fn counts(&self, objects: Option<&Objects>) -> GroupCounts {
        let now = objects.map(|objects| GroupCounts::of(objects, self.params.cgroup_id));
        now.unwrap_or_default().after(&self.earlier)
    }

    /// The groups that the scheduler is to have, one for each cgroup.
    pub fn cgroups(&self) -> impl Iterator<Item = &plimsoll_params> {
        iter::once(&self.params).chain(&self.behind)
    }
}

/// Whether the scheduler is to have a group of this cgroup.
fn has_cgroup(scheduled: &ScheduledGroups, id: u64) -> bool {
    let mut cgroups = scheduled.values().flat_map(Scheduled::cgroups);
    cgroups.any(|params| params.cgroup_id == id)
}

/// Removes all other groups from the scheduler, which an earlier owner has left there.
pub(super) fn remove_others(
    scheduled: &ScheduledGroups,
    objects: &Objects,
) -> std::result::Result<(), SchedExtError> {
    let cgroups = scheduled.values().flat_map(Scheduled::cgroups);
    let wanted: BTreeSet<u64> = cgroups.map(|params| params.cgroup_id).collect();
    let mut others = objects.cgroup_ids();
    others.retain(|id| !wanted.contains(id));
    let mut others = others.into_iter();
    others.try_for_each(|id| objects.apply(params::none(id)))
}

impl Link {
    /// Creates, changes or ends a group in the scheduler, and in the one that is being loaded.
    fn apply(&self, params: plimsoll_params) -> std::result::Result<(), SchedExtError> {
        let objects = self.objects.as_ref();
        objects.map_or(Ok(()), |objects| objects.apply(params))?;
        if let Some(loading) = &self.loading {
            loading.send(PolicyChange::Group(params));
        }
        Ok(())
    }
}

impl SchedExtEnforcer {
    /// Hands cgroups to the scheduler before their files are written: those of an earlier owner may
    /// hold quotas that the scheduler is to hold. Groups that it refuses stay as they are. Returns
    /// the names of the others.
    pub(super) fn hand_over_early(
        &mut self,
        groups: &[&GroupPolicy],
        results: &mut [Result<()>],
    ) -> BTreeSet<String> {
        let mut early = BTreeSet::new();
        for (group, result) in groups.iter().zip(results) {
            if !group.is_scheduled || result.is_err() {
                continue;
            }
            let folder = match group.is_foreign() {
                true => Some(CpuGroup::at(&self.hierarchy, group.path()).cpu_file("")),
                false => self.stock.left_folder(&group.name),
            };
            let Some(id) = folder.and_then(|folder| cgroup_id(&folder).ok()) else {
                continue;
            };
            // The cgroup of another group is refused later.
            let is_free =
                !self.scheduled.contains_key(&group.name) && !has_cgroup(&self.scheduled, id);
            if is_free {
                *result = self.hand_over(group, id);
                early.extend(result.is_ok().then(|| group.name.clone()));
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
        hand_over(&mut self.scheduled, &self.link, group, cgroup_id)
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
                taken.behind.push(taken.params);
                self.take_cgroups_back(&taken.behind, report);
            }
        }
    }

    fn take_cgroups_back(&self, cgroups: &[plimsoll_params], report: &mut UndoReport) {
        for params in cgroups {
            let removed = self.link.apply(params::none(params.cgroup_id));
            report.problems.extend(removed.err().map(|e| e.to_string()));
        }
    }
}

/// Hands a cgroup to the scheduler: that of a group which it does not have yet, the one that it
/// has, with other knobs, or one that was made for it anew.
pub(super) fn hand_over(
    scheduled: &mut ScheduledGroups,
    link: &Link,
    group: &GroupPolicy,
    cgroup_id: u64,
) -> Result<()> {
    let mut now = Scheduled {
        knobs: group.knobs.clone(),
        params: params::params_of(&group.knobs, group.is_foreign(), cgroup_id),
        earlier: GroupCounts::default(),
        behind: Vec::new(),
    };
    link.apply(now.params)?;
    if let Some(before) = scheduled.remove(&group.name) {
        let is_anew = before.params.cgroup_id != cgroup_id;
        now.earlier = match is_anew {
            true => before.counts(link.objects.as_ref()),
            false => before.earlier,
        };
        now.behind = before.behind;
        now.behind.extend(is_anew.then_some(before.params));
    }
    scheduled.insert(group.name.clone(), now);
    Ok(())
}
