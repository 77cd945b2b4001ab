//! Handover of groups to the scheduler and back: cgroup, slot, tasks.

use std::ops::Bound;
use std::path::PathBuf;

use plimsoll_engine::host::Mode;
use plimsoll_engine::journal::Entry;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::policies::Policies;
use plimsoll_engine::undo::{self, UndoReport};
use plimsoll_engine::{EngineError, Result};

use super::SchedExtEnforcer;
use crate::control_error::ControlError;
use crate::machine;
use crate::members::Members;
use crate::objects::Objects;
use crate::sample::Counts;
use crate::slots::{self, Registrar};
use crate::supervisor::Groups;

/// With more slots than this, the demand of all groups is summed up once for many changes, and not
/// after each.
const SLOTS_AT_ONCE: u32 = 64;

/// A group that the scheduler schedules.
#[derive(Debug)]
pub(super) struct Scheduled {
    pub knobs: Knobs,
    /// The folder of its cgroup.
    pub folder: PathBuf,
    /// The kernel's id of that, which may be gone.
    pub cgroup_id: u64,
    /// Its slot in the scheduler that is loaded now, if one is.
    pub slot: Option<u32>,
    /// All slots were taken: it is in the background by stock knobs alone.
    pub waits: bool,
    pub members: Members,
    /// Its counters in earlier schedulers.
    pub earlier: Counts,
}

impl Scheduled {
    /// Message about knobs that are not in force.
    pub fn problem(&self, mode: Mode) -> Option<String> {
        let left = match mode {
            Mode::Partial => "it is in the background by the kernel's idle mark alone",
            Mode::All => "no limit of it holds",
        };
        let full = ControlError::TooManyGroups(slots::NR_SLOTS);
        self.waits
            .then(|| format!("{full}; until one of them is removed {left}"))
    }
}

/// Copies a failure for another group.
fn copy_of(error: &EngineError) -> EngineError {
    EngineError::SchedExt {
        problem: error.to_string(),
    }
}

impl SchedExtEnforcer {
    /// Hands new groups, whose cgroups exist, to the scheduler. Each succeeds or fails by itself.
    pub(super) fn hand_over_new(&mut self, groups: &[(&str, &Knobs)]) -> Vec<Result<()>> {
        let policies = Policies::new(libc::SCHED_OTHER).with(&self.left_policies);
        let groups = groups.iter();
        let groups = groups.map(|(name, knobs)| (*name, *knobs, policies.clone()));
        self.hand_over(groups.collect())
    }

    /// The same for groups with tasks that the scheduler had before, whose former policies are
    /// given.
    pub(super) fn hand_over(&mut self, groups: Vec<(&str, &Knobs, Policies)>) -> Vec<Result<()>> {
        let names: Vec<&str> = groups.iter().map(|(name, ..)| *name).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let mut results = self.hand_over_all(groups);
        let mut failed = Vec::new();
        for (name, result) in names.into_iter().zip(&mut results) {
            if result.is_ok() {
                *result = self.sweep(name);
            }
            if result.is_err() {
                failed.push(name);
            }
        }
        self.take_back(&failed, &mut UndoReport::default());
        results
    }

