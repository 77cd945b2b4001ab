//! What every enforcer can be asked, whichever kernel interface is behind it.

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuGroup, CpuStat};
use serde::{Deserialize, Serialize};

pub use crate::control::headroom::HeadroomDuty;
use crate::error::Result;
use crate::host::Capabilities;
use crate::knobs::{BandwidthSlice, Knobs};
use crate::policy_set::GroupPolicy;
use crate::undo::UndoReport;

/// The open files through which a process that is about to `exec` moves
/// itself into a group: nothing but `write` is safe there.
#[derive(Debug)]
pub struct Membership {
    /// One `cgroup.procs` a hierarchy.
    pub files: Vec<File>,
    /// The scheduling policy to take once it is in, if not its own.
    pub policy: Option<i32>,
}

impl Membership {
    /// That of a cgroup.
    ///
    /// # Errors
    /// When the cgroup is not there or not writable.
    pub(crate) fn of(cgroup: &CpuGroup) -> Result<Self> {
        Ok(Self {
            files: cgroup.open_procs()?,
            policy: None,
        })
    }
}

/// What a group has used and how it was limited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// CPU time used, by tasks that have ended too.
    pub usage_usec: u64,
    /// Processes in the group now.
    pub processes: u64,
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
    /// What the BPF scheduler counts of a group that it schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchSample>,
    /// State of the BPF scheduler that schedules the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSample>,
    /// Kernel files that somebody else has changed since we wrote them.
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
    /// Of all capped tasks so far: periods elapsed while active.
    pub nr_periods: u64,
    /// Of those, ended throttled.
    pub nr_throttled: u64,
}

/// State of a soft cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftCapSample {
    /// Usage rate, decaying average, in ppm of one CPU.
    pub rate_ppm: u64,
    /// Over its cap, and so in the background.
    pub background: bool,
    /// How often that has changed.
    pub nr_switches: u64,
}

/// No more tasks of a group are looked at at a time: some milliseconds of CPU time.
pub const TASK_RATES_MAX: usize = 256;

/// Usage rates of the tasks of a capped group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRates {
    /// The fastest first; no more than [`TASK_RATES_MAX`].
    pub tasks: Vec<TaskRate>,
    /// How many tasks the group has.
    pub nr_tasks: u64,
}

impl TaskRates {
    /// The fastest first. `nr_tasks`: how many there are in all.
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

/// State of the headroom controller, which all side groups of a user share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadroomSample {
    /// The headroom in force: the largest that any group asks for, in ppm of
    /// all CPUs.
    pub headroom_ppm: u32,
    /// The same as it was asked for, such as `30%` or `2cpus`, where both forms
    /// can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<String>,
    /// What is asked for in the other form, and is less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overruled: Option<String>,
    /// What side work may use now, in ppm of all CPUs.
    pub allowance_ppm: u64,
    /// What side work used lately, in ppm of all CPUs.
    pub side_ppm: u64,
    /// What everything else used lately, in ppm of all CPUs.
    pub nonside_ppm: u64,
    /// Time-integral of (headroom − idle) while side work ran above its
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
    /// How many they are in all.
    #[serde(default)]
    pub nr_sides: u64,
}

/// What a BPF scheduler counts of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchSample {
    /// Summed over CPUs.
    #[serde(flatten)]
    pub total: BatchCounts,
    /// Of each CPU, by its number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<BatchCpu>,
}

/// What a BPF scheduler counts of a group on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCpu {
    /// The CPU's number.
    pub cpu: u32,
    /// What the group did there.
    #[serde(flatten)]
    pub counts: BatchCounts,
}

/// What a BPF scheduler counts of a group, in one place or in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCounts {
    /// Time in which its tasks ran.
    pub run_usec: u64,
    /// Time for which its tasks waited until they ran.
    pub wait_usec: u64,
    /// Times that a task began to run.
    pub nr_switches: u64,
    /// Of those, stopped with time left, by normal work.
    pub nr_preempted: u64,
    /// Of those, run because they had waited for too long.
    pub nr_overdue: u64,
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
        }
    }
}

/// State of the BPF scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSample {
    /// `running`, `loading` or `down`: without it the group's tasks are
    /// ordinary ones.
    pub state: String,
    /// `partial` or `all`.
    pub mode: String,
    /// The process that keeps it in the kernel; 0: nobody.
    pub owner_pid: u32,
    /// What is lost while it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
    /// How often it was loaded again since that process began to.
    pub nr_reloads: u64,
    /// Tasks that had waited for so long that they were run by the fair class.
    pub nr_rescues: u64,
    /// Tasks that were run at once, because they held a lock of the kernel for which
    /// normal work waited.
    #[serde(default)]
    pub nr_promotions: u64,
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
    /// A BPF scheduler, with control groups for what it leaves to them.
    SchedExt,
}

