//! What a run of a host came to.

use plimsoll_load::Latency;
use serde::Serialize;

/// A run, or what of it was done. Warm-up is in none of the figures, but for
/// `storm` and `need`, which have a beginning and an end of their own: theirs
/// are from the start of the run on, as those of `plimsoll load` are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostReport {
    /// Seed of all random draws.
    pub seed: u64,
    /// Virtual time measured.
    pub measured_ns: u64,
    /// Whether the run came to its planned end.
    pub complete: bool,
    /// Events of the simulation, warm-up included.
    pub events: u64,
    /// All CPUs together.
    pub machine: MachineFigures,
    /// The headroom controller, where a group asks for headroom.
    pub headroom: Option<HeadroomFigures>,
    /// In the order of the scenario.
    pub groups: Vec<GroupReport>,
}

/// Shares of all CPU time; they add up to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct MachineFigures {
    /// CPUs.
    pub cpus: u32,
    /// Used by the fair class.
    pub normal_ratio: f64,
    /// Used by the batch class.
    pub batch_ratio: f64,
    /// Not used.
    pub idle_ratio: f64,
}

/// What the headroom controller did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HeadroomFigures {
    /// The share asked to be idle.
    pub headroom_ratio: f64,
    /// Integral of (headroom − idle) while side work ran above its tolerance.
    pub shortfall_ns: u64,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// CPU time used.
    pub cpu_ns: u64,
    /// The same, as a number of CPUs on average.
    pub cpus_used: f64,
    /// Of that, in the batch class.
    pub batch_ns: u64,
    /// Time that runnable tasks waited for a CPU, summed, throttled time included.
    pub wait_ns: u64,
    /// Times that a task of it got a CPU.
    pub nr_switches: u64,
    /// Times that a task was taken off a CPU for one of another group or class.
    pub nr_preemptions: u64,
    /// Where it has a quota.
    pub bandwidth: Option<BandwidthFigures>,
    /// Where it has a cap: times that a task or the group had to wait for it.
    pub nr_capped: u64,
    /// In the order of the scenario.
    pub workloads: Vec<WorkloadReport>,
}

/// As the kernel's `cpu.stat` has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BandwidthFigures {
    /// Periods in which the group was active.
    pub nr_periods: u64,
    /// Of those, ended with a throttled CPU.
    pub nr_throttled: u64,
    /// How long CPUs were throttled, summed.
    pub throttled_ns: u64,
    /// Periods whose usage exceeded the quota.
    pub nr_bursts: u64,
    /// By how much, summed.
    pub burst_ns: u64,
}

/// What a workload came to, in the terms of `plimsoll load`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub enum WorkloadReport {
    /// Requests.
    Service {
        /// That arrived.
        requests: u64,
        /// Of those, answered.
        answered: u64,
        /// Answered after the deadline, or not at all. Without an answer at the
        /// end are those that have waited longer than the deadline or the grace,
        /// whichever is shorter; the others that are under way are neither.
        failures: u64,
        /// From arrival to answer; of those not answered, to the end. All 0 where
        /// there is neither answer nor failure.
        latency: Latency,
    },
    /// Endless work.
    Burn {
        /// CPU time used.
        cpu_ns: u64,
        /// Work done: CPU time, less what contention and siblings cost.
        work_ns: u64,
        /// Of the burner with the least work.
        work_least_ns: u64,
        /// Of the burner with the most.
        work_most_ns: u64,
    },
    /// Short-lived processes.
    Storm {
        /// That ended, in the warm-up too.
        processes: u64,
        /// From the first start to the last end, or to the end of the run.
        elapsed_ns: u64,
        /// CPU time used in that time.
        cpu_ns: u64,
    },
    /// A set amount of CPU time.
    Need {
        /// Whether all tasks ended.
        complete: bool,
        /// From the start to the last end, or to the end of the run.
        elapsed_ns: u64,
        /// CPU time used in that time.
        cpu_ns: u64,
        /// CPU time ÷ elapsed time.
        rate: f64,
    },
    /// A set share of the machine.
    Steady {
        /// CPU time used.
        cpu_ns: u64,
        /// In percent of the machine.
        percent_achieved: f64,
    },
    /// Periodic wake-ups.
    Wake {
        /// How many.
        wakeups: u64,
        /// How late each was.
        late: Latency,
    },
}
