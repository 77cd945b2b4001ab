//! What a scenario came to on the model, and its JSON form.
//!
//! # JSON
//! `plimsoll sim host --json` prints one object: [`Outcome`] beside `schema`.
//! Within `plimsoll.sim-host/1` fields are only ever added. Times end in `_ns`
//! or `_us`; ratios are 1 for the whole.

use std::path::Path;

use plimsoll_sim::host::HostReport;
use plimsoll_sim::scenario::{Run, ScenarioFile};
use serde::Serialize;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "plimsoll.sim-host/1";

/// All that was run of a file.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The version of Plimsoll.
    pub version: String,
    /// The file, as it was named.
    pub file: String,
    /// The file's line about itself.
    pub about: String,
    /// The runs; fewer than the file has if somebody asked for an end.
    pub runs: Vec<RunOutcome>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunOutcome {
    /// The variant's name; `null` in a file that has none.
    pub variant: Option<String>,
    /// The variant's line about itself.
    pub about: String,
    /// Time before the measurement.
    pub warmup_ns: u64,
    /// What the model reports.
    #[serde(flatten)]
    pub report: HostReport,
}

impl Outcome {
    /// Nothing run yet.
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
    /// Of a run and its report.
    pub fn new(run: &Run, report: HostReport) -> Self {
        Self {
            variant: run.variant.clone(),
            about: run.scenario.about.clone(),
            warmup_ns: run.scenario.warmup_ns,
            report,
        }
    }
}
