//! What the daemon knows, at one moment: all that `show`, `top` and the metrics
//! are made of.
//!
//! Counters only grow while a daemon lives; whoever wants a rate takes two
//! states and divides by the difference of their [`Machine::at_usec`].

use std::path::PathBuf;

use plimsoll_engine::enforcer::{EnforcerKind, HeadroomSample, Sample, SchedulerSample};
use plimsoll_engine::host::Mode;
use plimsoll_engine::knobs::Knobs;
use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The daemon itself.
    pub daemon: Daemon,
    /// The machine's CPUs.
    pub machine: Machine,
    /// The headroom controller, if headroom is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<HeadroomSample>,
    /// The BPF scheduler, if it enforces anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerSample>,
    /// All groups, sorted by name.
    pub groups: Vec<Group>,
}

/// The daemon itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// Its process.
    pub pid: u32,
    /// Of this program.
    pub version: String,
    /// Since it started.
    pub uptime_usec: u64,
    /// The configuration file.
    pub config: PathBuf,
    /// What enforces the groups.
    pub enforcer: EnforcerKind,
    /// Which tasks a BPF scheduler schedules.
    pub mode: Mode,
    /// Kernel files that others change are written again.
    pub enforce: bool,
    /// Bursts are switched off for all groups.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub burst_off: bool,
    /// What somebody should look at, a line each: parts of the configuration
    /// that could not be used, a kernel's limit that is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What it has counted so far.
    pub counters: Counters,
    /// How late its control loop was.
    pub control_delay: Histogram,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// CPU time that it has used.
    pub cpu_usec: u64,
}

/// What a daemon counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Configurations that were taken over, the first included.
    pub reloads: u64,
    /// Configurations that were refused.
    pub reloads_refused: u64,
    /// Attributes of cgroups that were ignored: not allowed, or no value.
    pub attributes_refused: u64,
    /// Changes of the kernel's files by others that were noticed.
    pub foreign_changes: u64,
    /// Groups that could not be applied.
    pub apply_failures: u64,
    /// Requests on the control socket.
    pub requests: u64,
    /// Of those, refused.
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
    /// Of all times.
    pub sum_usec: u64,
}

/// The machine's CPUs. Counted since the machine or the daemon started: only
/// differences mean something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// When that was, by the monotonic clock.
    pub at_usec: u64,
    /// CPUs that are online.
    pub nr_cpus: u32,
    /// CPU time of everything.
    pub busy_usec: u64,
    /// Of that, of batch groups that are managed.
    pub batch_usec: u64,
}

/// Where a group comes from. In the order of precedence, the strongest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// `plimsoll run` or `plimsoll set`.
    CommandLine,
    /// The extended attributes of its cgroup, over the file if it is there.
    Attributes,
    /// The configuration file.
    #[default]
    File,
}

/// One group: a cgroup of somebody else's, or one of Plimsoll's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Unique. Of a cgroup of somebody else's, its path with a `/` in front;
    /// of one of Plimsoll's own, the group's name.
    pub name: String,
    /// The group of the file that it belongs to, or its own name.
    pub group: String,
    /// The strongest of those that have a say in its knobs.
    pub origin: Origin,
    /// Below the mount point, with a `/` in front.
    pub cgroup: PathBuf,
    /// What runs in it, as people recognise it; empty for a cgroup.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// What is asked of it, less what this host cannot enforce.
    pub knobs: Knobs,
    /// Which interface of the kernel enforces them.
    #[serde(default)]
    pub enforcer: EnforcerKind,
    /// What enforces each knob: the items of a `plimsoll_engine::plan::Plan`.
    /// `null` unless it was asked for.
    #[serde(default)]
    pub plan: serde_json::Value,
    /// What it has used; `None`: it is not applied, see `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics: Option<Sample>,
    /// Why it is not, or not wholly, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What its operator may not have meant, though all is as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
