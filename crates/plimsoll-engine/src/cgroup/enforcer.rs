//! The interface of enforcers, and the enforcer for stock kernels.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, threads_below};

use super::table::Table;
use crate::bandwidth_slice::MachineSlice;
use crate::control::headroom::HeadroomControl;
use crate::control::task_rates::TaskMeter;
use crate::error::Result;
use crate::group_policy::GroupPolicy;
use crate::knobs::Knobs;
use crate::machine_policy::MachinePolicy;
use crate::runtime::RuntimeFolder;
use crate::sample::{EnforcerKind, HeadroomSample, Sample, SchedulerSample, TaskRates};
use crate::undo::UndoReport;

/// Backend that enforces knobs through one kernel interface.
///
/// Whatever the interface, a group's cgroups are those of a [`CgroupEnforcer`].
pub trait Enforcer: Send {
    /// Returns the enforcer of the groups' cgroups.
    fn stock(&self) -> &CgroupEnforcer;

    fn stock_mut(&mut self) -> &mut CgroupEnforcer;

    fn kind(&self) -> EnforcerKind {
        EnforcerKind::Cgroup
    }

    /// Puts groups into force with their knobs, which the plan found enforceable: new ones, those
    /// that an earlier owner has left, and present ones, where values that others have written since
    /// are overwritten. Each succeeds or fails by itself. Nothing is left of a new one that fails;
    /// another one stays as it was, as far as the kernel lets it.
    fn put_all(&mut self, groups: &[GroupPolicy]) -> Vec<Result<()>>;

    /// Undoes all changes made for one group, and forgets the group.
    ///
    /// # Errors
    /// When there is no such group.
    fn remove(&mut self, name: &str) -> Result<UndoReport>;

    /// Sets the policy of the whole machine, again if it is the same as before: values that others
    /// have set since are overwritten. A bandwidth slice that is not asked for any more is put
    /// back.
    ///
    /// # Errors
    /// When the kernel or this process's rights do not allow it. The demand of headroom holds
    /// nevertheless where only the bandwidth slice was refused.
    fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()>;

    /// Undoes groups of an earlier owner that were not taken over and that are not wanted. Called
    /// after all present groups have been added. A wanted one, which could not be added, stays
    /// limited as it was left, until it is added or removed.
    fn finish_adoption(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> UndoReport;

    /// Does the work due by `now`. Returns the time of the next call; `None`: no work is pending.
    ///
    /// # Errors
    /// When a group can no longer be controlled; it stays limited.
    fn tick(&mut self, now: Instant) -> Result<Option<Instant>>;

    /// Returns messages for users since the last call, one line each.
    fn take_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Describes accepted knobs of a group that are not in force at present.
    fn problem(&self, _name: &str) -> Option<String> {
        None
    }

    fn sample(&self, name: &str) -> Result<Sample>;

    /// Measures the usage rates of a group's tasks; `None`: the group has no cap. Costs some
    /// milliseconds for a group with many tasks.
    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>>;

    /// Returns the state of the headroom controller, which all groups share.
    fn headroom(&self) -> Option<HeadroomSample>;

    /// Returns the state of the BPF scheduler, if groups are enforced by one.
    fn scheduler(&self) -> Option<SchedulerSample> {
        None
    }

    fn undo(&mut self) -> UndoReport;

    /// Lets go of all groups, which stay limited as they are, for another enforcer of this process
    /// to adopt. Afterwards this one has none.
    fn leave(&mut self);
}

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
        report.extend(enforcer.finish_adoption(&|_| false));
        Ok((enforcer, report))
    }

    /// Creates an enforcer as [`Self::start`] does, but takes over groups of an earlier owner when
    /// they are added: they stay limited as they are, and only differences are written. The others
    /// are undone by [`Enforcer::finish_adoption`].
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

    /// Puts one group into force, as [`Enforcer::put_all`] does many.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn put(&mut self, group: &GroupPolicy) -> Result<()> {
        let done = self.put_all(std::slice::from_ref(group));
        done.into_iter().collect()
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

    /// Returns the CPU time that a group has used so far; much cheaper than [`Enforcer::sample`].
    pub fn usage_usec(&self, name: &str) -> Result<u64> {
        self.table.get(name)?.usage_usec()
    }

    /// Returns the headroom control of stock knobs, for a thread that must not wait for changes of
    /// groups. [`Enforcer::tick`] runs it, too.
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
}

impl Enforcer for CgroupEnforcer {
    fn stock(&self) -> &CgroupEnforcer {
        self
    }

    fn stock_mut(&mut self) -> &mut CgroupEnforcer {
        self
    }

    fn put_all(&mut self, groups: &[GroupPolicy]) -> Vec<Result<()>> {
        self.table.put_all(groups)
    }

    fn remove(&mut self, name: &str) -> Result<UndoReport> {
        self.task_meter.forget(name);
        self.table.remove(name)
    }

    fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()> {
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

    fn finish_adoption(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> UndoReport {
        self.table.finish_adoption(is_wanted)
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        self.table.tick(now)
    }

    fn sample(&self, name: &str) -> Result<Sample> {
        self.table.get(name)?.sample(&self.table.context)
    }

    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>> {
        let group = self.table.get(name)?;
        let knobs = group.knobs();
        if !knobs.has_cap() {
            return Ok(None);
        }
        let half_life = knobs.half_life.unwrap_or_default();
        let tids = threads_below(&group.cgroup().cpu_file(""), &[]);
        let rates = self.task_meter.measure(name, &tids, half_life);
        Ok(Some(rates.with_background(|tid| group.is_background(tid))))
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        self.table.context.headroom.sample()
    }

    fn undo(&mut self) -> UndoReport {
        let mut report = self.table.undo();
        if let Err(error) = self.slice.put_back(&mut report) {
            report.problems.push(error.to_string());
        }
        match self.table.context.runtime.release_shared() {
            Ok(problems) => report.problems.extend(problems),
            Err(error) => report.problems.push(error.to_string()),
        }
        report
    }

    fn leave(&mut self) {
        self.table.leave();
        self.machine = MachinePolicy::default();
        self.slice = MachineSlice::default();
    }
}
