//! Common interface of all enforcers, independent of the kernel interface they use.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_cgroupfs::CpuStat;
use serde::{Deserialize, Serialize};

pub use crate::control::headroom::HeadroomControl;
use crate::error::Result;
use crate::group_policy::GroupPolicy;
use crate::knobs::Knobs;
use crate::machine_policy::MachinePolicy;
use crate::undo::UndoReport;

/// CPU usage of a group and the state of its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// CPU time used, by tasks that have ended too.
    pub usage_usec: u64,
    /// Processes in the group now.
    pub processes: u64,
    /// Tasks of real-time and deadline policies in the group now. No quota, cap, class or weight
    /// holds them.
    #[serde(default)]
    pub real_time: u64,
    /// Counters of the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<CpuStat>,
    /// Counters of the hard cap of a whole tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<CpuStat>,
    /// State of per-task caps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_task: Option<PerTaskSample>,
    /// State of the soft cap.
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
    /// State of the BPF scheduler that schedules the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSample>,
    /// Kernel files with external changes since the last write by Plimsoll.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign_changes: Vec<String>,
}

/// State of per-task caps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerTaskSample {
    /// Tasks that have a group of their own now.
    pub tasks: u64,
    /// Those that were given one so far.
    pub tasks_total: u64,
    /// Periods elapsed while active, summed over all capped tasks so far.
    pub nr_periods: u64,
    /// Periods of these that ended throttled.
    pub nr_throttled: u64,
}

/// State of a soft cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftCapSample {
    /// Usage rate, decaying average, in ppm of one CPU.
    pub rate_ppm: u64,
    /// Over its cap, and so in the background.
    pub background: bool,
    /// Number of switches into and out of the background.
    pub nr_switches: u64,
}

/// Largest number of tasks of a group sampled at a time; costs some milliseconds of CPU time.
pub const TASK_RATES_MAX: usize = 256;

/// Usage rates of the tasks of a capped group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRates {
    /// The fastest first; no more than [`TASK_RATES_MAX`].
    pub tasks: Vec<TaskRate>,
    /// Number of tasks in the group.
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

    /// Says which tasks are in the background.
    pub(crate) fn with_background(mut self, is_background: impl Fn(i32) -> bool) -> Self {
        for task in &mut self.tasks {
            task.background = is_background(task.tid);
        }
        self
    }
}

/// The usage rate of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRate {
    /// The task (thread).
    pub tid: i32,
    /// Its name, as the kernel has it.
    pub command: String,
    /// Decaying average, in ppm of one CPU.
    pub rate_ppm: u64,
    /// In the background, because it or its group is over a soft cap.
    pub background: bool,
}

/// State of the headroom controller, which all batch groups of a user share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomSample {
    /// The headroom in force: the largest that any group asks for, in ppm of
    /// all CPUs.
    pub headroom_ppm: u32,
    /// The same as it was asked for, such as `30%` or `2cpus`, where both forms
    /// can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<String>,
    /// Largest headroom requested in the other form, which is smaller and not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
    /// CPU that batch work may use now, in ppm of all CPUs.
    pub allowance_ppm: u64,
    /// Recent CPU usage of batch work, in ppm of all CPUs.
    pub side_ppm: u64,
    /// Recent CPU usage of all other work, in ppm of all CPUs.
    pub nonside_ppm: u64,
    /// Time integral of (headroom − idle) while batch work ran above its
    /// tolerance.
    pub headroom_shortfall_usec: u64,
    /// Times the controller ran.
    pub nr_updates: u64,
    /// Quotas that it wrote.
    pub nr_writes: u64,
    /// CPU time that the controller itself used.
    pub controller_usec: u64,
    /// The groups that share the allowance, or the first of them.
    pub sides: Vec<String>,
    /// Number of groups that share the allowance.
    #[serde(default)]
    pub nr_sides: u64,
}

/// Counters of a group in the BPF scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSample {
    /// Summed over CPUs.
    #[serde(flatten)]
    pub total: BatchCounts,
    /// Counters of each CPU, by CPU number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<BatchCpu>,
}

/// Counters of a group in the BPF scheduler on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCpu {
    /// The CPU's number.
    pub cpu: u32,
    /// Counters of the group on this CPU.
    #[serde(flatten)]
    pub counts: BatchCounts,
}

/// Counters of a group in the BPF scheduler, on one CPU or summed over all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCounts {
    /// Time in which its tasks ran.
    pub run_usec: u64,
    /// Time for which its tasks waited until they ran.
    pub wait_usec: u64,
    /// Times that a task began to run.
    pub nr_switches: u64,
    /// Runs of these that normal work preempted before the end of the slice.
    pub nr_preempted: u64,
    /// Runs of these that started because the task had waited for too long.
    pub nr_overdue: u64,
    /// Runs of these that started because normal work waited for a lock of the task.
    pub nr_holders: u64,
}

