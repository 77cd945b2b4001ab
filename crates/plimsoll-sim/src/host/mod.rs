//! Event-driven simulation of one host.
//!
//! A [`Host`] runs a [`Scenario`](crate::scenario::Scenario) in virtual time: a
//! fair class, the batch class below it, bandwidth, headroom and caps, with all
//! decisions by the policy core. It is deterministic and reads no clock.
//!
//! | file | subject |
//! | --- | --- |
//! | `engine.rs` | state of the host and the event loop |
//! | `timers.rs`, `owners.rs` | timers, and the numbers of their owners |
//! | `clock.rs` | virtual time, and the work that CPUs do in it |
//! | `choose.rs` | picking the next task of a CPU and its slice |
//! | `select_cpu.rs` | the CPU on which a waking task is queued |
//! | `balance.rs` | load balancing |
//! | `limits.rs` | quota, caps and per-CPU limits, and charging |
//! | `throttled.rs` | tasks that are off the queues for quota or limit |
//! | `rates.rs` | usage rates and soft caps |
//! | `batch_grant.rs` | headroom and tolerance |
//! | `workload.rs`, `work.rs` | workloads, and the next step of their tasks |
//! | `figures.rs`, `report.rs` | building the report, and its types |
//!
//! # The model and its origin
//!
//! The fair class has a run queue for each CPU, ordered by virtual runtime,
//! with slices of [`FAIR_SLICE_NS`]. A waking task goes to an idle CPU that
//! shares the cache of its previous CPU, and idle CPUs take waiting tasks from
//! others. The batch class has a run queue for each last-level cache, as the
//! BPF scheduler does; slices, order and balancing are the core's. Group
//! weights are flattened: a task's virtual runtime advances by the core's rule
//! for its own weight among its group's runnable tasks and for the group's
//! weight.

mod balance;
mod batch_grant;
mod choose;
mod clock;
mod cpu;
mod cpuset;
mod engine;
mod figures;
mod group;
mod limits;
mod observe;
mod owners;
mod rates;
mod report;
mod runqueue;
mod select_cpu;
mod task;
mod throttled;
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

/// Slice of a fair task while others wait: the kernel's base slice on eight and
/// more CPUs (kernel/sched/fair.c, `sysctl_sched_base_slice`, 0.7 ms × 4).
pub const FAIR_SLICE_NS: u64 = 2_800_000;

/// Reason why a scenario cannot run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
    /// The machine is invalid.
    #[error("machine: {0}")]
    Machine(#[from] MachineError),
    /// There are no groups.
    #[error("the scenario has no groups, allowed is at least one")]
    NoGroups,
    /// The run is empty or too long.
    #[error("the run takes {asked_ns} ns, allowed are 1 to {max} with the warm-up", max = LONGEST_NS)]
    Length {
        /// Warm-up and measured time.
        asked_ns: u64,
    },
    /// The knobs of a group contradict each other.
    #[error("group {group}: {problem}")]
    Group {
        /// Its name.
        group: String,
        /// The problem.
        problem: String,
    },
    /// The headroom is invalid.
    #[error("headroom: {0}")]
    Headroom(String),
    /// A workload is invalid.
    #[error("group {group}: {source}")]
    Workload {
        /// Its group.
        group: String,
        /// The problem.
        source: Box<plimsoll_load::LoadError>,
    },
}

/// Longest run, warm-up included: 4 hours. Bounded because work is counted in
/// 2^-20 ns.
pub const LONGEST_NS: u64 = 4 * 3_600 * plimsoll_policy::NSEC_PER_SEC;
