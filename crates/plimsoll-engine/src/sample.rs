//! Samples of groups and of the machine, independent of the kernel interface of their enforcer.

use std::path::PathBuf;

use plimsoll_cgroupfs::CpuStat;
use serde::{Deserialize, Serialize};

/// State that all groups share.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineSample {
    /// State of the headroom controller.
    pub headroom: Option<HeadroomSample>,
    /// State of the BPF scheduler, if groups are enforced by one.
    pub scheduler: Option<SchedulerSample>,
}

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
    /// Accepted knobs that are not in force at present, for people.
    #[serde(skip)]
    pub problem: Option<String>,
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
    /// Number of these runs that started because others may wait for a lock of the task.
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
    /// State: `running` or `down`. Without the scheduler the group's tasks are ordinary ones.
    pub state: String,
    /// Pid of the process that keeps the scheduler loaded.
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
