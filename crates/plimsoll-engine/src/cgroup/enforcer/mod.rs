//! The enforcer for stock kernels.

mod foreign;
mod journal;
mod left;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};

use super::change::folder_of;
use super::group::Group;
use super::group::context::{Context, OnMade};
use super::group::own;
use crate::action::Action;
use crate::bandwidth_slice;
use crate::control::headroom::HeadroomControl;
use crate::control::task_rates::TaskMeter;
use crate::error::{EngineError, Result};
use crate::group_policy::GroupPolicy;
use crate::host_tuning;
use crate::journal::Journal;
use crate::machine_policy::MachinePolicy;
use crate::runtime::RuntimeFolder;
use crate::sample::{HeadroomSample, Sample, TaskRates};
use crate::tasks::TaskId;
use crate::undo::{self, UndoReport};

/// Enforcer through control groups, version 1 or 2.
///
/// A foreign group is a cgroup of somebody else, whose path is its name. The knobs are set on that
/// cgroup, and nothing is moved. Its nice level is given to the tasks that are in it at that time;
/// later ones keep their own.
///
/// Dropping the enforcer undoes nothing: groups stay limited, for the next owner.
#[derive(Debug)]
pub struct CgroupEnforcer {
    context: Context,
    groups: BTreeMap<Box<str>, Group>,
    /// Groups that [`Self::tick`] has to visit: few of thousands.
    with_loops: BTreeSet<Box<str>>,
    /// Journal of an earlier owner that could neither be taken over nor undone.
    refused: Option<PathBuf>,
    task_meter: TaskMeter,
    machine: MachinePolicy,
}

/// Returns whether the kernel may take a change after those of other groups: on cgroup v1 it takes
/// some quotas only after those of cgroups above or inside.
fn may_be_taken_later(done: &Result<()>) -> bool {
    done.as_ref().is_err_and(|error| {
        undo::is_refused(error) || matches!(error, EngineError::NotEnforceable { .. })
    })
}

/// Returns the error for a name without a group.
fn no_group(name: &str) -> EngineError {
    EngineError::NoTarget {
        target: name.into(),
        what: "group",
    }
}

impl CgroupEnforcer {
    /// Creates an enforcer after a check that this process may change cgroups. Takes over groups of
    /// an earlier owner when they are added: they stay limited as they are, and only differences are
    /// written. The others are undone by [`Action::FinishAdoption`].
    ///
    /// # Errors
    /// When there is no permission; the error names a remedy.
    pub fn adopting(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        hierarchy.check_permission()?;
        let (journal, refused, report) = journal::journal(runtime)?;
        let enforcer = Self {
            context: Context {
                hierarchy: Arc::clone(hierarchy),
                headroom: HeadroomControl::new(hierarchy),
                has_demand: false,
                journal,
            },
            groups: BTreeMap::new(),
            with_loops: BTreeSet::new(),
            refused,
            task_meter: TaskMeter::default(),
            machine: MachinePolicy::default(),
        };
        Ok((enforcer, report))
    }

    /// Returns a group's outermost cgroup.
    pub fn cgroup(&self, name: &str) -> Result<CpuGroup> {
        Ok(self.get(name)?.cgroup().clone())
    }

    fn get(&self, name: &str) -> Result<&Group> {
        self.groups.get(name).ok_or_else(|| no_group(name))
    }

