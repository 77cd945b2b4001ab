//! Cgroups that somebody else made, whose knobs are changed for as long as
//! this process lives.
//!
//! There may be thousands: no file stays open for one of them, nothing is
//! looked at by a timer, and what is done for one costs the same however many
//! there are. Only a soft cap and headroom take a loop.

mod add;
mod change;
mod check;
mod group;
mod kept;
mod left;
mod values;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use add::give_controller;
pub use check::check_held;
use group::{Held, Prepared, folder_of};
use kept::KeptJournal;
use left::Left;
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, os};
use values::released;

use super::move_entry::move_entry;
use crate::control::headroom::HeadroomDuty;
use crate::control::soft_cap::SoftCapLoop;
use crate::enforcer::Sample;
use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore, Journal};
use crate::knobs::{Class, Knobs};
use crate::runtime::RuntimeFolder;
use crate::undo::{self, UndoReport};

/// All cgroups of others that this process holds, by name.
#[derive(Debug)]
pub(super) struct HeldGroups {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    groups: HashMap<Box<str>, Held>,
    /// Those that have a loop.
    soft_caps: HashMap<Box<str>, SoftCapLoop>,
    /// Of groups that are removed: what the kernel did not take back, because
    /// of limits that are still held above or below.
    late: Vec<FileRestore>,
    /// Of all groups; `None` once they are undone.
    journal: Option<KeptJournal>,
    /// Cgroups of an earlier owner that were not taken over yet.
    left: Left,
}

/// What the name of the journal of cgroups of others begins with: no group can be called so.
pub(super) const JOURNAL: &str = "daemon+";

/// Everything has been put back, and there is no journal any more.
pub(super) fn has_ended() -> EngineError {
    EngineError::Control {
        name: "journal".into(),
        problem: "everything was put back: this owner ends".into(),
    }
}

impl HeldGroups {
    /// Goes on with the journal that an earlier owner has left, whose groups can be taken over
    /// then, or begins one of that name.
    pub fn new(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        name: &str,
        left: Option<Journal>,
    ) -> Result<Self> {
        let mut groups = Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            groups: HashMap::new(),
            soft_caps: HashMap::new(),
            late: Vec::new(),
            journal: None,
            left: Left::default(),
        };
        if let Some(mut journal) = left {
            let entries = journal.read()?.1;
            groups.journal = Some(KeptJournal::go_on(journal, entries.len()));
            (groups.left, groups.late) = Left::of(hierarchy, entries);
        } else {
            groups.journal = Some(KeptJournal::create(runtime, name)?);
        }
        Ok(groups)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// Whether there are cgroups of an earlier owner that were not taken over.
    pub fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether a cgroup of an earlier owner is kept for a group that could not go on with it yet.
    pub fn is_waiting(&self, name: &str) -> bool {
        self.left.is_wanted_by(name)
    }

    fn get(&self, name: &str) -> Result<&Held> {
        let held = self.groups.get(name);
        held.ok_or_else(|| super::enforcer::no_group(name))
    }

    fn get_mut(&mut self, name: &str) -> Result<&mut Held> {
        let held = self.groups.get_mut(name);
        held.ok_or_else(|| super::enforcer::no_group(name))
    }

    /// The cgroup of a group.
    pub fn cgroup(&self, name: &str) -> Result<CpuGroup> {
        Ok(self.get(name)?.cgroup(&self.hierarchy, name))
    }

    pub fn knobs(&self, name: &str) -> Result<&Knobs> {
        Ok(&self.get(name)?.knobs)
    }

    pub fn shown_path(&self, name: &str) -> Result<PathBuf> {
        Ok(Path::new("/").join(self.cgroup(name)?.path()))
    }

