//! Handover of groups to the scheduler and back.

use std::collections::BTreeSet;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::Result;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::undo::UndoReport;

use super::SchedExtEnforcer;
use super::scheduled::{hand_over, has_cgroup};
use crate::bpf_intf::plimsoll_params;
use crate::params::{self, cgroup_id};

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
