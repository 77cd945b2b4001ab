//! Handover of groups to the scheduler and back: cgroup and slot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::Result;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::undo::UndoReport;

use super::SchedExtEnforcer;
use crate::Error;
use crate::objects::Objects;
use crate::sample::Counts;
use crate::slots::{self, Registrar};
use crate::supervisor::Context;

/// Groups of the scheduler, by name.
pub(super) type ScheduledGroups = BTreeMap<String, Scheduled>;

#[derive(Debug)]
pub(super) struct Scheduled {
    pub knobs: Knobs,
    /// The folder of its cgroup.
    pub folder: PathBuf,
    /// The kernel's id of that cgroup, which may be gone.
    pub cgroup_id: u64,
    /// Its slot in the scheduler that is loaded now, if one is.
    pub slot: Option<u32>,
    /// All slots were taken: none of its limits holds.
    pub waits: bool,
    /// Its counters in earlier schedulers and slots.
    pub earlier: Counts,
    /// Cgroups that it had before, with their ids. They keep their slots until no process is left in
    /// them.
    pub behind: Vec<(PathBuf, u64)>,
}

impl Scheduled {
    /// Returns its counters up to now.
    pub fn counts(&self, objects: Option<&Objects>) -> Counts {
        let now = match (objects, self.slot) {
            (Some(objects), Some(slot)) => Counts::of(objects, slot),
            _ => Counts::default(),
        };
        now.after(&self.earlier)
    }

    /// Message about knobs that are not in force.
    pub fn problem(&self) -> Option<String> {
        let full = Error::TooManyGroups(slots::NR_SLOTS);
        self.waits
            .then(|| format!("{full}; until one of them is removed no limit of it holds"))
    }
}

