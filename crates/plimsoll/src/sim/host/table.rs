//! The tables on the terminal.

use comfy_table::{CellAlignment, Table};
use plimsoll_load::Latency;
use plimsoll_sim::host::{BandwidthFigures, GroupReport, WorkloadReport};

use super::outcome::{Outcome, RunOutcome};
use crate::error::Result;
use crate::output::{borderless, print_line};

/// Where there is no such figure.
const NONE: &str = "-";
/// The columns behind the variant.
const COLUMNS: [&str; 14] = [
    "GROUP",
    "CPUS",
    "WAIT",
    "SWITCHES",
    "THROTTLED",
    "WORK",
    "MEAN",
    "P50",
    "P90",
    "P99",
    "P99.9",
    "MAX",
    "FAILED",
    "DONE",
];
/// The columns behind the variant, of the second table.
const MACHINE_COLUMNS: [&str; 6] = ["MACHINE", "NORMAL", "BATCH", "IDLE", "HEADROOM", "SHORT"];

/// A time in microseconds with three digits or so.
pub fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 9_999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// A ratio as a percentage with one digit behind the point.
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// A share of failures, which is small where it matters.
fn failures(failures: u64, of: u64) -> String {
    if failures == 0 {
        return "0".into();
    }
    format!("{:.3} %", 100.0 * failures as f64 / of.max(1) as f64)
}

/// Prints everything to standard output.
pub fn print(outcome: &Outcome) -> Result<()> {
    print_line(&text(outcome))
}

fn text(outcome: &Outcome) -> String {
    let has_variants = outcome.runs.iter().any(|run| run.variant.is_some());
    let mut parts = vec![
        outcome.about.clone(),
        groups(&outcome.runs, has_variants),
        machines(&outcome.runs, has_variants),
        measured(&outcome.runs),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// A table whose first columns are words.
fn table(columns: &[&str], rows: Vec<Vec<String>>, has_variants: bool) -> String {
    let variant = has_variants.then_some("VARIANT");
    let mut table = borderless(variant.into_iter().chain(columns.iter().copied()));
    for row in rows {
        table.add_row(row);
    }
    align(&mut table, usize::from(has_variants) + 1);
    table.to_string()
}

/// Words stand on the left, figures on the right.
fn align(table: &mut Table, words: usize) {
    let work = COLUMNS.iter().position(|name| *name == "WORK");
    let work = work.map(|index| index + words - 1);
    for (index, column) in table.column_iter_mut().enumerate() {
        if index >= words && Some(index) != work {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// A row for each workload; a group's own figures stand in the first.
fn groups(runs: &[RunOutcome], has_variants: bool) -> String {
    let mut rows = Vec::new();
    for run in runs {
        for group in &run.report.groups {
            for (index, workload) in group.workloads.iter().enumerate() {
                let mut row = Vec::with_capacity(COLUMNS.len() + 1);
                if has_variants {
                    row.push(run.variant.clone().unwrap_or_default());
                }
                row.push(group.name.clone());
                row.extend(match index {
                    0 => own(group),
                    _ => [const { String::new() }; 4],
                });
                row.extend(work(workload));
                rows.push(row);
            }
        }
    }
    table(&COLUMNS, rows, has_variants)
}

/// What a group used and had to wait for.
fn own(group: &GroupReport) -> [String; 4] {
    [
        format!("{:.3}", group.cpus_used),
        format!("{:.3} s", group.wait_ns as f64 / 1e9),
        group.nr_switches.to_string(),
        group
            .bandwidth
            .as_ref()
            .map_or_else(|| NONE.into(), throttled),
    ]
}

/// A throttle count never without its periods.
fn throttled(figures: &BandwidthFigures) -> String {
    let (throttled, periods) = (figures.nr_throttled, figures.nr_periods);
    match figures.nr_bursts {
        0 => format!("{throttled} of {periods}"),
        bursts => format!("{throttled} of {periods}, {bursts} bursts"),
    }
}

/// What a workload came to: its name, six latencies, failures, and what it did.
fn work(report: &WorkloadReport) -> Vec<String> {
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    match report {
        WorkloadReport::Service {
            requests,
            answered,
            failures: failed,
            latency,
        } => with_latency(
            "service",
            latency,
            failures(*failed, *requests),
            format!("{answered} of {requests}"),
        ),
        WorkloadReport::Wake { wakeups, late } => {
            with_latency("wake", late, NONE.into(), format!("{wakeups} wake-ups"))
        }
        WorkloadReport::Burn { work_ns, .. } => without_latency("burn", seconds(*work_ns)),
        WorkloadReport::Storm {
            processes,
            elapsed_ns,
            ..
        } => without_latency("storm", format!("{processes} in {}", seconds(*elapsed_ns))),
        WorkloadReport::Need {
            elapsed_ns,
            rate,
            complete,
            ..
        } => {
            let rest = if *complete { "" } else { ", not done" };
            let text = format!("{} in {}{rest}", percent(*rate), seconds(*elapsed_ns));
            without_latency("need", text)
        }
        WorkloadReport::Steady {
            percent_achieved, ..
        } => without_latency("steady", format!("{percent_achieved:.2} %")),
    }
}

fn with_latency(name: &str, latency: &Latency, failed: String, done: String) -> Vec<String> {
    let times = [
        latency.mean_us,
        latency.p50_us,
        latency.p90_us,
        latency.p99_us,
        latency.p999_us,
        latency.max_us,
    ];
    let mut cells = vec![name.to_owned()];
    cells.extend(times.map(time));
    cells.extend([failed, done]);
    cells
}

fn without_latency(name: &str, done: String) -> Vec<String> {
    let mut cells = vec![name.to_owned()];
    cells.extend(std::iter::repeat_n(NONE.to_owned(), 7));
    cells.push(done);
    cells
}

/// How the machine's time was used.
fn machines(runs: &[RunOutcome], has_variants: bool) -> String {
    let row = |run: &RunOutcome| {
        let (machine, headroom) = (&run.report.machine, &run.report.headroom);
        let mut row = Vec::with_capacity(MACHINE_COLUMNS.len() + 1);
        if has_variants {
            row.push(run.variant.clone().unwrap_or_default());
        }
        row.push(format!("{} CPUs", machine.cpus));
        row.extend(
            [
                machine.normal_ratio,
                machine.batch_ratio,
                machine.idle_ratio,
            ]
            .map(percent),
        );
        row.push(headroom.map_or_else(|| NONE.into(), |h| percent(h.headroom_ratio)));
        let short = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
        row.push(headroom.map_or_else(|| NONE.into(), |h| short(h.shortfall_ns)));
        row
    };
    table(
        &MACHINE_COLUMNS,
        runs.iter().map(row).collect(),
        has_variants,
    )
}

/// How much was simulated.
fn measured(runs: &[RunOutcome]) -> String {
    let events: u64 = runs.iter().map(|run| run.report.events).sum();
    let seconds: f64 = runs
        .iter()
        .map(|run| run.report.measured_ns as f64 / 1e9)
        .sum();
    let mut text = format!("{seconds:.3} s measured, {events} events.");
    if runs.iter().any(|run| !run.report.complete) {
        text += " Ended early: these are the figures so far.";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown = [0.0, 19.4, 999.4, 999.6, 20_054.0, 115_000.0, 48_610_000.0].map(time);
        let expected = [
            "0 us", "19 us", "999 us", "1.00 ms", "20.1 ms", "115 ms", "48.6 s",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn failures_are_a_share_of_the_requests() {
        assert_eq!(failures(0, 0), "0");
        assert_eq!(failures(2, 100_000), "0.002 %");
    }
}
