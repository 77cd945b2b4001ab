//! Results of a simulated scenario, and their JSON form.
//!
//! # JSON
//! `plimsoll sim host --json` prints one object: [`Outcome`] beside `schema`.
//! Within `plimsoll.sim-host/1`, fields are only ever added. Times end in `_ns`
//! or `_us`; ratios are 1 for the whole.

use std::path::Path;

use plimsoll_sim::host::HostReport;
use plimsoll_sim::scenario::{Run, ScenarioFile};
use serde::Serialize;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "plimsoll.sim-host/1";

/// Results of a scenario file.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Version of Plimsoll.
    pub version: String,
    /// Name of the file, as given.
    pub file: String,
    /// Description from the file.
    pub about: String,
    /// The runs; fewer than in the file if the simulation was interrupted.
    pub runs: Vec<RunOutcome>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunOutcome {
    /// Name of the variant; `null` in a file without variants.
    pub variant: Option<String>,
    /// Description of the variant.
    pub about: String,
    /// Warm-up before the measurement.
    pub warmup_ns: u64,
    /// Report of the simulator.
    #[serde(flatten)]
    pub report: HostReport,
}

impl Outcome {
    /// Creates results without runs.
    pub fn new(path: &Path, file: &ScenarioFile) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            file: super::shown(path),
            about: file.about.clone(),
            runs: Vec::new(),
        }
    }
}

impl RunOutcome {
    /// Creates the results of one run.
    pub fn new(run: &Run, report: HostReport) -> Self {
        Self {
            variant: run.variant.clone(),
            about: run.scenario.about.clone(),
            warmup_ns: run.scenario.warmup_ns,
            report,
        }
    }
}
