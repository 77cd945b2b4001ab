//! The enforcer for stock kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, os, threads_below};

use super::held::{self, HeldGroups};
use super::managed::ManagedGroup;
use crate::bandwidth_slice::MachineSlice;
use crate::control::headroom::HeadroomDuty;
use crate::control::task_rates::TaskMeter;
use crate::enforcer::{Enforcer, HeadroomSample, Membership, Sample, TaskRates};
use crate::error::{EngineError, Result};
use crate::host::Capabilities;
use crate::journal::{self, Entry, Journal};
use crate::knobs::{BandwidthSlice, Knobs};
use crate::policy_set::{GroupPolicy, Selector};
use crate::runtime::RuntimeFolder;
use crate::tasks;
use crate::undo::{self, UndoReport};

/// Makes knobs come true through control groups, version 1 or 2.
///
/// A group whose selector is a cgroup of somebody else's is that cgroup; its
/// name may be any, such as its path with a `/` in front. Its knobs are set
/// on it, nothing is moved. Its nice level is given to the tasks that are in
/// it at that time, those that come later have their own.
#[derive(Debug)]
pub struct CgroupEnforcer {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    capabilities: Capabilities,
    duty: HeadroomDuty,
    groups: BTreeMap<String, ManagedGroup>,
    held: HeldGroups,
    task_meter: TaskMeter,
    slice: MachineSlice,
    /// Nobody else notices what others write.
    audits: bool,
    /// The journals of an earlier owner whose groups were not taken over yet, by name.
    left: BTreeMap<String, Journal>,
    /// Groups that were taken over, but do not have all that was asked for yet, or are among those
    /// that are left.
    unsettled: BTreeSet<String>,
    /// Journals of groups that were removed, of which the kernel has refused something, and one of
    /// an earlier owner that could not be undone.
    refused: Vec<PathBuf>,
}

pub(super) fn no_group(name: &str) -> EngineError {
    EngineError::NoTarget {
        target: name.into(),
        what: "group",
    }
}

