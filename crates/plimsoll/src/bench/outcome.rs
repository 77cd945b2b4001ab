//! Results of a benchmark, as text and as JSON.
//!
//! # JSON
//! `plimsoll bench --json` prints one object: [`Outcome`] beside `schema`.
//! Within `plimsoll.bench/1`, fields are only ever added.

use std::path::Path;

use comfy_table::CellAlignment;
use plimsoll_sim::host::HostReport;
use plimsoll_sim::scenario::{Run, ScenarioFile};
use serde::Serialize;

use super::figures::{self, Figure, GroupFigures, Unit};
use super::real::RealOutcome;
use crate::error::Result;
use crate::output::{borderless, print_line};
use crate::sim::host::table::{percent, time};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "plimsoll.bench/1";
/// Placeholder for a figure that does not exist.
const NONE: &str = "-";

/// Results of a scenario file.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Version of Plimsoll.
    pub version: String,
    /// Name of the file, as given.
    pub file: String,
    /// Description from the file.
    pub about: String,
    /// Whether the scenario also ran on this machine.
    pub real: bool,
    /// The runs; fewer than in the file if the benchmark was interrupted.
    pub runs: Vec<RunOutcome>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RunOutcome {
    /// Name of the variant; `null` in a file without variants.
    pub variant: Option<String>,
    /// Whether the run reached its planned end, in the simulator and on the
    /// machine.
    pub complete: bool,
    /// Virtual time measured in the simulator.
    pub model_seconds: f64,
    /// Time measured on this machine; `null` if not measured.
    pub real_seconds: Option<f64>,
    /// Utilisation of the machine.
    pub machine: Figure,
    /// In the order of the file.
    pub groups: Vec<GroupFigures>,
    /// Warnings of `run`, one sentence each.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Creates results without runs.
    pub fn new(path: &Path, file: &ScenarioFile, real: bool) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            file: path.display().to_string(),
            about: file.about.clone(),
            real,
            runs: Vec::new(),
        }
    }
}

impl RunOutcome {
    /// Combines both results. `on_machine`: whether the scenario was also meant
    /// to run on this machine.
    pub fn new(run: &Run, model: &HostReport, real: Option<RealOutcome>, on_machine: bool) -> Self {
        let real = real.as_ref();
        let machine_complete = real.map_or(!on_machine, |real| real.complete);
        Self {
            variant: run.variant.clone(),
            complete: model.complete && machine_complete,
            model_seconds: model.measured_ns as f64 / 1e9,
            real_seconds: real.map(|real| real.measured.as_secs_f64()),
            machine: figures::machine(model, real),
            groups: figures::groups(model, real),
            notes: real.map_or_else(Vec::new, |real| real.notes.clone()),
        }
    }
}

/// Prints the results to standard output.
pub fn print(outcome: &Outcome) -> Result<()> {
    print_line(&text(outcome))
}

fn text(outcome: &Outcome) -> String {
    let mut parts = vec![outcome.about.clone()];
    for run in &outcome.runs {
        if let Some(variant) = &run.variant {
            parts.push(format!("Variant {variant}"));
        }
        parts.push(table(run));
        parts.extend(run.notes.iter().map(|note| format!("Note: {note}.")));
        if !run.complete {
            parts.push("Ended early: the figures cover the time until then.".into());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// A row for each figure.
fn table(run: &RunOutcome) -> String {
    let mut table = borderless(["GROUP", "OF", "FIGURE", "MODEL", "REAL", "DIFFERENCE"]);
    let groups = run.groups.iter();
    let rows = groups.flat_map(|group| group.figures.iter().map(|f| (group.name.as_str(), f)));
    for (group, figure) in std::iter::once(("", &run.machine)).chain(rows) {
        table.add_row([
            group.to_owned(),
            figure.of.clone(),
            figure.figure.to_owned(),
            value(figure.unit, figure.model),
            figure
                .real
                .map_or_else(|| NONE.into(), |real| value(figure.unit, real)),
            figure
                .difference
                .map_or_else(|| NONE.into(), |d| difference(figure.unit, d)),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Cpus => format!("{value:.3}"),
        Unit::Ratio => percent(value),
        Unit::Us => time(value),
        Unit::Seconds => format!("{value:.3} s"),
        Unit::Count => format!("{value:.0}"),
    }
}

/// A difference with its sign; for ratios in percentage points.
fn difference(unit: Unit, difference: f64) -> String {
    let sign = if difference < 0.0 { "-" } else { "+" };
    match unit {
        Unit::Ratio => format!("{:+.1} points", 100.0 * difference),
        _ => format!("{sign}{}", value(unit, difference.abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_their_sign_and_unit() {
        assert_eq!(difference(Unit::Ratio, -0.021), "-2.1 points");
        assert_eq!(difference(Unit::Us, 1_234.0), "+1.23 ms");
        assert_eq!(difference(Unit::Cpus, -0.5), "-0.500");
        assert_eq!(difference(Unit::Count, 3.0), "+3");
    }
}