impl SchedExtEnforcer {
    /// Hands cgroups to the scheduler before their files are written: those of an earlier owner may
    /// hold quotas that the scheduler is to hold. Returns the names of the groups.
    pub(super) fn hand_over_early<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a GroupPolicy>,
    ) -> BTreeSet<String> {
        let mut folders = BTreeSet::new();
        let mut early = Vec::new();
        for group in groups {
            let folder = match &group.selector {
                Selector::Cgroup(path) => {
                    Some(CpuGroup::at(&self.context.hierarchy, path).cpu_file(""))
                }
                Selector::Process(_) => self.stock.left_folder(&group.name),
            };
            let Some(folder) = folder else {
                continue;
            };
            // The folder of another group is refused later.
            let is_free = !self.scheduled.contains_key(&group.name)
                && !self.context.groups.lock().contains_key(&folder)
                && folders.insert(folder.clone());
            if group.is_scheduled && is_free {
                early.push((&*group.name, Ok(folder), &group.knobs));
            }
        }
        let names: Vec<String> = early.iter().map(|(name, ..)| (*name).to_owned()).collect();
        let results = self.hand_over_at(early);
        let done = names.into_iter().zip(results);
        let done = done.filter(|(_, result)| result.is_ok());
        done.map(|(name, _)| name).collect()
    }

    /// Hands groups, whose cgroups exist, to the scheduler. Each succeeds or fails by itself.
    pub(super) fn hand_over(&mut self, groups: &[(&str, &Knobs)]) -> Vec<Result<()>> {
        let groups = groups.iter();
        let at = groups.map(|(name, knobs)| (*name, self.folder(name), *knobs));
        self.hand_over_at(at.collect())
    }

    fn hand_over_at(&mut self, groups: Vec<(&str, Result<PathBuf>, &Knobs)>) -> Vec<Result<()>> {
        if groups.is_empty() {
            return Vec::new();
        }
        let names: Vec<&str> = groups.iter().map(|(name, ..)| *name).collect();
        let results = self.hand_over_all(groups);
        let failed = names.into_iter().zip(&results);
        let failed = failed.filter(|(_, result)| result.is_err());
        let failed: Vec<&str> = failed.map(|(name, _)| name).collect();
        self.take_back(&failed, &mut UndoReport::default());
        results
    }

    fn hand_over_all(&mut self, groups: Vec<(&str, Result<PathBuf>, &Knobs)>) -> Vec<Result<()>> {
        let begun = groups.into_iter().map(|(name, folder, knobs)| {
            let (scheduled, context) = (&mut self.scheduled, &self.context);
            let begun = folder.and_then(|folder| begin(scheduled, context, name, folder, knobs));
            (name, begun)
        });
        let begun: Vec<(&str, Result<()>)> = begun.collect();
        let objects = self.link.objects.clone();
        let (shared, hierarchy) = (self.context.groups.clone(), self.context.hierarchy.clone());
        let known = shared.lock();
        let root = hierarchy.mount_point();
        let mut registrar = objects
            .as_ref()
            .map(|objects| Registrar::new(objects, &known, root));
        let mut results = Vec::with_capacity(begun.len());
        for (name, begun) in begun {
            results.push(begun.and_then(|()| match &mut registrar {
                // A group that has a slot has it from an earlier owner.
                Some(registrar) => register(&mut self.scheduled, name, registrar, false),
                None => Ok(()),
            }));
        }
        results
    }

    /// Returns whether a group has the slot of a cgroup that it had before it was made anew.
    pub(super) fn has_moved(&self, name: &str) -> bool {
        let Some(scheduled) = self.scheduled.get(name) else {
            return false;
        };
        let now = self.folder(name).and_then(|folder| {
            let cgroup_id = slots::cgroup_id(&folder)?;
            Ok((folder, cgroup_id))
        });
        now.is_ok_and(|(folder, id)| folder != scheduled.folder || id != scheduled.cgroup_id)
    }

    /// Changes a group that has a slot. `None`: it has none for the cgroup that it has now.
    pub(super) fn change_in_place(&mut self, group: &GroupPolicy) -> Option<Result<()>> {
        self.scheduled.get(&group.name)?;
        if self.has_moved(&group.name) {
            self.take_back(&[&group.name], &mut UndoReport::default());
            return None;
        }
        Some(self.apply(&group.name, &group.knobs))
    }

    fn apply(&mut self, name: &str, knobs: &Knobs) -> Result<()> {
        let Some(scheduled) = self.scheduled.get_mut(name) else {
            return Ok(());
        };
        let old = std::mem::replace(&mut scheduled.knobs, knobs.clone());
        let applied = self.apply_new(name);
        if applied.is_err()
            && let Some(scheduled) = self.scheduled.get_mut(name)
        {
            scheduled.knobs = old;
        }
        applied
    }

    fn apply_new(&mut self, name: &str) -> Result<()> {
        let Some(scheduled) = self.scheduled.get(name) else {
            return Ok(());
        };
        let (folder, knobs) = (scheduled.folder.clone(), scheduled.knobs.clone());
        let has_slot = !scheduled.waits;
        let (shared, hierarchy) = (self.context.groups.clone(), self.context.hierarchy.clone());
        let mut groups = shared.lock();
        groups.insert(folder, knobs);
        if let (Some(objects), true) = (self.link.objects.clone(), has_slot) {
            let mut registrar = Registrar::new(&objects, &groups, hierarchy.mount_point());
            register(&mut self.scheduled, name, &mut registrar, false)?;
        }
        Ok(())
    }

    /// Takes the slots back of the cgroups that a group had before it was made anew.
    pub(super) fn take_back_behind(&mut self, name: &str) {
        let Some(scheduled) = self.scheduled.get_mut(name) else {
            return;
        };
        let behind = std::mem::take(&mut scheduled.behind);
        if behind.is_empty() {
            return;
        }
        let waited = std::mem::take(&mut scheduled.waits);
        self.take_slots_back(&behind, &mut UndoReport::default());
        if waited {
            // It gets the slot that it has had. If that fails, the next look tries again.
            let _ = self.apply_new(name);
        }
    }

    /// Takes the slots of groups back, whose tasks then belong to the groups around them. Groups
    /// that the scheduler does not have are ignored.
    pub(super) fn take_back(&mut self, names: &[&str], report: &mut UndoReport) {
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            let Some(scheduled) = self.scheduled.remove(*name) else {
                continue;
            };
            taken.push((scheduled.folder, scheduled.cgroup_id));
            taken.extend(scheduled.behind);
        }
        if taken.is_empty() {
            return;
        }
        self.take_slots_back(&taken, report);
    }

    fn take_slots_back(&mut self, cgroups: &[(PathBuf, u64)], report: &mut UndoReport) {
        let shared = self.context.groups.clone();
        let mut groups = shared.lock();
        for (folder, cgroup_id) in cgroups {
            groups.remove(folder);
            let objects = self.link.objects.as_ref();
            let slot = objects.and_then(|objects| slots::slot_of(objects, *cgroup_id));
            if let (Some(objects), Some(slot)) = (objects, slot) {
                let released = slots::release(objects, &groups, slot);
                report
                    .problems
                    .extend(released.err().map(|e| e.to_string()));
                // A waiting group can get the slot.
                self.looks.retry = std::time::Instant::now();
            }
        }
    }
}

