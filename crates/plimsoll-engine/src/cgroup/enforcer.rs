//! The enforcer for stock kernels.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};

use super::group::common::OnMade;
use super::table::Table;
use crate::action::Action;
use crate::bandwidth_slice::MachineSlice;
use crate::control::headroom::HeadroomControl;
use crate::control::task_rates::TaskMeter;
use crate::error::Result;
use crate::group_policy::GroupPolicy;
use crate::knobs::Knobs;
use crate::machine_policy::MachinePolicy;
use crate::runtime::RuntimeFolder;
use crate::sample::{HeadroomSample, Sample, TaskRates};
use crate::undo::UndoReport;

/// Enforcer through control groups, version 1 or 2.
///
/// A group whose selector is a cgroup of somebody else is that cgroup; its name may be any, such as
/// its path with a `/` in front. The knobs are set on that cgroup, and nothing is moved. Its nice
/// level is given to the tasks that are in it at that time; later ones keep their own.
///
/// Dropping the enforcer undoes nothing: groups stay limited, for the next owner.
#[derive(Debug)]
pub struct CgroupEnforcer {
    table: Table,
    task_meter: TaskMeter,
    machine: MachinePolicy,
    slice: MachineSlice,
}

impl CgroupEnforcer {
    /// Creates an enforcer after a check that this process may change cgroups, and undoes the
    /// changes that earlier ones left behind.
    ///
    /// # Errors
    /// When there is no permission; the error names a remedy.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        let (mut enforcer, mut report) = Self::adopting(hierarchy, runtime)?;
        report.extend(enforcer.finish_adoption(&BTreeSet::new()));
        Ok((enforcer, report))
    }

    /// Creates an enforcer as [`Self::start`] does, but takes over groups of an earlier owner when
    /// they are added: they stay limited as they are, and only differences are written. The others
    /// are undone by [`Action::FinishAdoption`].
    ///
    /// # Errors
    /// When there is no permission; the error names a remedy.
    pub fn adopting(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
    ) -> Result<(Self, UndoReport)> {
        hierarchy.check_permission()?;
        let (table, left_behind) = Table::new(hierarchy, runtime)?;
        let enforcer = Self {
            table,
            task_meter: TaskMeter::default(),
            machine: MachinePolicy::default(),
            slice: MachineSlice::default(),
        };
        Ok((enforcer, left_behind))
    }

    /// Returns a group's outermost cgroup.
    pub fn cgroup(&self, name: &str) -> Result<CpuGroup> {
        Ok(self.table.get(name)?.cgroup().clone())
    }

    /// Returns whether there is such a group, or an earlier owner has left one.
    pub fn knows(&self, name: &str) -> bool {
        self.table.knows(name)
    }

    /// Returns the folder of the outermost cgroup of an own group that an earlier owner, or enforcer,
    /// has left and this one can continue.
    pub fn left_folder(&self, name: &str) -> Option<PathBuf> {
        self.table.left_folder(name)
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
        self.table.put_all(groups, on_made)
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

    /// Moves a running process into a group. The process and its future children stay there until
    /// the group ends.
    ///
    /// # Errors
    /// When there is no such group or process, or the kernel refuses.
    pub fn add_process(&mut self, name: &str, pid: i32) -> Result<()> {
        self.table.take_in(name, pid)
    }

    /// Returns the path of a group as shown in `/proc/PID/cgroup`.
    pub fn shown_path(&self, name: &str) -> Result<PathBuf> {
        Ok(self.table.get(name)?.shown_path())
    }

    /// Checks the kernel files of a group now. Returns the external changes since the last write
    /// that were not reported before, and adds them to the `foreign_changes` of the group's sample.
    /// External values stay until knobs are applied again.
    ///
    /// # Errors
    /// When the group is gone.
    pub fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        self.table.audit(name)
    }

    /// Returns the CPU time that a group has used so far; much cheaper than [`Self::sample`].
    pub fn usage_usec(&self, name: &str) -> Result<u64> {
        self.table.get(name)?.usage_usec()
    }

    /// Returns the headroom control of stock knobs, for a thread that must not wait for changes of
    /// groups. [`Self::tick`] runs it, too.
    pub fn headroom_control(&self) -> HeadroomControl {
        self.table.context.headroom.clone()
    }

    /// Returns whether a group still contains processes, as [`Sample::processes`] counts them.
    pub fn is_populated(&self, name: &str) -> Result<bool> {
        self.table.get(name)?.is_populated()
    }

    /// Returns the knobs in force for a group.
    pub fn knobs(&self, name: &str) -> Result<&Knobs> {
        Ok(self.table.get(name)?.knobs())
    }

    /// Does the work due by `now`. Returns the time of the next call; `None`: no work is pending.
    ///
    /// # Errors
    /// When a group can no longer be controlled; it stays limited.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        self.table.tick(now)
    }

    /// Measures a group, and, `with_tasks`, its tasks.
    ///
    /// # Errors
    /// When there is no such group, or its cgroup is gone.
    pub fn sample(&mut self, name: &str, with_tasks: bool) -> Result<Sample> {
        let mut sample = self.table.get(name)?.sample(&self.table.context)?;
        if with_tasks {
            sample.task_rates = self.task_rates(name)?;
        }
        Ok(sample)
    }

    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>> {
        let group = self.table.get(name)?;
        let knobs = group.knobs();
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
        self.table.context.headroom.sample()
    }

    /// Removes a group, as [`Action::Remove`] does.
    ///
    /// # Errors
    /// When there is no such group.
    pub fn remove(&mut self, name: &str) -> Result<UndoReport> {
        self.task_meter.forget(name);
        self.table.remove(name)
    }

    /// Sets the policy of the machine, as [`Action::SetMachine`] does.
    ///
    /// # Errors
    /// When the kernel or this process's rights do not allow it.
    pub fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()> {
        let before = std::mem::replace(&mut self.machine, *policy);
        let context = &mut self.table.context;
        context.has_demand = policy.demand.has_headroom();
        context.headroom.set_demand(policy.demand);
        let slice = policy.bandwidth_slice;
        if slice == before.bandwidth_slice && policy.demand != before.demand {
            // The call is not about the slice: a value that somebody else has set since stays.
            return Ok(());
        }
        self.slice.set(slice, &context.hierarchy, &context.runtime)
    }

    /// Ends the adoption, as [`Action::FinishAdoption`] does.
    pub fn finish_adoption(&mut self, wanted: &BTreeSet<String>) -> UndoReport {
        self.table.finish_adoption(wanted)
    }

    /// Undoes everything, as [`Action::UndoAll`] does.
    pub fn undo(&mut self) -> UndoReport {
        let mut report = self.table.undo();
        if let Err(error) = self.slice.put_back(&mut report) {
            report.problems.push(error.to_string());
        }
        if let Err(error) = self.table.context.runtime.release_shared(&mut report) {
            report.problems.push(error.to_string());
        }
        report
    }

    /// Leaves all groups, as [`Action::LeaveAll`] does.
    pub fn leave(&mut self) {
        self.table.leave();
        self.machine = MachinePolicy::default();
        self.slice = MachineSlice::default();
    }
}
