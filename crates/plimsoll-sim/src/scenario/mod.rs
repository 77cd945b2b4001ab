//! Scenarios: a machine, and groups with their knobs and workloads. Knobs are
//! those of the configuration file and workloads those of `plimsoll load`, so
//! that a scenario can run in the simulator and on a real machine.

mod file;
mod machine;

pub use file::{Overrides, Run, ScenarioFile};
pub use machine::{Machine, MachineError};

use plimsoll_engine::knobs::Knobs;
pub use plimsoll_engine::toml_file::FileError;
use plimsoll_load::{BurnConfig, NeedConfig, ServiceConfig, SteadyConfig, StormConfig, WakeConfig};

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Description in one line.
    pub about: String,
    /// The machine to run on.
    pub machine: Machine,
    /// Groups with unique names; at least one.
    pub groups: Vec<Group>,
    /// Measured time, after the warm-up.
    pub duration_ns: u64,
    /// Time before the measurement, which is excluded from all figures.
    pub warmup_ns: u64,
    /// Seed of all random draws, together with the position of a workload.
    pub seed: u64,
}

/// A group of tasks that share knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Name in reports.
    pub name: String,
    /// Knobs to enforce.
    pub knobs: Knobs,
    /// Workloads of its tasks.
    pub workloads: Vec<Workload>,
}

/// A workload of `plimsoll load`.
///
/// Durations and seeds come from the scenario, not from the file's workload. A
/// service has the scenario's warm-up and duration; a workload without a
/// warm-up runs for both together. The seed of a service is [`workload_seed`]
/// of the scenario's seed and the service's position in the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Requests and the workers that serve them. The model takes 24 bytes for
    /// each pending request without a bound on their number, so the memory of
    /// an overloaded service grows with its arrivals.
    Service(ServiceConfig),
    /// Endless work.
    Burn(BurnConfig),
    /// Short-lived processes.
    Storm(StormConfig),
    /// A fixed amount of CPU time.
    Need(NeedConfig),
    /// A fixed share of the machine.
    Steady(SteadyConfig),
    /// Periodic wake-ups.
    Wake(WakeConfig),
}

/// Seed of a workload's draws. `place` is the number of workloads before it in
/// the file. The first has the scenario's own seed, so that it draws the same
/// as in `plimsoll load`.
#[must_use]
pub fn workload_seed(seed: u64, place: u64) -> u64 {
    // 2^64 divided by the golden ratio: small seeds and positions do not
    // collide.
    seed.wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Maximum number of tasks that a scenario has at a time: the model takes some
/// 200 bytes for each.
pub const TASKS_MAX: u64 = 1_000_000;

impl Workload {
    /// Number of tasks at a time on a machine of `cpus` CPUs.
    #[must_use]
    pub fn tasks(&self, cpus: u32) -> u64 {
        match self {
            Self::Service(config) => config.workers as u64,
            Self::Burn(config) => config.burners as u64,
            Self::Storm(config) => u64::from(config.processes).min(config.parallel as u64),
            Self::Need(config) => config.tasks as u64,
            Self::Steady(_) => u64::from(cpus),
            Self::Wake(_) => 1,
        }
    }

    /// Name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Service(_) => "service",
            Self::Burn(_) => "burn",
            Self::Storm(_) => "storm",
            Self::Need(_) => "need",
            Self::Steady(_) => "steady",
            Self::Wake(_) => "wake",
        }
    }
}
