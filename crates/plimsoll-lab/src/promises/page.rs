//! Tables of promises.

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
        (None | Some(0.0), None) => "-".to_owned(),
        (None | Some(0.0), Some(most)) => format!("at most {}", number(most)),
        (Some(least), None) => format!("at least {}", number(least)),
        (Some(least), Some(most)) if least == most => number(least),
        (Some(least), Some(most)) => format!("{} to {}", number(least), number(most)),
    }
}

fn verdict(row: &PromiseRow) -> String {
    if row.verdict == Verdict::Missed {
        format!("**{}**", row.verdict.words())
    } else {
        row.verdict.words().to_owned()
    }
}

/// The section of docs/results.md: how many bounds are met, and the rows whose bound is missed but
/// for those of the scheduler, which docs/scheduler.md has.
#[must_use]
pub fn promises_table(promises: &[PromiseRow]) -> String {
    let count = |verdict| promises.iter().filter(|row| row.verdict == verdict).count();
    let [met, worst, missed] = [Verdict::Met, Verdict::WorstMissed, Verdict::Missed].map(count);
    let guests = promises.iter().map(|row| row.guests);
    let guests = match (guests.clone().min(), guests.max().unwrap_or(0)) {
        (Some(least), most) if least < most => format!("{least} to {most}"),
        (_, most) => most.to_string(),
    };
    format!(
        "[promises.json](promises.json) has each figure with its bound, measured in {guests} guests \
         that differ in nothing but the length of a path. {met} bounds are met, {worst} by the \
         median only, {missed} are missed: those of stock kernels below, those of the scheduler in \
         [scheduler.md](scheduler.md#measured-promises).\n\n{}",
        missed_of(promises, true)
    )
}

/// The table of docs/scheduler.md.
#[must_use]
pub fn scheduler_table(promises: &[PromiseRow]) -> String {
    missed_of(promises, false)
}

/// The rows of stock kernels or of the scheduler whose bound is missed, and those that stand beside
/// them without one.
fn missed_of(promises: &[PromiseRow], stock: bool) -> String {
    let mut table = Table::new(&[
        "figure", "unit", "bound", "median", "worst", "", "cell", "source",
    ]);
    for row in promises {
        let (_, test) = row.cell.rsplit_once('/').unwrap_or(("", &row.cell));
        if test.starts_with("stock::") != stock || row.verdict == Verdict::Met {
            continue;
        }
        table.row(vec![
            row.figure.clone(),
            row.unit.clone(),
            bound(row),
            number(row.median),
            number(row.worst),
            verdict(row),
            format!("`{}`", row.cell),
            row.source.clone(),
        ]);
    }
    table.to_markdown()
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

    fn row(cell: &str) -> PromiseRow {
        PromiseRow {
            cell: cell.to_owned(),
            figure: "rate".to_owned(),
            unit: "%".to_owned(),
            smallest: 8.0,
            median: 9.0,
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
        let cells = ["7/2/scheduler::caps::table", "6.18/2/stock::caps::table"];
        let rows = cells.map(row);
        let stock = promises_table(&rows);
        assert!(stock.contains("2 are missed"), "{stock}");
        for (text, [shown, other]) in [
            (scheduler_table(&rows), cells),
            (stock, [cells[1], cells[0]]),
        ] {
            assert!(
                text.contains("at most 9.50") && text.contains("**missed**"),
                "{text}"
            );
            assert!(text.contains(shown) && !text.contains(other), "{text}");
        }
    }

    #[test]
    fn numbers_have_three_digits_or_so() {
        let all = [0.0, 0.25, 9.04, 9.0, 98.26, 1234.5].map(number);
        assert_eq!(all, ["0", "0.250", "9.04", "9", "98.3", "1234"]);
    }
}