    fn hand_over_all(&mut self, groups: Vec<(&str, &Knobs, Policies)>) -> Vec<Result<()>> {
        let begun: Vec<(&str, Result<()>)> = groups
            .into_iter()
            .map(|(name, knobs, policies)| (name, self.begin(name, knobs, policies)))
            .collect();
        let objects = self.objects.clone();
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
                Some(registrar) => self.register(name, registrar, false),
                None => Ok(()),
            }));
        }
        let nested = registrar.map_or(Ok(()), |registrar| registrar.nest());
        let machine_set = self.set_machine(&known);
        if let Err(error) = nested.map_err(EngineError::from).and(machine_set) {
            results = results
                .into_iter()
                .map(|result| result.and_then(|()| Err(copy_of(&error))))
                .collect();
        }
        results
    }

    /// Adds a group for the supervisor, and records it for undo.
    fn begin(&mut self, name: &str, knobs: &Knobs, policies: Policies) -> Result<()> {
        let folder = self.folder(name)?;
        let cgroup_id = slots::cgroup_id(&folder)?;
        let policy = policies.default_policy();
        let is_known = |entry: &Entry| matches!(entry, Entry::Schedule { folder: left, .. } if *left == folder);
        if self.is_partial() && !self.left_policies.iter().any(is_known) {
            let folder = folder.clone();
            self.record(name, &[Entry::Schedule { folder, policy }])?;
        }
        self.context
            .groups
            .lock()
            .insert(folder.clone(), knobs.clone());
        let scheduled = Scheduled {
            knobs: knobs.clone(),
            folder,
            cgroup_id,
            slot: None,
            waits: false,
            members: Members::new(policies),
            earlier: Counts::default(),
        };
        self.scheduled.insert(name.to_owned(), scheduled);
        Ok(())
    }

    /// Assigns a group a slot of the scheduler that is loaded now, or finds the one that it has.
    /// `is_new`: resets the counters of the slot. Without a free slot the group waits.
    pub(super) fn register(
        &mut self,
        name: &str,
        registrar: &mut Registrar<'_>,
        is_new: bool,
    ) -> Result<()> {
        let Some(scheduled) = self.scheduled.get_mut(name) else {
            return Ok(());
        };
        match registrar.register(&scheduled.folder, &scheduled.knobs, is_new) {
            Ok(slot) => {
                scheduled.slot = Some(slot);
                scheduled.waits = false;
                Ok(())
            }
            Err(ControlError::TooManyGroups(_)) => {
                scheduled.slot = None;
                scheduled.waits = true;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the merged demand of the groups in the scheduler: at once, or, if that takes long, at
    /// the next scan.
    pub(super) fn set_machine(&mut self, groups: &Groups) -> Result<()> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        self.recent_headroom.forget();
        if objects.shared.nr_slots_used() > SLOTS_AT_ONCE {
            self.machine_is_stale = true;
            self.looked = None;
            return Ok(());
        }
        self.machine_is_stale = false;
        Ok(machine::refresh(objects, groups)?)
    }

    /// Changes the parameters of a group.
    pub(super) fn apply(&mut self, name: &str, knobs: &Knobs) -> Result<()> {
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
        if let (Some(objects), true) = (self.objects.clone(), has_slot) {
            let mut registrar = Registrar::new(&objects, &groups, hierarchy.mount_point());
            self.register(name, &mut registrar, false)?;
        }
        self.set_machine(&groups)
    }

    /// Removes groups from the scheduler: their tasks, then their slots. Groups that the scheduler
    /// does not have are ignored.
    pub(super) fn take_back(&mut self, names: &[&str], report: &mut UndoReport) {
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            let Some(scheduled) = self.scheduled.remove(*name) else {
                continue;
            };
            if self.is_partial() {
                let (apart, policies) = (self.inside(name), &scheduled.members.policies);
                let done = undo::unschedule(&scheduled.folder, &apart, policies);
                note(report, done);
            }
            taken.push((*name, scheduled));
        }
        if taken.is_empty() {
            return;
        }
        self.take_slots_back(&taken, report);
        for name in self.around(&taken) {
            note(report, self.sweep(&name));
        }
    }

    fn take_slots_back(&mut self, taken: &[(&str, Scheduled)], report: &mut UndoReport) {
        let shared = self.context.groups.clone();
        let mut groups = shared.lock();
        let mut was_around = false;
        for (_, scheduled) in taken {
            was_around |= slots::has_cgroups_below(&scheduled.folder);
            groups.remove(&scheduled.folder);
            if let (Some(objects), Some(slot)) = (&self.objects, scheduled.slot) {
                note(report, release(objects, &groups, slot, scheduled.cgroup_id));
                // A waiting group can get the slot.
                self.retry = std::time::Instant::now();
            }
        }
        if let (Some(objects), true) = (&self.objects, was_around) {
            let root = self.context.hierarchy.mount_point();
            let nested = slots::nest(objects, &groups, root);
            note(report, nested.map_err(EngineError::from));
        }
        note(report, self.set_machine(&groups));
    }

    /// The cgroups of other groups inside that of a group, whose tasks are not the group's. A
    /// cgroup's group has its path as name.
    pub(super) fn inside(&self, name: &str) -> Vec<PathBuf> {
        let start = format!("{name}/");
        let later = (Bound::Included(&*start), Bound::Unbounded);
        let later = self.scheduled.range::<str, _>(later);
        let inside = later.take_while(|(name, _)| name.starts_with(&start));
        let placed = inside.filter(|(_, group)| !group.waits);
        placed.map(|(_, group)| group.folder.clone()).collect()
    }

    /// The remaining groups around removed groups, which get their tasks.
    fn around(&self, taken: &[(&str, Scheduled)]) -> Vec<String> {
        let is_around = |group: &Scheduled| {
            let mut gone = taken.iter().map(|(_, gone)| gone);
            gone.any(|gone| gone.folder.starts_with(&group.folder))
        };
        let stay = self.scheduled.iter();
        let stay = stay.filter(|(_, group)| is_around(group));
        stay.map(|(name, _)| name.clone()).collect()
    }

    /// Removes one group, and reports problems as messages.
    pub(super) fn take_back_and_report(&mut self, name: &str) {
        let mut report = UndoReport::default();
        self.take_back(&[name], &mut report);
        for problem in report.problems {
            self.context.messages.report(problem);
        }
    }

    /// Finds new tasks, and sets the scheduler's policy for them.
    pub(super) fn sweep(&mut self, name: &str) -> Result<()> {
        if !self.is_partial() {
            return Ok(());
        }
        let apart = self.inside(name);
        let scheduled = self.scheduled.get_mut(name);
        let Some(scheduled) = scheduled.filter(|scheduled| !scheduled.waits) else {
            return Ok(());
        };
        let objects = self.objects.as_ref();
        let is_moved = |tid, policy| objects.is_some_and(|objects| objects.is_moved(tid, policy));
        let found = scheduled.members.look(&scheduled.folder, &apart, is_moved);
        if found.is_empty() {
            return Ok(());
        }
        let entries = scheduled.members.to_record(&found);
        if !entries.is_empty() {
            self.record(name, &entries)?;
        }
        if let Some(scheduled) = self.scheduled.get_mut(name) {
            let objects = self.objects.as_ref();
            let is_late = |tid| objects.is_some_and(|objects| objects.is_late(tid));
            for message in scheduled.members.take(&found, &entries, is_late) {
                self.context.messages.report(message);
            }
        }
        Ok(())
    }
}

fn note(report: &mut UndoReport, result: Result<()>) {
    report.problems.extend(result.err().map(|e| e.to_string()));
}

/// Frees a slot, unless it was freed already.
fn release(objects: &Objects, groups: &Groups, slot: u32, cgroup_id: u64) -> Result<()> {
    if !slots::is_slot_of(objects, slot, cgroup_id) {
        return Ok(());
    }
    slots::release(objects, groups, slot).map_err(EngineError::from)
}