    /// Calls `act` for a group, whose loops may start or end.
    fn act<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&mut Group, &mut Context) -> Result<T>,
    ) -> Result<T> {
        let group = self.groups.get_mut(name).ok_or_else(|| no_group(name))?;
        let done = act(group, &mut self.context);
        let (name, has_loop) = (group.name.clone(), group.has_loop());
        self.note_loop(name, has_loop);
        done
    }

    fn note_loop(&mut self, name: Box<str>, has_loop: bool) {
        if has_loop {
            self.with_loops.insert(name);
        } else {
            self.with_loops.remove(&name);
        }
    }

    fn insert(&mut self, group: Group) {
        let name = group.name.clone();
        self.note_loop(name.clone(), group.has_loop());
        self.groups.insert(name, group);
    }

    /// Puts one group into force, as [`Action::Put`] does.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn put(&mut self, group: &GroupPolicy) -> Result<()> {
        self.put_all(&[group]).into_iter().collect()
    }

    /// Puts groups into force all at once, as [`Action::Put`] does one. Each succeeds or fails by
    /// itself.
    pub fn put_all(&mut self, groups: &[&GroupPolicy]) -> Vec<Result<()>> {
        self.put_all_with(groups, &mut |_, _| Ok(()))
    }

    /// Puts groups into force as [`Self::put_all`] does. `on_made` is called with the name and the
    /// outermost cgroup of each scheduled group that is made, also anew, before any process is in it.
    /// If that fails, so does the group.
    pub fn put_all_with(
        &mut self,
        groups: &[&GroupPolicy],
        on_made: OnMade<'_>,
    ) -> Vec<Result<()>> {
        let mut results = self.put_once(groups, &mut *on_made);
        let mut nr_tried = groups.len();
        loop {
            let mut refused: Vec<usize> = (0..groups.len()).collect();
            refused.retain(|index| may_be_taken_later(&results[*index]));
            if refused.is_empty() || refused.len() == nr_tried {
                return results;
            }
            nr_tried = refused.len();
            let again: Vec<&GroupPolicy> = refused.iter().map(|index| groups[*index]).collect();
            let done = self.put_once(&again, &mut *on_made);
            for (index, done) in refused.into_iter().zip(done) {
                results[index] = done;
            }
        }
    }

    fn put_once(&mut self, groups: &[&GroupPolicy], on_made: OnMade<'_>) -> Vec<Result<()>> {
        let (mut foreign, mut results) = (Vec::new(), Vec::new());
        for (index, policy) in groups.iter().copied().enumerate() {
            let is_there = self.groups.contains_key(&*policy.name);
            results.push(match policy.first {
                None => {
                    foreign.push((index, policy));
                    Ok(())
                }
                Some(_) if is_there => self.change(policy, &mut *on_made),
                Some(first) => self.add_own(policy, first, &mut *on_made),
            });
        }
        // Foreign groups have one record for all.
        let policies: Vec<&GroupPolicy> = foreign.iter().map(|(_, policy)| *policy).collect();
        let done = self.put_foreign(&policies);
        for ((index, _), done) in foreign.into_iter().zip(done) {
            results[index] = done;
        }
        results
    }

    /// Makes one change.
    ///
    /// # Errors
    /// When the kernel refuses, or there is no such group.
    pub(crate) fn make(&mut self, action: &Action) -> Result<UndoReport> {
        match action {
            Action::SetMachine(policy) => self.set_machine(policy)?,
            Action::Put(group) => self.put(group)?,
            Action::Remove(name) => return self.remove(name),
            Action::FinishAdoption { wanted } => return Ok(self.finish_adoption(wanted)),
            Action::UndoAll => return Ok(self.undo()),
            Action::LeaveAll => self.leave(),
        }
        Ok(UndoReport::default())
    }

    fn change(&mut self, policy: &GroupPolicy, on_made: OnMade<'_>) -> Result<()> {
        self.act(&policy.name, |group, context| {
            group.is_scheduled = policy.is_scheduled;
            group.change(&policy.knobs, context, on_made)
        })
    }

    fn add_own(&mut self, policy: &GroupPolicy, first: TaskId, on_made: OnMade<'_>) -> Result<()> {
        if self.adopt(policy)? {
            // If that fails, the group stays limited as it was.
            return self.change(policy, on_made);
        }
        self.create(policy, first, on_made)
    }

    fn create(&mut self, policy: &GroupPolicy, first: TaskId, on_made: OnMade<'_>) -> Result<()> {
        let mut group = Group::create(policy, first, &mut self.context, on_made)?;
        match group.start_loops(&self.context) {
            Ok(()) => {
                self.insert(group);
                Ok(())
            }
            Err(error) => {
                group.undo(&mut self.context, &mut UndoReport::default());
                Err(error)
            }
        }
    }

    /// Moves a running process into a group. The process and its future children stay there until
    /// the group ends.
    ///
    /// # Errors
    /// When there is no such group or process, or the kernel refuses.
    pub fn add_process(&mut self, name: &str, pid: i32) -> Result<()> {
        self.act(name, |group, context| group.take_in(pid, context))
    }

    /// Returns the path of a group as shown in `/proc/PID/cgroup`.
    pub fn shown_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.get(name)?.shown_path())
    }

    /// Returns whether a path, as shown, is of a cgroup that processes of a group have made in it.
    pub fn is_inside(&self, name: &str, path: &Path) -> bool {
        let group = self.groups.get(name);
        let leaf = group.map(|group| Path::new("/").join(group.layout.leaf.path()));
        leaf.is_some_and(|leaf| path != leaf && path.starts_with(leaf))
    }

    /// Checks the kernel files of a group now. Returns the external changes since the last write
    /// that were not reported before, and adds them to the `foreign_changes` of the group's sample.
    /// External values stay until knobs are applied again.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        self.act(name, |group, context| group.audit(context))
    }

    /// Returns the CPU time that a group has used so far; much cheaper than [`Self::sample`].
    pub fn usage_usec(&self, name: &str) -> Result<u64> {
        self.get(name)?.usage_usec()
    }

    /// Returns the headroom control of stock knobs, for a thread that must not wait for changes of
    /// groups. [`Self::tick`] runs it, too.
    pub fn headroom_control(&self) -> HeadroomControl {
        self.context.headroom.clone()
    }

    /// Returns whether a group still contains processes, as [`Sample::processes`] counts them.
    pub fn is_populated(&self, name: &str) -> Result<bool> {
        self.get(name)?.is_populated()
    }

    /// Does the work due by `now`. Returns the time of the next call; `None`: no work is pending.
    ///
    /// # Errors
    /// When a group can no longer be controlled; it stays limited.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        let mut first_error = None;
        for name in &self.with_loops {
            let Some(group) = self.groups.get_mut(name) else {
                continue;
            };
            match group.tick(now) {
                Ok(due) => next = [next, due].into_iter().flatten().min(),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match self.context.headroom.tick(now) {
            Ok(due) => next = [next, due].into_iter().flatten().min(),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        first_error.map_or(Ok(next), Err)
    }

    /// Measures a group, and, `with_tasks`, its tasks.
    ///
    /// # Errors
    /// When there is no such group, or its cgroup is gone.
    pub fn sample(&mut self, name: &str, with_tasks: bool) -> Result<Sample> {
        let mut sample = self.get(name)?.sample(&self.context)?;
        if with_tasks {
            sample.task_rates = self.task_rates(name)?;
        }
        Ok(sample)
    }

    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>> {
        let group = self.groups.get(name).ok_or_else(|| no_group(name))?;
        let knobs = &group.knobs;
        if !knobs.has_cap() {
            return Ok(None);
        }
        let half_life = knobs.half_life.unwrap_or_default();
        let tids = group.cgroup().all_threads()?;
        let rates = self.task_meter.measure(name, &tids, half_life);
        Ok(Some(rates.with_background(|tid| group.is_background(tid))))
    }

    /// Returns the state of the headroom controller, which all groups share.
    pub fn headroom(&self) -> Option<HeadroomSample> {
        self.context.headroom.sample()
    }

    /// Removes a group, as [`Action::Remove`] does.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn remove(&mut self, name: &str) -> Result<UndoReport> {
        self.task_meter.forget(name);
        let mut report = UndoReport::default();
        if self.is_left_own(name) {
            own::undo(name, &mut self.context, &mut report);
            return Ok(report);
        }
        if self.is_left(name) {
            self.put_left_back(|left| left == name, &mut report);
            return Ok(report);
        }
        let group = self.groups.remove(name).ok_or_else(|| no_group(name))?;
        self.with_loops.remove(name);
        if group.is_foreign() {
            // First, because the controller must not write a quota that is put back.
            self.context.headroom.remove(name);
            let folder = folder_of(group.cgroup());
            self.put_back_with_refused(std::slice::from_ref(&folder), &mut report);
            match self.context.journal.restores().refused.contains(&folder) {
                true => report.problems.push(format!(
                    "{name}: the kernel refuses a value that it had; it is put back with the next group"
                )),
                false => report.undone.push(name.to_owned()),
            }
        } else {
            group.undo(&mut self.context, &mut report);
        }
        Ok(report)
    }

    /// Sets the policy of the machine, as [`Action::SetMachine`] does.
    ///
    /// # Errors
    /// When the kernel or this process's rights do not allow it.
    pub fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()> {
        let before = std::mem::replace(&mut self.machine, *policy);
        let context = &mut self.context;
        context.has_demand = policy.demand.has_headroom();
        context.headroom.set_demand(policy.demand);
        let slice = policy.bandwidth_slice;
        if slice == before.bandwidth_slice && policy.demand != before.demand {
            // The call is not about the slice: a value that somebody else has set since stays.
            return Ok(());
        }
        bandwidth_slice::set(slice, &context.hierarchy, &mut context.journal)
    }

    /// Makes the preemption of the machine full if it is lazy. Returns whether it was.
    ///
    /// # Errors
    /// When the kernel refuses: then nothing has changed.
    pub fn tune_host(&mut self) -> Result<bool> {
        host_tuning::set(&mut self.context.journal)
    }

    /// Puts preemption back, unless somebody else has changed it.
    pub fn put_tuning_back(&mut self) -> UndoReport {
        host_tuning::put_back(&mut self.context.journal)
    }

    /// Undoes everything, as [`Action::UndoAll`] does.
    pub fn undo(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        // First, because the controller must not write a quota that is put back.
        self.context.headroom.clear();
        self.with_loops.clear();
        let foreign = self.groups.values().filter(|group| group.is_foreign());
        let names = foreign.map(|group| String::from(&*group.name));
        report.undone.extend(names);
        report.undone.extend(self.left().map(|(_, name)| name));
        self.groups.clear();
        if let Some(journal) = self.context.journal.end()
            && let Err(error) = undo::undo_groups(journal, &mut report)
        {
            report.problems.push(error.to_string());
        }
        if let Some(path) = self.refused.take() {
            let undone = Journal::take_over(&path).and_then(|journal| match journal {
                Some(journal) => undo::undo_journal(journal, &mut report),
                None => Ok(()),
            });
            report.problems.extend(undone.err().map(|e| e.to_string()));
        }
        report
    }

    /// Leaves all groups, as [`Action::LeaveAll`] does.
    pub fn leave(&mut self) {
        let restores = self.context.journal.restores();
        let has_groups = !(restores.held.is_empty() && restores.own.is_empty());
        let is_needed = has_groups || !(restores.parents.is_empty() && restores.enabled.is_empty());
        // First, so that the next owner of the quotas finds them as they are.
        self.context.headroom.clear();
        self.context.has_demand = false;
        self.with_loops.clear();
        self.groups.clear();
        if let (Some(journal), false) = (self.context.journal.end(), is_needed) {
            // A journal that cannot be removed stays for the next owner.
            let _ = undo::undo_groups(journal, &mut UndoReport::default());
        }
        self.machine = MachinePolicy::default();
    }
}
