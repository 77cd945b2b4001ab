//! What a scenario says: a machine, groups with their knobs, and the work in
//! them. Knobs are those of the configuration file, workloads those of
//! `plimsoll load`, so that one scenario runs here and on a real machine.

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
    /// One line that says what it shows.
    pub about: String,
    /// Where it runs.
    pub machine: Machine,
    /// Who runs; names are unique. At least one.
    pub groups: Vec<Group>,
    /// Measured time, after the warm-up.
    pub duration_ns: u64,
    /// Time before that, which is in no figure.
    pub warmup_ns: u64,
    /// Decides all random draws, together with the place of a workload.
    pub seed: u64,
}

/// Tasks that share knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Names it in reports.
    pub name: String,
    /// What is asked of the enforcer.
    pub knobs: Knobs,
    /// What runs in it.
    pub workloads: Vec<Workload>,
}

/// Something to run, as `plimsoll load` has it.
///
/// A file has no durations and seeds of its own for them; they come from the
/// scenario. A service has the scenario's warm-up and duration; a workload
/// that knows no warm-up runs for both together. The seed of a service is
/// [`workload_seed`] of the scenario's and its place in the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Workload {
    /// Requests and the workers that serve them. The model keeps 24 bytes for
    /// each request that waits, and has no bound on how many do: a service that
    /// cannot keep up takes memory for all that arrive.
    Service(ServiceConfig),
    /// Endless work.
    Burn(BurnConfig),
    /// Short-lived processes.
    Storm(StormConfig),
    /// A set amount of CPU time.
    Need(NeedConfig),
    /// A set share of the machine.
    Steady(SteadyConfig),
    /// Periodic wake-ups.
    Wake(WakeConfig),
}

/// The seed of a workload's draws. `place`: how many workloads stand before it
/// in the file. The first has the scenario's own seed, so that it is that of
/// `plimsoll load` too.
#[must_use]
pub fn workload_seed(seed: u64, place: u64) -> u64 {
    // 2^64 divided by the golden ratio: no small seeds or places meet.
    seed.wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// The most tasks of a scenario at a time: the model takes some 200 bytes for
/// each.
pub const TASKS_MAX: u64 = 1_000_000;

impl Workload {
    /// How many tasks it has at a time on a machine of so many CPUs.
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

    /// The word for it, as on the command line.
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
