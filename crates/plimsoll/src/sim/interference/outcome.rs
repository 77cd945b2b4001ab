//! Results of an experiment, and their JSON form.
//!
//! # JSON
//! `plimsoll sim interference --json` prints one object: [`InterferenceOutcome`] beside
//! `schema`. Within `plimsoll.sim-interference/1`, fields are only ever added.
//! Ratios are 1 for the whole.

use plimsoll_sim::interference::published::{PublishedCell, PublishedRow};
use plimsoll_sim::interference::{
    BurstBound, CellReport, Distribution, Experiment, GroupParams, Row,
};
use serde::Serialize;

use super::rows::show_burst;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "plimsoll.sim-interference/1";

#[derive(Debug, Clone, Serialize)]
pub struct InterferenceOutcome {
    /// Version of Plimsoll.
    pub version: &'static str,
    pub seed: u64,
    /// Number of periods requested for each cell.
    pub periods: u64,
    /// Whether all of them were run.
    pub complete: bool,
    /// The cells, by row and burst, without cells of which nothing was run.
    pub cells: Vec<InterferenceCell>,
}

/// A row of groups under one burst.
#[derive(Debug, Clone, Serialize)]
pub struct InterferenceCell {
    /// `exponential`, `poisson`, `pareto`, `lognormal` or `empirical`.
    pub distribution: &'static str,
    /// α of Pareto, σ of lognormal.
    pub shape: Option<f64>,
    pub samples: Option<String>,
    pub groups: usize,
    /// Mean demand as a ratio of the quotas.
    pub mean: f64,
    /// Burst as on the command line; `null` if groups differ.
    pub burst: Option<String>,
    /// Correlation, 0 to 1.
    pub correlation: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    #[serde(flatten)]
    pub report: CellReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// A group of a row in which groups differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Member {
    /// Share of the machine.
    pub quota: f64,
    /// Mean demand as a ratio of the quota.
    pub mean: f64,
    /// Burst as on the command line.
    pub burst: String,
}

/// A cell of the source's table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Published {
    /// E(WCET).
    pub wcet: f64,
    /// P(WCET > 1), as a ratio.
    pub missed: f64,
    /// Whether chance and rounding explain the difference.
    pub agrees: bool,
}

impl Published {
    fn new(printed: &PublishedCell, report: &CellReport) -> Self {
        Self {
            wcet: printed.wcet,
            missed: printed.missed,
            agrees: printed.agrees(report),
        }
    }
}

/// The groups of a row, if they differ.
fn members(row: &Row, bursts: &[BurstBound]) -> Vec<Member> {
    let own_mean = row.distribution.mean().unwrap_or(0.0);
    let member = |(group, burst): (&GroupParams, &BurstBound)| Member {
        quota: group.quota,
        mean: group.mean.unwrap_or(own_mean),
        burst: show_burst(*burst),
    };
    let members: Vec<Member> = row.groups.iter().zip(bursts).map(member).collect();
    if members.windows(2).all(|two| two[0] == two[1]) {
        return Vec::new();
    }
    members
}

/// Mean demand over all quotas.
fn mean(row: &Row) -> f64 {
    let own_mean = row.distribution.mean().unwrap_or(0.0);
    let quotas: f64 = row.groups.iter().map(|group| group.quota).sum();
    let wanted = row
        .groups
        .iter()
        .map(|g| g.quota * g.mean.unwrap_or(own_mean));
    // Rounded, to remove the error of binary fractions.
    (wanted.sum::<f64>() / quotas * 1e9).round() / 1e9
}

fn cell(
    row: &Row,
    bursts: &[BurstBound],
    report: CellReport,
    printed: Option<&PublishedCell>,
) -> InterferenceCell {
    let (shape, samples) = match &row.distribution {
        Distribution::Pareto { alpha } => (Some(*alpha), None),
        Distribution::Lognormal { sigma } => (Some(*sigma), None),
        Distribution::Empirical(samples) => (None, Some(samples.file().to_owned())),
        _ => (None, None),
    };
    let is_same = bursts.windows(2).all(|two| two[0] == two[1]);
    InterferenceCell {
        distribution: row.distribution.name(),
        shape,
        samples,
        groups: row.groups.len(),
        mean: mean(row),
        burst: bursts
            .first()
            .filter(|_| is_same)
            .map(|burst| show_burst(*burst)),
        correlation: row.correlation,
        members: members(row, bursts),
        published: printed.map(|printed| Published::new(printed, &report)),
        report,
    }
}

impl InterferenceOutcome {
    /// Converts the reports of an experiment. `published`: its rows in the
    /// source, or empty.
    pub fn new(
        experiment: &Experiment,
        reports: Vec<Vec<CellReport>>,
        published: &[PublishedRow],
    ) -> Self {
        let complete = reports.iter().flatten().all(|report| report.complete);
        let mut cells = Vec::new();
        for (index, (row, reports)) in experiment.rows.iter().zip(reports).enumerate() {
            for (column, (bursts, report)) in row.columns.iter().zip(reports).enumerate() {
                let printed = published.get(index).and_then(|row| row.cells.get(column));
                if report.periods > 0 {
                    cells.push(cell(row, bursts, report, printed));
                }
            }
        }
        Self {
            version: env!("CARGO_PKG_VERSION"),
            seed: experiment.seed,
            periods: experiment.periods,
            complete,
            cells,
        }
    }
}
