//! Report of a run of a host.

use plimsoll_load::Latency;
use serde::Serialize;

/// Figures of a run, complete or not. The warm-up is excluded, except for
/// `storm` and `need`, which have a beginning and an end of their own and are
/// measured from the start of the run, as by `plimsoll load`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostReport {
    /// Seed of all random draws.
    pub seed: u64,
    /// Virtual time measured.
    pub measured_ns: u64,
    /// Whether the run reached its planned end.
    pub complete: bool,
    /// Events of the simulation, warm-up included.
    pub events: u64,
    /// All CPUs together.
    pub machine: MachineFigures,
    /// The headroom controller, if a group demands headroom.
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

/// Figures of the headroom controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HeadroomFigures {
    /// Share of CPU time demanded idle.
    pub headroom_ratio: f64,
    /// Integral of (headroom − idle) while batch work ran above its tolerance.
    pub shortfall_ns: u64,
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its name.
    pub name: String,
    /// CPU time used.
    pub cpu_ns: u64,
    /// Average number of CPUs used.
    pub cpus_used: f64,
    /// CPU time used in the batch class.
    pub batch_ns: u64,
    /// Time that runnable tasks waited for a CPU, summed, throttled time included.
    pub wait_ns: u64,
    /// Number of times that one of its tasks got a CPU.
    pub nr_switches: u64,
    /// Number of times that one of its tasks was preempted by a task of another
    /// group or class.
    pub nr_preemptions: u64,
    /// Bandwidth statistics, if it has a quota.
    pub bandwidth: Option<BandwidthFigures>,
    /// Number of times that a task or the group waited for its cap.
    pub nr_capped: u64,
    /// In the order of the scenario.
    pub workloads: Vec<WorkloadReport>,
}

/// Bandwidth statistics, as in the kernel's `cpu.stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BandwidthFigures {
    /// Periods in which the group was active.
    pub nr_periods: u64,
    /// Periods that ended with a throttled CPU.
    pub nr_throttled: u64,
    /// Throttled time, summed over CPUs.
    pub throttled_ns: u64,
    /// Periods whose usage exceeded the quota.
    pub nr_bursts: u64,
    /// Usage above the quota in those periods, summed.
    pub burst_ns: u64,
}

/// Figures of a workload, in the terms of `plimsoll load`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub enum WorkloadReport {
    /// Requests.
    Service {
        /// Requests that arrived.
        requests: u64,
        /// Requests that were answered.
        answered: u64,
        /// Requests that were answered after the deadline or not at all. At the
        /// end of the run, a request counts as not answered if it has waited
        /// longer than the deadline or the grace, whichever is shorter; other
        /// pending requests count neither as answered nor as failed.
        failures: u64,
        /// Time from arrival to the answer, or to the end of the run for
        /// requests that failed without one. All 0 if there is neither an
        /// answer nor a failure.
        latency: Latency,
    },
    /// Endless work.
    Burn {
        /// CPU time used.
        cpu_ns: u64,
        /// Work done: CPU time less the loss to contention and busy siblings.
        work_ns: u64,
        /// Work of the burner with the least.
        work_least_ns: u64,
        /// Work of the burner with the most.
        work_most_ns: u64,
    },
    /// Short-lived processes.
    Storm {
        /// Processes that ended, warm-up included.
        processes: u64,
        /// From the first start to the last end, or to the end of the run.
        elapsed_ns: u64,
        /// CPU time used in that time.
        cpu_ns: u64,
    },
    /// A fixed amount of CPU time.
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
    /// A fixed share of the machine.
    Steady {
        /// CPU time used.
        cpu_ns: u64,
        /// In percent of the machine.
        percent_achieved: f64,
    },
    /// Periodic wake-ups.
    Wake {
        /// Number of wake-ups.
        wakeups: u64,
        /// Delay of each.
        late: Latency,
    },
}