/// Adds a group for the supervisor.
fn begin(
    scheduled: &mut ScheduledGroups,
    context: &Context,
    name: &str,
    folder: PathBuf,
    knobs: &Knobs,
) -> Result<()> {
    let cgroup_id = slots::cgroup_id(&folder)?;
    let mut groups = context.groups.lock();
    groups.insert(folder.clone(), knobs.clone());
    drop(groups);
    let begun = Scheduled {
        knobs: knobs.clone(),
        folder,
        cgroup_id,
        slot: None,
        waits: false,
        earlier: Counts::default(),
        behind: Vec::new(),
    };
    scheduled.insert(name.to_owned(), begun);
    Ok(())
}

/// Assigns a group a slot of the scheduler that is loaded now, or finds the one that it has.
/// `is_new`: resets the counters of the slot. Without a free slot the group waits.
pub(super) fn register(
    scheduled: &mut ScheduledGroups,
    name: &str,
    registrar: &mut Registrar<'_>,
    is_new: bool,
) -> Result<()> {
    let Some(scheduled) = scheduled.get_mut(name) else {
        return Ok(());
    };
    match registrar.register(&scheduled.folder, &scheduled.knobs, is_new) {
        Ok(slot) => {
            scheduled.slot = Some(slot);
            scheduled.waits = false;
            Ok(())
        }
        Err(Error::TooManyGroups(_)) => {
            scheduled.slot = None;
            scheduled.waits = true;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Hands the cgroup that was made for a group, maybe anew, to the scheduler, before any process is
/// in it.
pub(super) fn hand_over_made(
    scheduled: &mut ScheduledGroups,
    context: &Context,
    objects: Option<&Objects>,
    name: &str,
    folder: PathBuf,
    knobs: &Knobs,
) -> Result<()> {
    // A cgroup at the same path is gone.
    let is_elsewhere = |before: &Scheduled| before.folder != folder;
    let before = scheduled.remove(name).filter(is_elsewhere);
    let root = context.hierarchy.mount_point();
    let done = begin(scheduled, context, name, folder.clone(), knobs).and_then(|()| {
        let known = context.groups.lock();
        match objects {
            Some(objects) => {
                let mut registrar = Registrar::new(objects, &known, root);
                register(scheduled, name, &mut registrar, true)
            }
            None => Ok(()),
        }
    });
    if done.is_err() {
        scheduled.remove(name);
        context.groups.lock().remove(&folder);
        scheduled.extend(before.map(|before| (name.to_owned(), before)));
    } else if let (Some(before), Some(now)) = (before, scheduled.get_mut(name)) {
        now.earlier = before.counts(objects);
        now.behind = before.behind;
        now.behind.push((before.folder, before.cgroup_id));
    }
    done
}
