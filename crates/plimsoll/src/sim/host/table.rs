//! Tables on the terminal.

use comfy_table::CellAlignment;
use plimsoll_load::Latency;
use plimsoll_sim::host::{BandwidthFigures, GroupReport, HeadroomFigures, WorkloadReport};

use super::outcome::{Outcome, RunOutcome};
use crate::error::Result;
use crate::output::{borderless, print_line};

/// Placeholder for a figure that does not exist.
const NONE: &str = "-";
/// Columns of groups.
const GROUP_COLUMNS: [&str; 5] = ["GROUP", "CPUS", "WAIT", "SWITCHES", "THROTTLED"];
/// Columns of workloads. The first two are text.
const WORK_COLUMNS: [&str; 10] = [
    "GROUP", "WORK", "MEAN", "P50", "P90", "P99", "P99.9", "MAX", "FAILED", "DONE",
];
/// Columns of the machine.
const MACHINE_COLUMNS: [&str; 6] = ["MACHINE", "NORMAL", "BATCH", "IDLE", "HEADROOM", "SHORT"];

/// A time in microseconds, with about three significant digits.
pub fn time(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 9_999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// A ratio in percent, with one decimal.
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", 100.0 * ratio)
}

/// A share of failures, with more digits the smaller it is.
fn failures(failures: u64, of: u64) -> String {
    if failures == 0 {
        return "0".into();
    }
    format!("{:.3} %", 100.0 * failures as f64 / of.max(1) as f64)
}

/// Prints the results to standard output.
pub fn print(outcome: &Outcome) -> Result<()> {
    print_line(&text(outcome))
}

fn text(outcome: &Outcome) -> String {
    let mut parts = vec![
        outcome.about.clone(),
        table(&outcome.runs, &GROUP_COLUMNS, 1, groups),
        table(&outcome.runs, &WORK_COLUMNS, 2, works),
        table(&outcome.runs, &MACHINE_COLUMNS, 1, machine),
        measured(&outcome.runs),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// A table of all runs, with a column of variants if there are any. The first
/// `words` columns are text and left-aligned. Columns without any figure are
/// omitted.
fn table(
    runs: &[RunOutcome],
    columns: &[&str],
    words: usize,
    rows_of: impl Fn(&RunOutcome) -> Vec<Vec<String>>,
) -> String {
    let rows: Vec<(&RunOutcome, Vec<String>)> = runs
        .iter()
        .flat_map(|run| rows_of(run).into_iter().map(move |row| (run, row)))
        .collect();
    let has_variants = runs.iter().any(|run| run.variant.is_some());
    let has_figures = |column: &usize| rows.iter().any(|(_, row)| row[*column] != NONE);
    let kept: Vec<usize> = (0..columns.len()).filter(has_figures).collect();
    let variant = has_variants.then_some("VARIANT");
    let mut table = borderless(variant.into_iter().chain(kept.iter().map(|&i| columns[i])));
    for (run, row) in &rows {
        let variant = has_variants.then(|| run.variant.clone().unwrap_or_default());
        table.add_row(
            variant
                .into_iter()
                .chain(kept.iter().map(|&i| row[i].clone())),
        );
    }
    let words = words + usize::from(has_variants);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn groups(run: &RunOutcome) -> Vec<Vec<String>> {
    let row = |group: &GroupReport| {
        let name = std::iter::once(group.name.clone());
        name.chain(own(group)).collect()
    };
    run.report.groups.iter().map(row).collect()
}

fn works(run: &RunOutcome) -> Vec<Vec<String>> {
    let groups = run.report.groups.iter();
    let rows = groups.flat_map(|group| {
        let row = |workload| {
            let name = std::iter::once(group.name.clone());
            name.chain(work(workload)).collect()
        };
        group.workloads.iter().map(row)
    });
    rows.collect()
}

/// Usage and waits of a group.
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

/// The throttle count with the number of periods.
fn throttled(figures: &BandwidthFigures) -> String {
    let (throttled, periods) = (figures.nr_throttled, figures.nr_periods);
    match figures.nr_bursts {
        0 => format!("{throttled} of {periods}"),
        bursts => format!("{throttled} of {periods}, {bursts} bursts"),
    }
}

/// Index of the failures in a row of [`work`]: after the name and six
/// latencies.
const FAILED: usize = 7;

/// Row of a workload: name, six latencies, failures, and work done.
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
            (answered + failed > 0).then_some(latency),
            failures(*failed, *requests),
            format!("{answered} of {requests}"),
        ),
        WorkloadReport::Wake { wakeups, late } => {
            let late = (*wakeups > 0).then_some(late);
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

fn with_latency(
    name: &str,
    latency: Option<&Latency>,
    failed: String,
    done: String,
) -> Vec<String> {
    let Some(latency) = latency else {
        let mut cells = without_latency(name, done);
        cells[FAILED] = failed;
        return cells;
    };
    let mut cells = vec![name.to_owned(), time(latency.mean_us)];
    cells.extend(latency.quantiles().map(|(_, us)| time(us)));
    cells.extend([failed, done]);
    cells
}

fn without_latency(name: &str, done: String) -> Vec<String> {
    let mut cells = vec![name.to_owned()];
    cells.extend(std::iter::repeat_n(NONE.to_owned(), 7));
    cells.push(done);
    cells
}

fn machine(run: &RunOutcome) -> Vec<Vec<String>> {
    let (machine, headroom) = (&run.report.machine, &run.report.headroom);
    let of_headroom =
        |show: fn(&HeadroomFigures) -> String| headroom.as_ref().map_or_else(|| NONE.into(), show);
    vec![vec![
        format!("{} CPUs", machine.cpus),
        percent(machine.normal_ratio),
        percent(machine.batch_ratio),
        percent(machine.idle_ratio),
        of_headroom(|h| percent(h.headroom_ratio)),
        of_headroom(|h| format!("{:.3} s", h.shortfall_ns as f64 / 1e9)),
    ]]
}

/// Summary of the simulated time and events.
fn measured(runs: &[RunOutcome]) -> String {
    let events: u64 = runs.iter().map(|run| run.report.events).sum();
    let seconds: f64 = runs
        .iter()
        .map(|run| run.report.measured_ns as f64 / 1e9)
        .sum();
    let mut text = format!("{seconds:.3} s measured, {events} events.");
    if runs.iter().any(|run| !run.report.complete) {
        text += " Ended early: the figures cover the time until then.";
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
    fn missing_latency_is_not_zero() {
        let service = |answered, failures| {
            work(&WorkloadReport::Service {
                requests: 5,
                answered,
                failures,
                latency: Latency::default(),
            })
        };
        assert!(service(0, 0)[1..FAILED].iter().all(|cell| cell == NONE));
        assert_eq!(service(0, 0)[FAILED..], ["0", "0 of 5"]);
        for measured in [service(1, 0), service(0, 1)] {
            assert!(measured[1..FAILED].iter().all(|cell| cell == "0 us"));
            assert_eq!(measured.len(), service(0, 0).len());
        }
        let wakes = |wakeups| {
            let late = Latency::default();
            work(&WorkloadReport::Wake { wakeups, late })
        };
        assert_eq!((wakes(0)[1].as_str(), wakes(1)[1].as_str()), (NONE, "0 us"));
    }

    #[test]
    fn failures_are_a_share_of_the_requests() {
        assert_eq!(failures(0, 0), "0");
        assert_eq!(failures(2, 100_000), "0.002 %");
    }
}
