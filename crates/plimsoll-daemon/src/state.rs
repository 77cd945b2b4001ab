//! The daemon's state at one moment: the source of `show`, `top` and the metrics.
//!
//! Counters only grow while a daemon lives. A rate is the difference of two states, divided by
//! that of their [`MachineState::at_usec`].

use std::path::PathBuf;

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::PlanItem;
use plimsoll_engine::sample::{HeadroomSample, Sample, SchedulerSample};
use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub daemon: Daemon,
    pub machine: MachineState,
    /// The headroom controller, if any headroom is desired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<HeadroomSample>,
    /// The BPF scheduler, if it enforces anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSample>,
    /// All groups, sorted by name.
    pub groups: Vec<GroupState>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    /// Looks and wake-ups since the guard was attached.
    #[serde(flatten)]
    pub counts: GuardCounts,
    /// Reason why the guard is not attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Looks and wake-ups of the guard, on all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardCounts {
    /// Times that batch work began to run before normal work; most end before a look.
    pub nr_begun: u64,
    /// Looks at which batch work still ran before normal work.
    pub nr_inverted: u64,
    /// Wake-ups that had a CPU pick again.
    pub nr_woken: u64,
    /// Tasks that waited for normal work and were moved to a CPU that ran batch work.
    #[serde(default)]
    pub nr_pulled: u64,
    /// Batch tasks for which normal work waited and that were moved to such a CPU.
    #[serde(default)]
    pub nr_pushed: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    pub pid: u32,
    pub version: String,
    pub uptime_usec: u64,
    pub config: PathBuf,
    /// A command has started it; a daemon takes its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_on_demand: bool,
    pub enforcer: EnforcerKind,
    /// Kernel files that others change are written again.
    pub enforce: bool,
    /// Bursts are switched off for all groups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub burst_off: bool,
    /// Groups of the file that no cgroup matches now, which may be a mistake in a pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// Conditions that an operator should look at, a line each, such as a limit of the kernel
    /// that is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The guard, attached or refused, while the kernel's fair class runs batch work and a little
    /// longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<GuardState>,
    /// Whether the owner has made lazy preemption full, while a group asks for the host's tuning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_tuning: Option<bool>,
    pub counters: Counters,
    /// Delays of the control loop.
    pub control_delay: Histogram,
    pub resident_bytes: u64,
    pub cpu_usec: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Configurations that were taken over, the first included.
    pub reloads: u64,
    pub reloads_refused: u64,
    /// External changes of kernel files that were noticed.
    pub foreign_changes: u64,
    /// Groups that could not be applied, each time counted.
    pub apply_failures: u64,
    pub requests: u64,
    pub requests_refused: u64,
    /// Times that the kernel's queue of events ran over and everything was
    /// looked at again.
    pub events_lost: u64,
}

/// A histogram of times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// The upper bound of each bucket but the last, which has none.
    pub bounds_usec: Vec<u64>,
    /// Times in each bucket, not summed up; one more than bounds.
    pub counts: Vec<u64>,
    pub sum_usec: u64,
}

/// The machine's CPUs. Counted since the machine or the daemon started: only
/// differences mean something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// Time of this state, by the monotonic clock.
    pub at_usec: u64,
    /// Number of CPUs that are online.
    pub nr_cpus: u32,
    /// CPU time of everything.
    pub busy_usec: u64,
    /// CPU time of batch groups, a part of `busy_usec`.
    pub batch_usec: u64,
}

/// Source of a group's knobs. In the order of precedence, the strongest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KnobOrigin {
    /// `plimsoll run` or `plimsoll set`.
    CommandLine,
    /// The configuration file.
    #[default]
    File,
}

/// One group: a foreign cgroup, or one of Plimsoll's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupState {
    /// Unique name: the path of a foreign cgroup with a `/` in front, else the group's name. A
    /// byte of a path that is no UTF-8 is the character U+10FF00 plus the byte.
    pub name: String,
    /// The group of the file that the cgroup belongs to, or the group's own name.
    pub group: String,
    /// The strongest source of its knobs.
    pub origin: KnobOrigin,
    /// Path below the mount point, with a `/` in front.
    pub cgroup: String,
    /// The command, for people; empty for a foreign cgroup.
    #[serde(default)]
    pub subject: String,
    /// Desired knobs, without those that this host cannot enforce.
    pub knobs: Knobs,
    #[serde(default)]
    pub enforcer: EnforcerKind,
    /// Mechanism of each knob. `None` unless details were requested.
    #[serde(default)]
    pub plan: Option<Vec<PlanItem>>,
    /// Usage; `None`: the group is not applied, see `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Sample>,
    /// Failure, or loss of the desired state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Batch work of the kernel's fair class whose owner has no guard. Only in answers to changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lacks_guard: bool,
    /// A likely mistake of its operator, though the desired state is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