impl CgroupEnforcer {
    /// Checks that this process may change anything, and undoes what earlier
    /// ones left behind.
    ///
    /// # Errors
    /// When there is no permission; it says what would give it.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        let (mut enforcer, mut report) = Self::adopting(hierarchy, runtime)?;
        report.extend(enforcer.finish_adoption());
        Ok((enforcer, report))
    }

    /// The same, but groups that an earlier owner has left are taken over when they are added:
    /// they stay limited as they are, and only differences are written. The others are undone by
    /// [`Enforcer::finish_adoption`].
    ///
    /// # Errors
    /// When there is no permission; it says what would give it.
    pub fn adopting(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        hierarchy.check_permission()?;
        runtime.create()?;
        let mut left = adoptable(runtime)?;
        let mut left_behind = undo::recover(runtime, false)?;
        let (name, journal) = journal_of_others(runtime, &mut left);
        let path = Journal::path_of(runtime.path(), held::JOURNAL);
        let mut refused = Vec::new();
        if name != held::JOURNAL && os::exists(&path) {
            refused.push(path);
            left_behind.problems.push(format!(
                "a journal `{}` that cannot be undone is left; cgroups of others are in `{name}` \
                 now",
                held::JOURNAL
            ));
        }
        let held = HeldGroups::new(hierarchy, runtime, &name, journal)?;
        let enforcer = Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            capabilities: Capabilities::of_this_host(hierarchy),
            duty: HeadroomDuty::new(hierarchy),
            groups: BTreeMap::new(),
            held,
            task_meter: TaskMeter::default(),
            slice: MachineSlice::default(),
            audits: true,
            left,
            unsettled: BTreeSet::new(),
            refused,
        };
        Ok((enforcer, left_behind))
    }

    fn group(&self, name: &str) -> Result<&ManagedGroup> {
        self.groups.get(name).ok_or_else(|| no_group(name))
    }

    fn group_mut(&mut self, name: &str) -> Result<&mut ManagedGroup> {
        self.groups.get_mut(name).ok_or_else(|| no_group(name))
    }

    /// A group's outermost cgroup.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn cgroup(&self, name: &str) -> Result<CpuGroup> {
        if self.held.contains(name) {
            return self.held.cgroup(name);
        }
        Ok(self.group(name)?.cgroup().clone())
    }

    /// Writes into a group's journal what another enforcer is about to do
    /// with it, so that it is undone before the group is.
    ///
    /// # Errors
    /// When there is no such group, or the journal cannot be kept.
    pub fn record(&mut self, name: &str, entries: &[Entry]) -> Result<()> {
        if self.held.contains(name) {
            return self.held.record(entries);
        }
        self.group_mut(name)?.record(entries)
    }

    /// Takes over what an earlier owner has left of a group. One that cannot be gone on with is
    /// undone. `None`: there is nothing.
    fn adopt(&mut self, group: &GroupPolicy) -> Result<Option<ManagedGroup>> {
        let Some(mut journal) = self.left.remove(&group.name) else {
            return Ok(None);
        };
        match ManagedGroup::adopt(&self.hierarchy, &self.runtime, &mut journal) {
            Ok(None) => {
                undo::undo_journal(journal, &mut UndoReport::default())?;
                Ok(None)
            }
            Ok(adopted) => Ok(adopted),
            Err(error) => {
                // Limited as it was, it is tried again.
                self.left.insert(group.name.clone(), journal);
                self.unsettled.insert(group.name.clone());
                Err(error)
            }
        }
    }

    /// The entries of an earlier owner's journals that say which policies tasks had.
    pub fn left_policies(&mut self) -> Vec<Entry> {
        let read = |journal: &mut Journal| journal.read_sound().map(|sound| sound.entries);
        let of_own = self.left.values_mut().flat_map(read).flatten();
        let entries = of_own.chain(self.held.entries());
        let is_policy =
            |entry: &Entry| matches!(entry, Entry::Schedule { .. } | Entry::Repolicy { .. });
        entries.filter(is_policy).collect()
    }

    /// Moves this process out of groups that it took over: a command of one of them may have
    /// started it, and the owner is to be limited by none.
    fn leave_groups(&self) -> Result<()> {
        let own = std::process::id().cast_signed();
        // The command of one group may have come from another.
        for _ in 0..self.groups.len() {
            let place = self.hierarchy.cgroup_of(own)?;
            let is_around = |group: &&ManagedGroup| place.starts_with(group.cgroup().path());
            let Some(group) = self.groups.values().find(is_around) else {
                break;
            };
            group.evacuate(own)?;
        }
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if self.groups.contains_key(name) || self.held.contains(name) {
            return Err(EngineError::NameTaken { name: name.into() });
        }
        Ok(())
    }

    fn add_own(&mut self, group: &GroupPolicy, subject: &str) -> Result<()> {
        let was_adopted = self.unsettled.remove(&group.name);
        let adopted = match self.groups.remove(&group.name).filter(|_| was_adopted) {
            Some(managed) => Some(managed),
            None => {
                self.check_name(&group.name)?;
                self.adopt(group)?
            }
        };
        if let Some(mut managed) = adopted {
            let done = managed.change(&group.knobs, &self.duty);
            let done = done.and_then(|()| match group.selector {
                Selector::Process(pid) => match managed.take_in(pid) {
                    // It has ended since; others of its group may run on.
                    Err(_) if tasks::start_time(pid).is_none() => Ok(()),
                    taken => taken,
                },
                _ => Ok(()),
            });
            if done.is_err() {
                // Limited as it was, it is tried again.
                self.unsettled.insert(group.name.clone());
            }
            self.groups.insert(group.name.clone(), managed);
            return done;
        }
        let managed =
            ManagedGroup::create(&self.hierarchy, &self.runtime, group, subject, &self.duty)?;
        self.groups.insert(group.name.clone(), managed);
        Ok(())
    }
}

impl Drop for CgroupEnforcer {
    /// On a panic: groups undo themselves, and nothing needs what they share any more. What an
    /// earlier owner has left stays, for the next one.
    fn drop(&mut self) {
        // First: what is put back must stay as it was.
        self.duty.clear();
        self.groups.clear();
        if self.left.is_empty() && !self.held.has_left() {
            let _ = self.runtime.release_shared();
        }
    }
}

