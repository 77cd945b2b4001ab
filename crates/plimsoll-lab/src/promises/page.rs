//! Tables of promises.

use std::fmt::Write as _;

use super::{PromiseRow, Verdict};
use crate::report::Table;

/// Formats a number with up to three decimals: the smaller the number, the more.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 || value == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_owned(),
        _ => text,
    }
}

fn bound(row: &PromiseRow) -> String {
    match (row.least, row.most) {
        (None, None) => "-".to_owned(),
        (None, Some(most)) => format!("at most {}", number(most)),
        (Some(least), None) => format!("at least {}", number(least)),
        (Some(least), Some(most)) if least == most => number(least),
        (Some(least), Some(most)) => format!("{} to {}", number(least), number(most)),
    }
}

/// The test of a row, without its machine.
fn test(row: &PromiseRow) -> &str {
    row.cell
        .rsplit_once('/')
        .map_or(&row.cell, |(_, test)| test)
}

fn verdict(row: &PromiseRow) -> String {
    if row.verdict == Verdict::Missed {
        format!("**{}**", row.verdict.words())
    } else {
        row.verdict.words().to_owned()
    }
}

fn table<'r>(rows: impl Iterator<Item = &'r PromiseRow>) -> String {
    let mut table = Table::new(&["what", "unit", "bound", "median", "worst", "", "source"]);
    for row in rows {
        table.row(vec![
            row.figure.clone(),
            row.unit.clone(),
            bound(row),
            number(row.median),
            number(row.worst),
            verdict(row),
            row.source.clone(),
        ]);
    }
    table.to_markdown()
}

/// The section of docs/results.md: a table for each machine.
#[must_use]
pub fn promises_table(promises: &[PromiseRow]) -> String {
    let count = |verdict| promises.iter().filter(|row| row.verdict == verdict).count();
    let [met, worst, missed] = [Verdict::Met, Verdict::WorstMissed, Verdict::Missed].map(count);
    let guests = promises.iter().map(|row| row.guests);
    let guests = match (guests.clone().min(), guests.max().unwrap_or(0)) {
        (Some(least), most) if least < most => format!("{least} to {most}"),
        (_, most) => most.to_string(),
    };
    let mut text = format!(
        "Each figure was measured in {guests} guests that differ in nothing but the length of a \
         path. {met} bounds are met, {worst} by the median only, {missed} are missed.\n",
    );
    let mut places: Vec<(&str, &str)> = promises.iter().map(place).collect();
    places.sort_unstable();
    places.dedup();
    for (name, kernel) in places {
        let cpus = name.rsplit('/').next().unwrap_or(name);
        let rows = promises.iter().filter(|row| place(row) == (name, kernel));
        let _ = write!(text, "\nLinux {kernel}, CPUs: {cpus}\n\n{}", table(rows));
    }
    text
}

/// KERNEL/CPUS of a row, and the kernel's version.
fn place(row: &PromiseRow) -> (&str, &str) {
    let name = row.cell.rsplit_once('/').map_or("", |(place, _)| place);
    (name, &row.kernel)
}

/// The table of docs/scheduler.md: the scheduler's rows whose bound is missed, and those that stand
/// beside them without one.
#[must_use]
pub fn scheduler_table(promises: &[PromiseRow]) -> String {
    let is_shown =
        |row: &&PromiseRow| !test(row).starts_with("stock::") && row.verdict != Verdict::Met;
    table(promises.iter().filter(is_shown))
}

/// Rows for a terminal.
#[must_use]
pub fn printed(rows: &[PromiseRow]) -> String {
    let mut table = Table::new(&[
        "cell", "figure", "unit", "smallest", "median", "largest", "bound", "", "source",
    ]);
    for row in rows {
        table.row(vec![
            row.cell.clone(),
            row.figure.clone(),
            row.unit.clone(),
            number(row.smallest),
            number(row.median),
            number(row.largest),
            bound(row),
            row.verdict.words().to_owned(),
            row.source.clone(),
        ]);
    }
    table.to_markdown()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(median: f64) -> PromiseRow {
        PromiseRow {
            cell: "7/2/scheduler::caps::table".to_owned(),
            figure: "rate".to_owned(),
            unit: "%".to_owned(),
            smallest: 8.0,
            median,
            largest: 10.0,
            worst: 10.0,
            guests: 5,
            least: None,
            most: Some(9.5),
            verdict: Verdict::Missed,
            source: "SPEC 4".to_owned(),
            kernel: "7.2".to_owned(),
            programs: "abc".to_owned(),
        }
    }

    #[test]
    fn tables_say_what_is_missed() {
        let rows = [row(9.0)];
        let text = promises_table(&rows);
        assert!(text.contains("**missed**"), "{text}");
        assert!(text.contains("Linux 7.2, CPUs: 2"), "{text}");
        assert!(scheduler_table(&rows).contains("at most 9.50"));
    }

    #[test]
    fn numbers_have_three_digits_or_so() {
        let all = [0.0, 0.25, 9.04, 9.0, 98.26, 1234.5].map(number);
        assert_eq!(all, ["0", "0.250", "9.04", "9", "98.3", "1234"]);
    }
}