/// An interface of the kernel that makes knobs come true.
pub trait Enforcer: Send {
    /// Which interface that is.
    fn kind(&self) -> EnforcerKind {
        EnforcerKind::Cgroup
    }

    /// What it can do on this host.
    fn capabilities(&self) -> &Capabilities;

    /// Takes a group and applies its knobs, which the plan found enforceable.
    ///
    /// # Errors
    /// When the kernel refuses; then nothing is left of it.
    fn add(&mut self, group: &GroupPolicy, subject: &str) -> Result<()>;

    /// Takes many groups, as [`Enforcer::add`] takes one: each is added or
    /// refused by itself. Cheaper than one by one.
    fn add_all(&mut self, groups: &[(GroupPolicy, String)]) -> Vec<Result<()>> {
        let add = |(group, subject): &(GroupPolicy, String)| self.add(group, subject);
        groups.iter().map(add).collect()
    }

    /// Moves a process that runs already into a group; it and what it starts
    /// from now on stay there until the group ends.
    ///
    /// # Errors
    /// When there is no such group or process, or the kernel refuses.
    fn add_process(&mut self, name: &str, pid: i32) -> Result<()>;

    /// Puts back what was done for one group, and forgets it.
    ///
    /// # Errors
    /// When there is no such group.
    fn remove(&mut self, name: &str) -> Result<UndoReport>;

    /// What a process needs to move itself into a group before it starts
    /// its command.
    ///
    /// # Errors
    /// When the group is gone.
    fn membership(&self, name: &str) -> Result<Membership>;

    /// What is in force for a group.
    ///
    /// # Errors
    /// When there is no such group.
    fn knobs(&self, name: &str) -> Result<&Knobs>;

    /// Where a user finds a group, as in `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// When there is no such group.
    fn shown_path(&self, name: &str) -> Result<PathBuf>;

    /// Replaces the knobs of a group.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn change(&mut self, name: &str, knobs: &Knobs) -> Result<()>;

    /// Sets what a CPU takes from a quota at a time, on the whole machine; `None`: as it
    /// was before.
    ///
    /// # Errors
    /// When this process may not; then nothing has changed.
    fn set_bandwidth_slice(&mut self, slice: Option<BandwidthSlice>) -> Result<()>;

    /// All groups that there are have been added: puts back those of an earlier owner that were
    /// not taken over.
    fn finish_adoption(&mut self) -> UndoReport {
        UndoReport::default()
    }

    /// From now on the caller notices what others write to kernel files, and
    /// calls [`Enforcer::audit`]: no timer does.
    fn leave_audits_to_caller(&mut self) {}

    /// Looks at the kernel files of a group now. Returns what others have
    /// changed there since we wrote, as far as that was not told before, and
    /// adds it to the `foreign_changes` of the group's sample. Theirs stays
    /// until knobs are applied again. Groups of our own are looked at once a
    /// second too; cgroups of somebody else only by this.
    ///
    /// # Errors
    /// When the group is gone.
    fn audit(&mut self, _name: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Writes what is wanted of a group again where others have changed it,
    /// and forgets what was found.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn reapply(&mut self, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Does what falls due by `now`, and says when it wants to be called
    /// again; `None`: it has nothing to do.
    ///
    /// # Errors
    /// When it can no longer control a group. What is limited stays limited.
    fn tick(&mut self, now: Instant) -> Result<Option<Instant>>;

    /// What people should be told since the last call, a line each.
    fn take_messages(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// What of a group's knobs does not hold at present, though they were
    /// accepted.
    fn problem(&self, _name: &str) -> Option<String> {
        None
    }

    /// What a group has used.
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

    /// CPU time that a group has used so far: of [`Enforcer::sample`] the part
    /// that costs next to nothing.
    ///
    /// # Errors
    /// When the group is gone.
    fn usage_usec(&self, name: &str) -> Result<u64>;

    /// The headroom controller of stock knobs, for a thread that is not to wait for whoever does
    /// something to a group meanwhile. [`Enforcer::tick`] runs it, too.
    fn headroom_duty(&self) -> HeadroomDuty;

    /// State of the headroom controller, which all groups share.
    fn headroom(&self) -> Option<HeadroomSample>;

    /// State of the BPF scheduler, if groups are enforced by one.
    fn scheduler(&self) -> Option<SchedulerSample> {
        None
    }

    /// Whether anything still runs in a group.
    ///
    /// # Errors
    /// When the group is gone.
    fn is_populated(&self, name: &str) -> Result<bool>;

    /// Puts everything back.
    fn undo(&mut self) -> UndoReport;
}
