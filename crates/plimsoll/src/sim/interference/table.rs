//! Tables on the terminal.

use comfy_table::{CellAlignment, Table};
use plimsoll_sim::interference::{CellReport, Estimate};

use super::outcome::{InterferenceCell, InterferenceOutcome, Member, Published};
use crate::output::borderless;

const COLUMNS: [&str; 8] = [
    "DEMAND",
    "GROUPS",
    "MEAN",
    "BURST",
    "E(WCET)",
    "P(WCET > 1)",
    "P99",
    "MAX",
];
const PUBLISHED_COLUMNS: [&str; 10] = [
    "DEMAND",
    "M",
    "MEAN",
    "BURST",
    "E(WCET)",
    "SOURCE",
    "DIFF",
    "P(>1) IN %",
    "SOURCE",
    "DIFF",
];
/// Number of text columns.
const WORDS: usize = 1;
/// Quantile of the column P99.
const P99: f64 = 0.99;

/// A mean and its interval with `digits` decimals.
fn estimate(estimate: Estimate, scale: f64, digits: usize) -> String {
    let mean = estimate.mean * scale;
    match estimate.half_width {
        Some(half_width) => format!("{mean:.digits$} ± {:.digits$}", half_width * scale),
        None => format!("{mean:.digits$}"),
    }
}

fn wcet(report: &CellReport) -> String {
    estimate(report.wcet, 1.0, 4)
}

/// P(WCET > 1) in percent.
fn missed(report: &CellReport) -> String {
    if report.wcet_max <= 1 {
        return "none seen".into();
    }
    format!("{} %", estimate(report.missed, 100.0, 3))
}

/// The smallest WCET that 99 % of the periods do not exceed.
fn p99(report: &CellReport) -> String {
    let mut seen = 0;
    for (count, length) in report.wcet_counts.iter().zip(1..) {
        seen += count;
        if seen as f64 >= P99 * report.periods as f64 {
            let length: u64 = length;
            return length.to_string();
        }
    }
    format!("> {}", report.wcet_counts.len())
}

fn percent(ratio: f64) -> String {
    // Rounded to the digits that matter.
    format!("{}%", (ratio * 1e5).round() / 1e3)
}

fn demand(cell: &InterferenceCell) -> String {
    match (cell.shape, &cell.samples) {
        (Some(shape), _) => format!("{}:{shape}", cell.distribution),
        (None, Some(file)) => file.clone(),
        (None, None) => cell.distribution.to_owned(),
    }
}

fn asked(cell: &InterferenceCell) -> [String; 4] {
    [
        demand(cell),
        cell.groups.to_string(),
        percent(cell.mean),
        cell.burst.clone().unwrap_or_else(|| "mixed".into()),
    ]
}

fn row(cell: &InterferenceCell) -> Vec<String> {
    let report = &cell.report;
    let mut row = asked(cell).to_vec();
    row.extend([wcet(report), missed(report), p99(report)]);
    row.push(report.wcet_max.to_string());
    row
}

/// Marks differences that chance does not explain with a star.
fn published_row(cell: &InterferenceCell, source: &Published) -> Vec<String> {
    let report = &cell.report;
    let star = if source.agrees { "" } else { " *" };
    let mut row = asked(cell).to_vec();
    row.extend([
        wcet(report),
        format!("{:.4}", source.wcet),
        format!("{:+.4}", report.wcet.mean - source.wcet),
        estimate(report.missed, 100.0, 2),
        format!("{:.2}", 100.0 * source.missed),
        format!("{:+.2}{star}", 100.0 * (report.missed.mean - source.missed)),
    ]);
    row
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(WORDS) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn cells(outcome: &InterferenceOutcome) -> String {
    let is_published = outcome.cells.iter().any(|cell| cell.published.is_some());
    let columns: &[&str] = match is_published {
        true => &PUBLISHED_COLUMNS,
        false => &COLUMNS,
    };
    let mut table = borderless(columns.iter().copied());
    for cell in &outcome.cells {
        table.add_row(match &cell.published {
            Some(source) => published_row(cell, source),
            None => row(cell),
        });
    }
    align(&mut table);
    // The star follows its figure.
    let last = table.column_mut(PUBLISHED_COLUMNS.len() - 1);
    if let Some(last) = last.filter(|_| is_published) {
        last.set_cell_alignment(CellAlignment::Left);
    }
    table.to_string()
}

/// The groups of a cell, if they differ; equal ones share a line.
fn members(members: &[Member]) -> String {
    let mut table = borderless(["GROUPS", "QUOTA", "MEAN", "BURST"]);
    for alike in members.chunk_by(|a, b| a == b) {
        table.add_row([
            alike.len().to_string(),
            percent(alike[0].quota),
            percent(alike[0].mean),
            alike[0].burst.clone(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Explanation of the columns, and number of periods.
fn notes(outcome: &InterferenceOutcome) -> String {
    let mut text = format!(
        "WCET: periods until the deadline is met; ±: 95 % confidence.\n\
         {} periods each, seed {}.",
        outcome.periods, outcome.seed
    );
    let differs = |cell: &InterferenceCell| cell.published.is_some_and(|source| !source.agrees);
    let differing = outcome.cells.iter().filter(|cell| differs(cell)).count();
    if differing > 0 {
        text +=
            &format!("\n* {differing} cells differ from the source by more than chance explains.");
    }
    if !outcome.complete {
        let periods = || outcome.cells.iter().map(|cell| cell.report.periods);
        let (least, most) = (periods().min().unwrap_or(0), periods().max().unwrap_or(0));
        text += &format!("\nEnded early: the figures are of {least} to {most} periods.");
    }
    text
}

/// The whole text, without a final newline.
pub fn text(outcome: &InterferenceOutcome) -> String {
    let mut parts = vec![cells(outcome), notes(outcome)];
    let differing = outcome.cells.iter().find(|cell| !cell.members.is_empty());
    if let Some(cell) = differing {
        parts.insert(0, members(&cell.members));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_no_more_digits_than_they_need() {
        assert_eq!(
            [0.3, 0.125, 1.0 / 3.0].map(percent),
            ["30%", "12.5%", "33.333%"]
        );
    }

    #[test]
    fn p99_is_exceeded_by_one_period_in_a_hundred() {
        let none = Estimate::of_batches(1.0, &[]);
        let report = |wcet_counts: Vec<u64>, periods| CellReport {
            periods,
            complete: true,
            wcet: none,
            missed: none,
            utilisation: none,
            wcet_counts,
            longer: 0,
            wcet_max: 3,
        };
        assert_eq!(p99(&report(vec![990, 10], 1_000)), "1");
        assert_eq!(p99(&report(vec![989, 1, 10], 1_000)), "2");
        assert_eq!(p99(&report(vec![900, 10], 1_000)), "> 2");
    }
}
