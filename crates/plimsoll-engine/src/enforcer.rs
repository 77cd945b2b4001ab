//! Common interface of all enforcers, independent of the kernel interface they use.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_cgroupfs::CpuStat;
use serde::{Deserialize, Serialize};

pub use crate::control::headroom::HeadroomControl;
use crate::error::Result;
use crate::group_policy::GroupPolicy;
use crate::machine_policy::MachinePolicy;
use crate::undo::UndoReport;

/// CPU usage of a group and the state of its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// CPU time used, by tasks that have ended too.
    pub usage_usec: u64,
    /// Number of processes in the group now.
    pub processes: u64,
    /// Number of tasks of real-time and deadline policies in the group now. No quota, cap, class or
    /// weight holds them.
    #[serde(default)]
    pub real_time: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<CpuStat>,
    /// Counters of the hard cap, if it holds for the whole tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CpuStat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_task: Option<PerTaskSample>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<SoftCapSample>,
    /// Usage rates of the tasks of a capped group, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_rates: Option<TaskRates>,
    /// State of the headroom controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<HeadroomSample>,
    /// Counters of the BPF scheduler, if it schedules the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSample>,
    /// State of the BPF scheduler, if it schedules the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSample>,
    /// External changes of kernel files since the last write by Plimsoll, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_changes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerTaskSample {
    /// Number of tasks that have a cgroup of their own now.
    pub tasks: u64,
    /// Number of tasks that were given one so far.
    pub tasks_total: u64,
    /// Periods elapsed while active, summed over all capped tasks so far.
    pub nr_periods: u64,
    /// Number of these periods that ended throttled.
    pub nr_throttled: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftCapSample {
    /// Usage rate, a decaying average, in ppm of one CPU.
    pub rate_ppm: u64,
    /// Whether the group is over its cap, and so in the background.
    pub background: bool,
    /// Number of switches into and out of the background.
    pub nr_switches: u64,
}

/// Largest number of tasks of a group sampled at a time; costs some milliseconds of CPU time.
pub const TASK_RATES_MAX: usize = 256;

/// Usage rates of the tasks of a capped group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRates {
    /// Tasks, the fastest first; no more than [`TASK_RATES_MAX`].
    pub tasks: Vec<TaskRate>,
    /// Number of tasks in the group, also beyond those listed.
    pub nr_tasks: u64,
}

impl TaskRates {
    /// Sorts the tasks, fastest first. `nr_tasks`: number of tasks in the group.
    #[must_use]
    pub fn new(mut tasks: Vec<TaskRate>, nr_tasks: usize) -> Self {
        tasks.sort_by_key(|task| (std::cmp::Reverse(task.rate_ppm), task.tid));
        Self {
            tasks,
            nr_tasks: nr_tasks as u64,
        }
    }

    /// Marks the tasks that are in the background.
    pub(crate) fn with_background(mut self, is_background: impl Fn(i32) -> bool) -> Self {
        for task in &mut self.tasks {
            task.background = is_background(task.tid);
        }
        self
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRate {
    pub tid: i32,
    /// Name, as the kernel has it.
    pub command: String,
    /// Decaying average, in ppm of one CPU.
    pub rate_ppm: u64,
    /// Whether the task is in the background, because it or its group is over a soft cap.
    pub background: bool,
}

/// State of the headroom controller, which all batch groups of a user share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomSample {
    /// Headroom in force: the largest that any group asks for, in ppm of all CPUs.
    pub headroom_ppm: u32,
    /// Headroom in force as it was asked for, such as `30%` or `2cpus`, where both forms can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<String>,
    /// Largest headroom requested in the other form, which is smaller and not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
    /// CPU time that batch work may use now, in ppm of all CPUs.
    pub allowance_ppm: u64,
    /// Recent CPU usage of batch work, in ppm of all CPUs.
    pub side_ppm: u64,
    /// Recent CPU usage of all other work, in ppm of all CPUs.
    pub nonside_ppm: u64,
    /// Time integral of (headroom − idle) while batch work ran above its tolerance.
    pub headroom_shortfall_usec: u64,
    /// Number of runs of the controller.
    pub nr_updates: u64,
    /// Number of quotas that the controller wrote.
    pub nr_writes: u64,
    /// CPU time that the controller itself used.
    pub controller_usec: u64,
    /// Names of the groups that share the allowance, or the first of them.
    pub sides: Vec<String>,
    /// Number of groups that share the allowance.
    #[serde(default)]
    pub nr_sides: u64,
}

/// Counters of a group in the BPF scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSample {
    /// Counters summed over CPUs.
    #[serde(flatten)]
    pub total: BatchCounts,
    /// Counters of each CPU, by CPU number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<BatchCpu>,
}

