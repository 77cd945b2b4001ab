//! Tables on the terminal.

use comfy_table::{CellAlignment, Table};

use super::outcome::{DemoOutcome, PhaseResult, milliseconds, percent, times};
use crate::error::Result;
use crate::output::{borderless, fitted, print_line};

/// Placeholder for a figure that was not measured.
pub const NONE: &str = "-";

/// Columns of the first table.
pub const PHASE_HEADER: [&str; 8] = [
    "SERVICE BESIDE",
    "P50",
    "P99",
    "× ALONE (LAB)",
    "P99.9",
    "FAILED",
    "MACHINE",
    "WORK",
];

/// Columns of the second table.
pub const BURST_HEADER: [&str; 8] = [
    "BURSTY SERVICE",
    "P50",
    "P99",
    "× NO QUOTA",
    "MAX",
    "FAILED",
    "THROTTLED",
    "BURSTS",
];

/// Failures as a share of all requests.
fn failures(phase: &PhaseResult) -> String {
    if phase.failures == 0 {
        return "0".into();
    }
    let share = 100.0 * phase.failures as f64 / phase.requests.max(1) as f64;
    format!("{share:.2} %")
}

/// The measured ratio, and in brackets the expected one.
fn ratio(phase: &PhaseResult) -> String {
    let measured = phase.p99_ratio.map_or_else(|| NONE.into(), times);
    match phase.expected_p99_ratio {
        Some(expected) => format!("{measured} ({})", times(expected)),
        None => measured,
    }
}

/// A row of figures that both tables have, and two of their own.
fn row(phase: &PhaseResult, tail_us: f64, [sixth, seventh]: [String; 2]) -> [String; 8] {
    [
        phase.label.clone(),
        milliseconds(phase.latency.p50_us),
        milliseconds(phase.latency.p99_us),
        ratio(phase),
        milliseconds(tail_us),
        failures(phase),
        sixth,
        seventh,
    ]
}

pub fn phase_row(phase: &PhaseResult) -> [String; 8] {
    let work = phase.burners.and_then(|burners| burners.work_ratio);
    row(
        phase,
        phase.latency.p999_us,
        [
            percent(phase.busy_ratio),
            work.map_or_else(|| NONE.into(), percent),
        ],
    )
}

/// A row of the second table. Its requests are too few for a p99.9; the
/// throttle count comes with the number of periods.
pub fn burst_row(phase: &PhaseResult) -> [String; 8] {
    let counts = phase.throttling.map(|stat| {
        [
            format!("{} of {}", stat.nr_throttled, stat.nr_periods),
            stat.nr_bursts.to_string(),
        ]
    });
    row(
        phase,
        phase.latency.max_us,
        counts.unwrap_or([NONE.into(), NONE.into()]),
    )
}

pub fn phase_legend(outcome: &DemoOutcome) -> String {
    let expected = outcome.expected_at.as_ref();
    let expected = expected.map(|at| format!(" Lab: what `plimsoll doctor` expects, {at}."));
    format!(
        "The service: {}. Latency above the CPU time is waiting time; machine: utilisation of its \
         {} CPUs; work: work done by the burners, relative to the equal group.{}",
        outcome.service,
        outcome.host.cpus,
        expected.unwrap_or_default()
    )
}

pub fn burst_legend(outcome: &DemoOutcome) -> String {
    format!(
        "The service: {}. That is 1.5 times a period's quota at once and half of it on average; \
         throttled: periods in which it ran out of quota; bursts: periods in which it used saved \
         quota.",
        outcome.bursty_service
    )
}

fn table(header: [&str; 8], rows: Vec<[String; 8]>) -> Table {
    let mut table = borderless(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Both tables with all notes.
fn text(outcome: &DemoOutcome) -> String {
    let mut parts = Vec::new();
    if !outcome.phases.is_empty() {
        let rows = outcome.phases.iter().map(phase_row).collect();
        parts.push(table(PHASE_HEADER, rows).to_string());
        parts.push(wrapped(&phase_legend(outcome)));
    }
    if !outcome.bursts.is_empty() {
        let rows = outcome.bursts.iter().map(burst_row).collect();
        parts.push(table(BURST_HEADER, rows).to_string());
        parts.push(wrapped(&burst_legend(outcome)));
    }
    let notes = outcome
        .notes
        .iter()
        .map(|note| wrapped(&format!("Note: {note}.")));
    parts.push(notes.collect::<Vec<_>>().join("\n"));
    parts.push(format!(
        "Took {:.0} s. Plots and the exact commands: {}",
        outcome.took_seconds, outcome.report
    ));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Wraps text to the width of the tables, as the header of a table would be.
fn wrapped(text: &str) -> String {
    fitted(borderless([text]), Some(100))
}

pub fn print(outcome: &DemoOutcome) -> Result<()> {
    print_line(&text(outcome))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn every_phase_has_a_row_and_every_table_a_legend() {
        let text = text(&fixture::outcome());
        for part in [
            "alone",
            "burners, equal group",
            "burners --weight 1",
            "burners --class batch",
            "burners --class batch --headroom 30%",
            "no quota",
            "--quota 16ms/100ms --burst 16ms",
            "26 of 54",
            "100 %",
            "demo.html",
            "× (0.",
            "what `plimsoll doctor` expects",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let longest = text
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max();
        assert!(longest <= Some(104), "{longest:?}\n{text}");
    }

    #[test]
    fn missing_figures_are_shown_as_missing() {
        let mut outcome = fixture::outcome();
        outcome.phases.truncate(1);
        outcome.bursts.clear();
        let text = text(&outcome);
        assert!(!text.contains("BURSTS") && !text.contains("equal group\n"));
        assert_eq!(phase_row(&outcome.phases[0])[7], NONE);
    }
}