impl BatchCounts {
    /// The counts of two places, or of one after the other.
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
    /// `running`, `loading` or `down`: without it the group's tasks are
    /// ordinary ones.
    pub state: String,
    /// Pid of the process that keeps it loaded; 0: none.
    pub owner_pid: u32,
    /// Guarantees that are lost while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// Number of reloads since that process first loaded it.
    pub nr_reloads: u64,
    /// Why it was last thrown out, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
    /// Where the kernel's dump of that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump: Option<PathBuf>,
}

/// Which interface of the kernel an enforcer is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnforcerKind {
    /// The stock kernel's control groups.
    #[default]
    Cgroup,
    /// A BPF scheduler, with control groups for the functions that it leaves to them.
    SchedExt,
}

/// Backend that enforces knobs through one kernel interface.
pub trait Enforcer: Send {
    /// Kernel interface of this enforcer.
    fn kind(&self) -> EnforcerKind {
        EnforcerKind::Cgroup
    }

    /// Takes groups and applies their knobs, which the plan found enforceable: each is added or
    /// refused by itself. Nothing is left of one that is refused.
    fn add_all(&mut self, groups: &[(GroupPolicy, String)]) -> Vec<Result<()>>;

    /// Takes one group, as [`Enforcer::add_all`] takes many.
    ///
    /// # Errors
    /// When the kernel refuses; then nothing is left of it.
    fn add(&mut self, group: &GroupPolicy, subject: &str) -> Result<()> {
        let one = [(group.clone(), subject.to_owned())];
        self.add_all(&one).into_iter().collect()
    }

    /// Moves a running process into a group. The process and its future children stay
    /// there until the group ends.
    ///
    /// # Errors
    /// When there is no such group or process, or the kernel refuses.
    fn add_process(&mut self, name: &str, pid: i32) -> Result<()>;

    /// Undoes all changes made for one group, and forgets the group.
    ///
    /// # Errors
    /// When there is no such group.
    fn remove(&mut self, name: &str) -> Result<UndoReport>;

    /// Path of a group as shown in `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// When there is no such group.
    fn shown_path(&self, name: &str) -> Result<PathBuf>;

    /// Replaces the knobs of a group.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn change(&mut self, name: &str, knobs: &Knobs) -> Result<()>;

    /// Sets what the whole machine keeps, again if it is the same as before: what others have set
    /// since is overwritten. A bandwidth slice that is not asked for any more is put back.
    ///
    /// # Errors
    /// When the kernel or this process's rights do not allow it. The demand of headroom holds
    /// nevertheless where only the bandwidth slice was refused.
    fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()>;

    /// Undoes groups of an earlier owner that were not taken over. Called after all present groups
    /// have been added.
    fn finish_adoption(&mut self) -> UndoReport {
        UndoReport::default()
    }

    /// Checks the kernel files of a group now. Returns the external changes since the
    /// last write that were not reported before, and adds them to the `foreign_changes`
    /// of the group's sample. External values stay until knobs are applied again.
    ///
    /// # Errors
    /// When the group is gone.
    fn audit(&mut self, _name: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Rewrites the kernel files of a group that have external changes, and clears the
    /// recorded changes.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn reapply(&mut self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Does the work due by `now`. Returns the time of the next call; `None`: no work
    /// is pending.
    ///
    /// # Errors
    /// When it can no longer control a group. What is limited stays limited.
    fn tick(&mut self, now: Instant) -> Result<Option<Instant>>;

    /// Returns messages for users since the last call, one line each.
    fn take_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Describes accepted knobs of a group that are not in force at present.
    fn problem(&self, _name: &str) -> Option<String> {
        None
    }

    /// Returns CPU usage and limit state of a group.
    ///
    /// # Errors
    /// When the group is gone.
    fn sample(&self, name: &str) -> Result<Sample>;

    /// Usage rates of a group's tasks; `None`: it has no cap. Costs some milliseconds
    /// where it has many.
    ///
    /// # Errors
    /// When the group is gone.
    fn task_rates(&mut self, name: &str) -> Result<Option<TaskRates>>;

    /// CPU time that a group has used so far; much cheaper than [`Enforcer::sample`].
    ///
    /// # Errors
    /// When the group is gone.
    fn usage_usec(&self, name: &str) -> Result<u64>;

    /// The headroom control of stock knobs, for a thread that must not wait for changes of groups.
    /// [`Enforcer::tick`] runs it, too.
    fn headroom_control(&self) -> HeadroomControl;

    /// State of the headroom controller, which all groups share.
    fn headroom(&self) -> Option<HeadroomSample>;

    /// State of the BPF scheduler, if groups are enforced by one.
    fn scheduler(&self) -> Option<SchedulerSample> {
        None
    }

    /// Returns true if a group still contains processes, as [`Sample::processes`] counts them.
    ///
    /// # Errors
    /// When the group is gone.
    fn is_populated(&self, name: &str) -> Result<bool>;

    /// Undoes the changes made for all groups.
    fn undo(&mut self) -> UndoReport;

    /// Lets go of all groups, which stay limited as they are: another enforcer of this process
    /// adopts them. Afterwards this one has none.
    fn leave(&mut self);
}