/// The journals of groups that an earlier owner has left in this boot, by the group's name. They
/// are locked from here on.
fn adoptable(runtime: &RuntimeFolder) -> Result<BTreeMap<String, Journal>> {
    let mut found = BTreeMap::new();
    for path in journal::list(runtime.path())? {
        let Some(mut journal) = Journal::take_over(&path)? else {
            continue;
        };
        let Ok(sound) = journal.read_sound() else {
            continue;
        };
        let Some(header) = sound.header.filter(|_| sound.damaged.is_empty()) else {
            continue;
        };
        let is_group = !header.persistent && !header.name.starts_with('.');
        if is_group && header.boot.is_some() && !header.is_of_another_boot() {
            found.insert(header.name, journal);
        }
    }
    Ok(found)
}

/// The journal of cgroups of others, by its name: of an earlier owner, or one to begin. Where there
/// is one that cannot be had, of another version, say, it has another name.
fn journal_of_others(
    runtime: &RuntimeFolder,
    left: &mut BTreeMap<String, Journal>,
) -> (String, Option<Journal>) {
    let mut names = left.keys();
    let found = names.find(|name| name.starts_with(held::JOURNAL)).cloned();
    if let Some((name, journal)) = found.and_then(|name| left.remove_entry(&name)) {
        return (name, Some(journal));
    }
    let name = held::JOURNAL.to_owned();
    match os::exists(&Journal::path_of(runtime.path(), &name)) {
        true => (format!("{name}{}", std::process::id()), None),
        false => (name, None),
    }
}

fn is_held(group: &GroupPolicy) -> bool {
    matches!(group.selector, Selector::Cgroup(_))
}

impl Enforcer for CgroupEnforcer {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn add(&mut self, group: &GroupPolicy, subject: &str) -> Result<()> {
        if !is_held(group) {
            return self.add_own(group, subject);
        }
        self.check_name(&group.name)?;
        let results = self.held.add_all(&[group], &self.duty);
        results.into_iter().collect()
    }

    fn add_all(&mut self, groups: &[(GroupPolicy, String)]) -> Vec<Result<()>> {
        let (mut held, mut results) = (Vec::new(), Vec::new());
        for (index, (group, subject)) in groups.iter().enumerate() {
            let done = if is_held(group) {
                self.check_name(&group.name)
            } else {
                self.add_own(group, subject)
            };
            if is_held(group) && done.is_ok() {
                held.push((index, group));
            }
            results.push(done);
        }
        // All at once.
        let policies: Vec<&GroupPolicy> = held.iter().map(|(_, group)| *group).collect();
        let done = self.held.add_all(&policies, &self.duty);
        for ((index, _), done) in held.into_iter().zip(done) {
            results[index] = done;
        }
        results
    }

    fn add_process(&mut self, name: &str, pid: i32) -> Result<()> {
        if self.held.contains(name) {
            return self.held.take_in(name, pid, &self.duty);
        }
        self.group_mut(name)?.take_in(pid)
    }

    fn remove(&mut self, name: &str) -> Result<UndoReport> {
        self.task_meter.forget(name);
        if self.held.contains(name) || self.held.is_waiting(name) {
            return self.held.remove(name, &self.duty);
        }
        let mut report = UndoReport::default();
        if self.unsettled.remove(name)
            && let Some(journal) = self.left.remove(name)
        {
            undo::undo_journal(journal, &mut report)?;
            return Ok(report);
        }
        let mut group = self.groups.remove(name).ok_or_else(|| no_group(name))?;
        group.undo(&self.duty, &mut report);
        if !report.problems.is_empty() {
            self.refused
                .push(Journal::path_of(self.runtime.path(), name));
        }
        Ok(report)
    }

    fn leave_audits_to_caller(&mut self) {
        self.audits = false;
    }

    fn set_bandwidth_slice(&mut self, slice: Option<BandwidthSlice>) -> Result<()> {
        self.slice.set(slice, &self.hierarchy, &self.runtime)
    }

