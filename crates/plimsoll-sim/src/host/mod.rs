//! One host, event by event.
//!
//! A [`Host`] runs a [`Scenario`](crate::scenario::Scenario) in virtual time:
//! a fair class, the batch class below it, bandwidth, headroom and caps, all
//! by the policy core. It is deterministic and reads no clock.
//!
//! | file | subject |
//! | --- | --- |
//! | `engine.rs` | the host: what happens when |
//! | `timers.rs`, `owners.rs` | timers, and whose they are |
//! | `clock.rs` | virtual time, and the work that CPUs do in it |
//! | `choose.rs` | which task a CPU runs next, and for how long |
//! | `place.rs` | on which CPU a task that wakes up waits |
//! | `balance.rs` | what a CPU takes from others |
//! | `limits.rs` | quota, caps and limits: whether a task may run, and what it ran |
//! | `held.rs` | tasks that wait off the queues for quota or limit |
//! | `rates.rs` | usage rates against soft caps |
//! | `side.rs` | headroom and tolerance |
//! | `workload.rs`, `work.rs` | the workloads, and what their tasks do next |
//! | `figures.rs` | what is reported |
//!
//! # What the model has, and where it is from
//!
//! The fair class: a run queue for each CPU, ordered by virtual runtime, slices of
//! [`FAIR_SLICE_NS`], a waking task goes to an idle CPU that shares the cache of the
//! one it ran on, idle CPUs take waiting tasks from others. The batch class: a run
//! queue for each last-level cache, as the scheduler in the kernel has; slices,
//! order and balancing by the core. Weights of groups are flattened: a task's
//! virtual runtime moves by the core's rule for its own weight among its group's
//! runnable tasks and for the group's weight.

mod balance;
mod choose;
mod clock;
mod cpu;
mod cpuset;
mod engine;
mod figures;
mod group;
mod held;
mod limits;
mod observe;
mod owners;
mod place;
mod rates;
mod report;
mod runqueue;
mod side;
mod task;
mod timers;
mod work;
mod workload;

use thiserror::Error;

pub use engine::Host;
pub use observe::{Event, Observer, Span};
pub use report::{
    BandwidthFigures, GroupReport, HeadroomFigures, HostReport, MachineFigures, WorkloadReport,
};

use crate::scenario::MachineError;

/// How long a task of the fair class runs at a time while others wait: the
/// kernel's base slice on eight and more CPUs (kernel/sched/fair.c,
/// `sysctl_sched_base_slice`, 0.7 ms × 4).
pub const FAIR_SLICE_NS: u64 = 2_800_000;

/// A scenario that cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The machine cannot be.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// There is nothing to run.
    #[error("the scenario has no groups, allowed is at least one")]
    NoGroups,
    /// The run has no length, or too much of it.
    #[error("the run takes {asked_ns} ns, allowed are 1 to {max} with the warm-up", max = LONGEST_NS)]
    Length {
        /// Warm-up and measured time.
        asked_ns: u64,
    },
    /// A group's knobs do not go together.
    #[error("group {group}: {problem}")]
    Group {
        /// Its name.
        group: String,
        /// What is wrong.
        problem: String,
    },
    /// The headroom cannot be kept.
    #[error("headroom: {0}")]
    Headroom(String),
    /// A workload cannot run.
    #[error("group {group}: {source}")]
    Workload {
        /// Its group.
        group: String,
        /// What is wrong.
        source: Box<plimsoll_load::LoadError>,
    },
}

/// No run is longer, with its warm-up: 4 hours. Work is counted in 2^-20 ns.
pub const LONGEST_NS: u64 = 4 * 3_600 * plimsoll_policy::NSEC_PER_SEC;
