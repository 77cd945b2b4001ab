//! Groups that the scheduler has, or is to have.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use plimsoll_engine::Result;
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::Knobs;

use super::link::Link;
use crate::SchedExtError;
use crate::bpf_intf::plimsoll_params;
use crate::objects::Objects;
use crate::params;
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
pub(super) fn has_cgroup(scheduled: &ScheduledGroups, id: u64) -> bool {
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