    /// Writes down what is about to be done to groups.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        let nr_groups = self.groups.len();
        let journal = self.journal.as_mut().ok_or_else(has_ended)?;
        journal.tidy(nr_groups);
        journal.record(entries)
    }

    /// What is written down of all groups.
    pub fn entries(&mut self) -> Vec<Entry> {
        self.journal
            .as_mut()
            .map_or_else(Vec::new, KeptJournal::entries)
    }

    /// The group is as it should be now.
    fn take(&mut self, prepared: Prepared, duty: &HeadroomDuty) -> Result<()> {
        let Prepared {
            name,
            group,
            mut held,
            knobs,
            values,
            tasks,
            descendants,
            afterwards,
            ..
        } = prepared;
        held.values = values;
        held.tasks = tasks;
        held.descendants = descendants;
        held.foreign_changes.clear();
        let folder = folder_of(&group);
        let is_of_it = |file: &mut FileRestore| file.path.parent() == Some(&folder);
        held.earlier.extend(self.late.extract_if(.., is_of_it));
        let old = std::mem::replace(&mut held.knobs, knobs);
        self.groups.insert(name.clone(), held);
        if let Some(journal) = &mut self.journal {
            journal.note(afterwards);
        }
        self.start_loops(&name, &group, &old, duty)
    }

    /// Starts what has to run from user space.
    fn start_loops(
        &mut self,
        name: &str,
        group: &CpuGroup,
        old: &Knobs,
        duty: &HeadroomDuty,
    ) -> Result<()> {
        self.start_soft_cap(name, group, old)?;
        if let Some(side) = self.get(name)?.side(name, group) {
            duty.add(&side);
        }
        Ok(())
    }

    fn start_soft_cap(&mut self, name: &str, group: &CpuGroup, old: &Knobs) -> Result<()> {
        let knobs = &self.get(name)?.knobs;
        let cap = knobs.soft_cap.filter(|_| knobs.class != Some(Class::Batch));
        let half_life = knobs.half_life.unwrap_or_default();
        let same = (old.soft_cap, old.half_life, old.weight)
            == (knobs.soft_cap, knobs.half_life, knobs.weight);
        match cap {
            Some(_) if same && self.soft_caps.contains_key(name) => (),
            Some(cap) => {
                let weight = match knobs.weight {
                    Some(weight) => weight.weight,
                    None => self.get(name)?.values.weight_at_first(group)?,
                };
                let control = SoftCapLoop::new(group.clone(), (cap, half_life), weight, os::now())?;
                self.soft_caps.insert(name.into(), control);
            }
            None => {
                self.soft_caps.remove(name);
            }
        }
        Ok(())
    }

    /// Sets other knobs; what there was at first is what there will be. A knob
    /// that is asked for no more is put back.
    pub fn change(&mut self, name: &str, knobs: &Knobs, duty: &HeadroomDuty) -> Result<()> {
        check_held(knobs)?;
        let group = self.cgroup(name)?;
        self.get(name)?.check_is_there(&group)?;
        // Somebody may have switched it off since.
        give_controller(&group, &self.runtime)?;
        if knobs.headroom.is_none() {
            // First: what is read and put back must stay as it is.
            duty.remove(name);
        }
        match self.try_change(name, &group, knobs) {
            Ok(prepared) => self.take(prepared, duty),
            Err(error) => {
                if let Some(side) = self.get(name)?.side(name, &group) {
                    duty.add(&side);
                }
                Err(error)
            }
        }
    }

    /// Changes what the kernel has. If that fails, all is as it was before.
    fn try_change(&mut self, name: &str, group: &CpuGroup, knobs: &Knobs) -> Result<Prepared> {
        let mut prepared = Prepared::new(group.clone(), self.get(name)?.known(), knobs)?;
        self.record(&prepared.entries)?;
        if let Err(error) = prepared.execute() {
            let held = self.get_mut(name)?;
            held.keep_unreverted(&prepared.values, &prepared.group);
            return Err(error);
        }
        let held = self.groups.remove(name);
        prepared.name = name.into();
        prepared.held = held.ok_or_else(|| super::enforcer::no_group(name))?;
        Ok(prepared)
    }

    /// Writes again what others have changed.
    pub fn reapply(&mut self, name: &str, duty: &HeadroomDuty) -> Result<()> {
        let knobs = self.knobs(name)?.clone();
        self.change(name, &knobs, duty)
    }

    /// What others have changed since the last time.
    pub fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        let group = self.cgroup(name)?;
        self.get(name)?.check_is_there(&group)?;
        self.get_mut(name)?.audit(&group)
    }

    /// Moves a process in.
    pub fn take_in(&mut self, name: &str, pid: i32, duty: &HeadroomDuty) -> Result<()> {
        let group = self.cgroup(name)?;
        self.get(name)?.check_is_there(&group)?;
        let entry = move_entry(&self.hierarchy, pid)?;
        self.record(std::slice::from_ref(&entry))?;
        if let Err(error) = group.add_process(pid) {
            self.forget_move(pid);
            return Err(error.into());
        }
        self.get_mut(name)?.moved.push(entry);
        match self.get(name)?.knobs.nice {
            // A newcomer gets it too.
            Some(_) => self.reapply(name, duty),
            None => Ok(()),
        }
    }

    /// A process that is written down was not moved: nobody is to move it back. One that was moved
    /// before, to another cgroup, still is.
    fn forget_move(&mut self, pid: i32) {
        let is_of_it =
            |entry: &Entry| matches!(entry, Entry::Move { pid: moved, .. } if *moved == pid);
        let mut groups = self.groups.values();
        if groups.any(|held| held.moved.iter().any(is_of_it)) {
            return;
        }
        if let Some(journal) = &mut self.journal {
            journal.note(vec![Entry::Released {
                paths: Vec::new(),
                tasks: Vec::new(),
                processes: vec![pid],
            }]);
        }
    }

    /// Puts everything of an earlier owner's back that no group wants.
    pub fn finish_adoption(&mut self, report: &mut UndoReport) {
        self.put_left_back(|wanted_by| wanted_by.is_none(), report);
    }

    /// The same of those that such a group wants.
    fn put_left_back(&mut self, is_meant: impl Fn(Option<&str>) -> bool, report: &mut UndoReport) {
        let left = self.left.take(&self.hierarchy, is_meant);
        let (mut files, mut noted) = (std::mem::take(&mut self.late), Vec::new());
        for (group, held) in &left {
            held.restore_tasks(group, report);
            files.extend(held.restores(group));
            noted.push(held.released(group));
            report.undone.push(format!("/{}", group.path().display()));
        }
        let refused = undo::try_restore_files(&files, report);
        self.late = refused.into_iter().map(|(file, _)| file.clone()).collect();
        noted.extend(self.late.iter().map(FileRestore::entry));
        if let Some(journal) = self.journal.as_mut().filter(|_| !left.is_empty()) {
            journal.note(noted);
        }
    }

    /// Puts everything of one group back.
    pub fn remove(&mut self, name: &str, duty: &HeadroomDuty) -> Result<UndoReport> {
        if self.left.is_wanted_by(name) {
            let mut report = UndoReport::default();
            self.put_left_back(|wanted_by| wanted_by == Some(name), &mut report);
            return Ok(report);
        }
        let nr_groups = self.groups.len();
        let held = self.groups.remove(name);
        let held = held.ok_or_else(|| super::enforcer::no_group(name))?;
        let group = held.cgroup(&self.hierarchy, name);
        let mut report = UndoReport::default();
        self.soft_caps.remove(name);
        duty.remove(name);
        held.restore_tasks(&group, &mut report);
        let mut files = std::mem::take(&mut self.late);
        let mut noted: Vec<Entry> = files.iter().map(|file| released(&file.path)).collect();
        files.extend(held.restores(&group));
        let refused = undo::try_restore_files(&files, &mut report);
        // What waits for the limits of others is no news.
        let is_told = |error: &EngineError| !undo::is_refused(error);
        let told = refused.iter().filter(|(_, error)| is_told(error));
        let told = told.map(|(_, error)| format!("{error}; it will be tried again"));
        report.problems.extend(told);
        self.late = refused.into_iter().map(|(file, _)| file.clone()).collect();
        report.undone.push(name.into());
        if let Some(journal) = &mut self.journal {
            noted.push(held.released(&group));
            noted.extend(self.late.iter().map(FileRestore::entry));
            journal.note(noted);
            journal.tidy(nr_groups);
        }
        Ok(report)
    }

    /// Puts everything back.
    pub fn undo(&mut self, duty: &HeadroomDuty, report: &mut UndoReport) {
        for (name, held) in &self.groups {
            if held.knobs.headroom.is_some() {
                duty.remove(name);
            }
        }
        self.undo_alone(report);
    }

    fn undo_alone(&mut self, report: &mut UndoReport) {
        self.put_left_back(|_| true, report);
        self.undo_groups(report);
        let Some(journal) = self.journal.take() else {
            return;
        };
        let mut rest = UndoReport::default();
        let undone = undo::undo_journal(journal.into_journal(), &mut rest);
        report.problems.extend(rest.problems);
        report
            .problems
            .extend(undone.err().map(|error| error.to_string()));
    }

    /// Puts all back but what an earlier owner has left.
    fn undo_groups(&mut self, report: &mut UndoReport) {
        self.soft_caps.clear();
        let mut files = std::mem::take(&mut self.late);
        let mut released = files
            .iter()
            .map(|file| released(&file.path))
            .collect::<Vec<_>>();
        for (name, held) in std::mem::take(&mut self.groups) {
            let group = held.cgroup(&self.hierarchy, &name);
            held.restore_tasks(&group, report);
            files.extend(held.restores(&group));
            released.push(held.released(&group));
            report.undone.push(name.into());
        }
        // All at once: the kernel may take some only after others.
        let refused = undo::try_restore_files(&files, report);
        let Some(journal) = &mut self.journal else {
            let refused = refused.into_iter().map(|(_, error)| error.to_string());
            return report.problems.extend(refused);
        };
        // They are tried again with the journal, and if need be by whoever
        // finds that.
        released.extend(refused.iter().map(|(file, _)| file.entry()));
        journal.note(released);
    }

    /// Does what falls due; returns when to call again.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        let mut first_error = None;
        self.soft_caps.retain(|_, control| match control.tick(now) {
            Ok(due) => {
                next = Some(next.map_or(due, |next| next.min(due)));
                true
            }
            // It has nothing to limit any more.
            Err(error) if error.is_gone() => false,
            Err(error) => {
                first_error.get_or_insert(error);
                true
            }
        });
        first_error.map_or(Ok(next), Err)
    }

    /// What a group has used.
    pub fn sample(&self, name: &str, duty: &HeadroomDuty) -> Result<Sample> {
        let held = self.get(name)?;
        let mut sample = held.sample(&self.cgroup(name)?)?;
        sample.headroom = held.knobs.headroom.and_then(|_| duty.sample());
        sample.soft_cap = self.soft_caps.get(name).map(SoftCapLoop::sample);
        Ok(sample)
    }

    /// Whether a group is over its soft cap.
    pub fn is_background(&self, name: &str) -> bool {
        let soft_cap = self.soft_caps.get(name);
        soft_cap.is_some_and(|soft_cap| soft_cap.sample().background)
    }

    pub fn usage_usec(&self, name: &str) -> Result<u64> {
        Ok(self.cgroup(name)?.usage_usec()?)
    }
}

impl Drop for HeldGroups {
    /// On a panic, or when the owner cannot start after all: what an earlier owner has left stays
    /// as it is, for the next one. Whoever owns this has cleared the headroom's duty by now.
    fn drop(&mut self) {
        let mut report = UndoReport::default();
        if self.left.is_empty() {
            self.undo_alone(&mut report);
        } else {
            self.undo_groups(&mut report);
        }
    }
}