    fn finish_adoption(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        self.held.finish_adoption(&mut report);
        if let Err(error) = self.leave_groups() {
            report.problems.push(error.to_string());
        }
        let (waiting, left): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.left)
            .into_iter()
            .partition(|(name, _)| self.unsettled.contains(name));
        self.left = waiting;
        for (name, journal) in left {
            if let Err(error) = undo::undo_journal(journal, &mut report) {
                report.problems.push(format!("{name}: {error}"));
            }
        }
        if let Err(error) = self.runtime.release_parents() {
            report.problems.push(error.to_string());
        }
        report
    }

    fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        if self.held.contains(name) {
            return self.held.audit(name);
        }
        Ok(self.group_mut(name)?.audit())
    }

    fn reapply(&mut self, name: &str) -> Result<()> {
        if self.held.contains(name) {
            return self.held.reapply(name, &self.duty);
        }
        let group = self.groups.get_mut(name).ok_or_else(|| no_group(name))?;
        group.reapply(&self.duty)
    }

    fn membership(&self, name: &str) -> Result<Membership> {
        if self.held.contains(name) {
            return Membership::of(&self.held.cgroup(name)?);
        }
        self.group(name)?.membership()
    }

    fn knobs(&self, name: &str) -> Result<&Knobs> {
        if self.held.contains(name) {
            return self.held.knobs(name);
        }
        Ok(self.group(name)?.knobs())
    }

    fn shown_path(&self, name: &str) -> Result<PathBuf> {
        if self.held.contains(name) {
            return self.held.shown_path(name);
        }
        Ok(self.group(name)?.shown_path())
    }

    fn change(&mut self, name: &str, knobs: &Knobs) -> Result<()> {
        if self.held.contains(name) {
            return self.held.change(name, knobs, &self.duty);
        }
        let group = self.groups.get_mut(name).ok_or_else(|| no_group(name))?;
        group.change(knobs, &self.duty)
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        let mut first_error = None;
        let audits = self.audits;
        let own = self
            .groups
            .values_mut()
            .map(|group| group.tick(now, audits));
        let others = [self.held.tick(now), self.duty.tick(now)];
        for ticked in own.chain(others) {
            match ticked {
                Ok(due) => next = [next, due].into_iter().flatten().min(),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(next), Err)
    }

    fn sample(&self, name: &str) -> Result<Sample> {
        if self.held.contains(name) {
            return self.held.sample(name, &self.duty);
        }
        self.group(name)?.sample(&self.duty)
    }

    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>> {
        let knobs = self.knobs(name)?;
        if !knobs.has_cap() {
            return Ok(None);
        }
        let half_life = knobs.half_life.unwrap_or_default();
        let tids = threads_below(&self.cgroup(name)?.cpu_file(""), &[]);
        let rates = self.task_meter.measure(name, &tids, half_life);
        Ok(Some(if self.held.contains(name) {
            rates.with_background(|_| self.held.is_background(name))
        } else {
            let group = self.group(name)?;
            rates.with_background(|tid| group.is_background(tid))
        }))
    }

    fn usage_usec(&self, name: &str) -> Result<u64> {
        if self.held.contains(name) {
            return self.held.usage_usec(name);
        }
        self.group(name)?.usage_usec()
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        self.duty.sample()
    }

    fn headroom_duty(&self) -> HeadroomDuty {
        self.duty.clone()
    }

    fn is_populated(&self, name: &str) -> Result<bool> {
        if self.held.contains(name) {
            return Ok(self.held.cgroup(name)?.is_populated()?);
        }
        self.group(name)?.is_populated()
    }

    fn undo(&mut self) -> UndoReport {
        self.unsettled.clear();
        let mut report = self.finish_adoption();
        for path in std::mem::take(&mut self.refused) {
            let undone = Journal::take_over(&path).and_then(|journal| match journal {
                Some(journal) => undo::undo_journal(journal, &mut report),
                None => Ok(()),
            });
            report.problems.extend(undone.err().map(|e| e.to_string()));
        }
        for (_, mut group) in std::mem::take(&mut self.groups) {
            group.undo(&self.duty, &mut report);
        }
        self.held.undo(&self.duty, &mut report);
        if let Err(error) = self.slice.put_back(&mut report) {
            report.problems.push(error.to_string());
        }
        match self.runtime.release_shared() {
            Ok(problems) => report.problems.extend(problems),
            Err(error) => report.problems.push(error.to_string()),
        }
        report
    }
}
