//! Groups go to the scheduler and come back: cgroup, slot, tasks.

use std::path::{Path, PathBuf};

use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::journal::Entry;
use plimsoll_engine::policies::Policies;
use plimsoll_engine::policy_set::Selector;
use plimsoll_engine::runtime::RuntimeLock;
use plimsoll_engine::scheduled::ScheduledGroup;
use plimsoll_engine::tasks::{self, Policy};
use plimsoll_engine::undo::{self, UndoReport};
use plimsoll_engine::{EngineError, Result};

use super::SchedExtEnforcer;
use crate::machine::{self, Demand};
use crate::members::Members;
use crate::sample::Counts;
use crate::slots::{self, Place};

/// A group that the scheduler schedules.
#[derive(Debug)]
pub(super) struct Scheduled {
    /// The folder of its cgroup.
    pub folder: PathBuf,
    /// Its place in the scheduler that is loaded now, if one is.
    pub slot: Option<u32>,
    pub members: Members,
    /// What earlier schedulers have counted of it.
    pub earlier: Counts,
}

/// The policy of what this process starts.
fn own_policy() -> i32 {
    let own = tasks::policy_number(0).filter(|number| Policy::of(*number) == Policy::Fair);
    own.map_or(libc::SCHED_OTHER, |number| {
        number & !libc::SCHED_RESET_ON_FORK
    })
}

impl SchedExtEnforcer {
    /// Hands a group, whose cgroup is there, to the scheduler.
    pub(super) fn hand_over_new(&mut self, index: usize) -> Result<()> {
        let policy = match self.groups[index].selector {
            Selector::Command => own_policy(),
            _ => libc::SCHED_OTHER,
        };
        self.hand_over(index, Policies::new(policy))
    }

    /// The same with tasks that the scheduler had before: `policies` is what
    /// they get back.
    pub(super) fn hand_over(&mut self, index: usize, policies: Policies) -> Result<()> {
        let folder = self.cgroup(index)?.cpu_file("");
        let policy = policies.default_policy();
        // First: another process may have the cgroup, and its tasks.
        self.announce_new(index, &folder)?;
        self.groups[index].scheduled = Some(Scheduled {
            folder: folder.clone(),
            slot: None,
            members: Members::new(policies),
            earlier: Counts::default(),
        });
        if self.is_partial() {
            self.record(index, &[Entry::Schedule { folder, policy }])?;
        }
        self.register(index, true)?;
        self.tell_larger_headroom(index);
        self.sweep(index)
    }

    /// Lets whoever loads the scheduler again know of a group.
    fn announce_new(&mut self, index: usize, folder: &Path) -> Result<()> {
        let runtime = self.context.runtime.clone();
        let lock = runtime.lock()?;
        let group = self.announcement(index, folder);
        // What is in our journal is removed in the end: it must be ours.
        group.check_free(&runtime, &lock)?;
        let path = ScheduledGroup::file(&runtime, folder);
        self.record(index, &[Entry::Publish { path }])?;
        group.announce(&runtime, &lock)
    }

    fn announcement(&self, index: usize, folder: &Path) -> ScheduledGroup {
        let group = &self.groups[index];
        ScheduledGroup {
            name: group.name.clone(),
            folder: folder.to_owned(),
            knobs: group.knobs.clone(),
            journal: Some(self.stock.journal_name(&group.name).to_owned()),
        }
    }

    /// The announcement is gone, and may be somebody else's from now on.
    fn withdraw(&mut self, index: usize, folder: &Path, lock: &RuntimeLock) -> Result<()> {
        let runtime = &self.context.runtime;
        ScheduledGroup::withdraw(runtime, lock, folder);
        let released = Entry::Released {
            paths: vec![ScheduledGroup::file(runtime, folder)],
            tasks: Vec::new(),
            processes: Vec::new(),
        };
        self.record(index, &[released])
    }

    /// Gives a group a slot of the scheduler that is loaded now, or finds the
    /// one that it has. `is_new`: what the slot has counted is not the group's.
    pub(super) fn register(&mut self, index: usize, is_new: bool) -> Result<()> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let group = &mut self.groups[index];
        let Some(scheduled) = &mut group.scheduled else {
            return Ok(());
        };
        let place = Place {
            root: self.context.hierarchy.mount_point(),
            folder: &scheduled.folder,
        };
        let lock = self.context.runtime.lock()?;
        let slot = slots::register(objects, &lock, place, &group.knobs, is_new)?;
        scheduled.slot = Some(slot);
        Ok(machine::refresh(objects, &lock)?)
    }

    /// Changes the parameters of a group.
    pub(super) fn apply(&mut self, index: usize) -> Result<()> {
        let Some(scheduled) = &self.groups[index].scheduled else {
            return Ok(());
        };
        let group = self.announcement(index, &scheduled.folder);
        let runtime = &self.context.runtime;
        group.announce(runtime, &runtime.lock()?)?;
        self.register(index, false)?;
        self.tell_larger_headroom(index);
        Ok(())
    }

    /// Several groups may ask for headroom: the largest demand holds.
    fn tell_larger_headroom(&self, index: usize) {
        let (Some(objects), Some(own)) = (&self.objects, self.groups[index].knobs.headroom) else {
            return;
        };
        let in_force = Demand::now(objects).in_force(nr_cpus_online());
        if let Some(larger) = in_force.filter(|larger| *larger != own) {
            self.context.messages.tell(format!(
                "headroom {own}: another group asks for more, {larger}, which holds for all"
            ));
        }
    }

    /// Takes a group back from the scheduler: its tasks, then its slot.
    pub(super) fn take_back(&mut self, index: usize, report: &mut UndoReport) {
        let Some(scheduled) = self.groups[index].scheduled.take() else {
            return;
        };
        let mut note = |result: Result<()>| {
            report.problems.extend(result.err().map(|e| e.to_string()));
        };
        if self.is_partial() {
            let policies = &scheduled.members.policies;
            note(undo::unschedule(&scheduled.folder, policies));
        }
        let lock = match self.context.runtime.lock() {
            Ok(lock) => lock,
            Err(error) => return note(Err(error)),
        };
        note(self.withdraw(index, &scheduled.folder, &lock));
        if let (Some(objects), Some(slot)) = (&self.objects, scheduled.slot) {
            // Unless it has been taken back already.
            if slots::is_slot_of(objects, slot, &scheduled.folder) {
                note(slots::release(objects, &lock, slot).map_err(EngineError::from));
            }
            note(machine::refresh(objects, &lock).map_err(EngineError::from));
        }
    }

    /// Looks for tasks that have come, and gives them the scheduler's policy.
    pub(super) fn sweep(&mut self, index: usize) -> Result<()> {
        if !self.is_partial() {
            return Ok(());
        }
        let Some(scheduled) = &mut self.groups[index].scheduled else {
            return Ok(());
        };
        let objects = self.objects.as_ref();
        let is_lent = |tid, policy| objects.is_some_and(|objects| objects.is_lent(tid, policy));
        let found = scheduled.members.look(&scheduled.folder, is_lent);
        if found.is_empty() {
            return Ok(());
        }
        let entries = scheduled.members.to_record(&found);
        if !entries.is_empty() {
            self.record(index, &entries)?;
        }
        if let Some(scheduled) = &mut self.groups[index].scheduled {
            let objects = self.objects.as_ref();
            let is_late = |tid| objects.is_some_and(|objects| objects.is_late(tid));
            for message in scheduled.members.take(&found, &entries, is_late) {
                self.context.messages.tell(message);
            }
        }
        Ok(())
    }
}