/// Counters of a group in the BPF scheduler on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCpu {
    pub cpu: u32,
    #[serde(flatten)]
    pub counts: BatchCounts,
}

/// Counters of a group in the BPF scheduler, on one CPU or summed over all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCounts {
    /// Time for which the group's tasks ran.
    pub run_usec: u64,
    /// Time for which the group's tasks waited until they ran.
    pub wait_usec: u64,
    /// Number of times that a task began to run.
    pub nr_switches: u64,
    /// Number of these runs that normal work preempted before the end of the slice.
    pub nr_preempted: u64,
    /// Number of these runs that started because the task had waited for too long.
    pub nr_overdue: u64,
    /// Number of these runs that started because normal work waited for a lock of the task.
    pub nr_holders: u64,
}

impl BatchCounts {
    /// Adds the counts of another place, or of a later time.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            run_usec: self.run_usec + other.run_usec,
            wait_usec: self.wait_usec + other.wait_usec,
            nr_switches: self.nr_switches + other.nr_switches,
            nr_preempted: self.nr_preempted + other.nr_preempted,
            nr_overdue: self.nr_overdue + other.nr_overdue,
            nr_holders: self.nr_holders + other.nr_holders,
        }
    }
}

/// State of the BPF scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSample {
    /// State: `running`, `loading` or `down`. Without the scheduler the group's tasks are ordinary
    /// ones.
    pub state: String,
    /// Pid of the process that keeps the scheduler loaded; 0: none.
    pub owner_pid: u32,
    /// Guarantees that are lost while the scheduler does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// Number of reloads since that process first loaded it.
    pub nr_reloads: u64,
    /// Reason for which the kernel last threw the scheduler out; `None`: it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// File with the kernel's dump of that exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<PathBuf>,
}

/// Kernel interface of an enforcer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcerKind {
    /// Control groups of the stock kernel.
    #[default]
    Cgroup,
    /// BPF scheduler, with control groups for the functions that it leaves to them.
    SchedExt,
}

/// Backend that enforces knobs through one kernel interface.
pub trait Enforcer: Send {
    fn kind(&self) -> EnforcerKind {
        EnforcerKind::Cgroup
    }

    /// Puts groups into force with their knobs, which the plan found enforceable: new ones, those
    /// that an earlier owner has left, and present ones, where values that others have written since
    /// are overwritten. Each succeeds or fails by itself. Nothing is left of a new one that fails;
    /// another one stays as it was, as far as the kernel lets it.
    fn put_all(&mut self, groups: &[GroupPolicy]) -> Vec<Result<()>>;

    /// Puts one group into force, as [`Enforcer::put_all`] does many.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn put(&mut self, group: &GroupPolicy) -> Result<()> {
        let done = self.put_all(std::slice::from_ref(group));
        done.into_iter().collect()
    }

    /// Moves a running process into a group. The process and its future children stay there until
    /// the group ends.
    ///
    /// # Errors
    /// When there is no such group or process, or the kernel refuses.
    fn add_process(&mut self, name: &str, pid: i32) -> Result<()>;

    /// Undoes all changes made for one group, and forgets the group.
    ///
    /// # Errors
    /// When there is no such group.
    fn remove(&mut self, name: &str) -> Result<UndoReport>;

    /// Returns the path of a group as shown in `/proc/PID/cgroup`.
    fn shown_path(&self, name: &str) -> Result<PathBuf>;

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

    /// Checks the kernel files of a group now. Returns the external changes since the last write
    /// that were not reported before, and adds them to the `foreign_changes` of the group's sample.
    /// External values stay until knobs are applied again.
    ///
    /// # Errors
    /// When the group is gone.
    fn audit(&mut self, _name: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

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

    /// Returns the CPU time that a group has used so far; much cheaper than [`Enforcer::sample`].
    fn usage_usec(&self, name: &str) -> Result<u64>;

    /// Returns the headroom control of stock knobs, for a thread that must not wait for changes of
    /// groups. [`Enforcer::tick`] runs it, too.
    fn headroom_control(&self) -> HeadroomControl;

    /// Returns the state of the headroom controller, which all groups share.
    fn headroom(&self) -> Option<HeadroomSample>;

    /// Returns the state of the BPF scheduler, if groups are enforced by one.
    fn scheduler(&self) -> Option<SchedulerSample> {
        None
    }

    /// Returns whether a group still contains processes, as [`Sample::processes`] counts them.
    fn is_populated(&self, name: &str) -> Result<bool>;

    fn undo(&mut self) -> UndoReport;

    /// Lets go of all groups, which stay limited as they are, for another enforcer of this process
    /// to adopt. Afterwards this one has none.
    fn leave(&mut self);
}
