//! Promises: figures of the program `measure`, with the bounds that SPEC sets.
//!
//! A single figure of a loaded kernel is a sample: another byte in the guest gives another one. So
//! each is measured in several guests that differ in the length of a path only, and is stored with
//! its smallest, median and largest value.

mod host;
mod page;

pub use host::Measurement;
pub use page::{printed, promises_table, scheduler_table};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::lines_file::Stored;

/// Prefix of a line with a figure in the output of a test.
const FIGURE: &str = "FIGURE ";

/// A figure as a test prints it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub what: String,
    pub value: f64,
    pub unit: String,
    /// Bounds; none if it is not bounded on that side.
    pub least: Option<f64>,
    pub most: Option<f64>,
    /// Place of the promise, such as "SPEC 2".
    pub source: String,
}

/// Figures of one guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Guest {
    /// The kernel's own version.
    pub kernel: String,
    /// Figures, each with the name of its test, in the order in which they were printed.
    pub figures: Vec<(String, Figure)>,
    /// Tests that could not measure.
    pub failed: Vec<String>,
    /// Whether the last test has ended.
    pub is_complete: bool,
}

impl Guest {
    /// Reads the output of a guest. A line that is no figure and no mark is a test's own.
    pub fn parse(output: &str) -> Self {
        let mut guest = Self::default();
        let mut test = String::new();
        for line in output.lines() {
            if let Some(version) = line.strip_prefix("== kernel: ") {
                version.trim().clone_into(&mut guest.kernel);
            } else if let Some(name) = line.strip_prefix("== begins: ") {
                name.clone_into(&mut test);
            } else if let Some((_, name)) = line
                .strip_prefix("== FAILED")
                .and_then(|rest| rest.split_once(": "))
            {
                guest.failed.push(name.to_owned());
            } else if line == "== the end" {
                guest.is_complete = true;
            } else if let Some(figure) = line.strip_prefix(FIGURE) {
                // A line that another program has cut through says nothing.
                let Ok(figure) = serde_json::from_str(figure) else {
                    continue;
                };
                guest.figures.push((test.clone(), figure));
            }
        }
        guest
    }
}

/// Whether a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// In each guest.
    Met,
    /// By the median, but not in each guest.
    WorstMissed,
    Missed,
    /// Nothing is promised.
    Unbounded,
}

impl Verdict {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::WorstMissed => "met, but the worst misses",
            Self::Missed => "missed",
            Self::Unbounded => "-",
        }
    }
}

/// One figure of all guests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromiseRow {
    /// KERNEL/CPUS/TEST.
    pub cell: String,
    pub figure: String,
    pub unit: String,
    pub smallest: f64,
    pub median: f64,
    pub largest: f64,
    /// The value that is farthest beyond its bounds; the largest if there are none.
    pub worst: f64,
    /// Number of guests in which it was measured.
    pub guests: usize,
    pub least: Option<f64>,
    pub most: Option<f64>,
    pub verdict: Verdict,
    pub source: String,
    pub kernel: String,
    /// Hash of the programs.
    pub programs: String,
}

impl Stored for PromiseRow {
    const SCHEMA: &'static str = "plimsoll.promises/1";
    const KEY: &'static str = "rows";

    fn cell(&self) -> &str {
        &self.cell
    }
}

impl Figure {
    /// Distance of the figure beyond its bounds; negative inside them. A lower bound of 0 bounds
    /// nothing: figures are not negative, and 0 is the best.
    fn beyond(&self) -> f64 {
        let least = self.least.filter(|least| *least != 0.0);
        let below = least.map_or(f64::NEG_INFINITY, |least| least - self.value);
        let above = self
            .most
            .map_or(f64::NEG_INFINITY, |most| self.value - most);
        below.max(above)
    }
}

/// Each guest's figure is compared with its own bounds, which may depend on another of its figures
/// (twice the time alone).
fn verdict(figures: &[&Figure]) -> Verdict {
    let mut beyond: Vec<f64> = figures.iter().map(|figure| figure.beyond()).collect();
    beyond.sort_by(f64::total_cmp);
    let worst = beyond[beyond.len() - 1];
    match median(&beyond) {
        f64::NEG_INFINITY => Verdict::Unbounded,
        median if median > 0.0 => Verdict::Missed,
        _ if worst > 0.0 => Verdict::WorstMissed,
        _ => Verdict::Met,
    }
}

/// The value in the middle of sorted ones.
fn median(sorted: &[f64]) -> f64 {
    let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    f64::midpoint(low, high)
}

/// One row for each figure of the guests of a place, in the order in which they were printed.
/// The bound of a row is the median of the guests' bounds.
fn rows(place: &str, programs: &str, guests: &[Guest]) -> Vec<PromiseRow> {
    let mut order: Vec<(&str, &str)> = Vec::new();
    let mut found: BTreeMap<(&str, &str), Vec<&Figure>> = BTreeMap::new();
    for (test, figure) in guests.iter().flat_map(|guest| &guest.figures) {
        let key = (test.as_str(), figure.what.as_str());
        let all = found.entry(key).or_default();
        if all.is_empty() {
            order.push(key);
        }
        all.push(figure);
    }
    let row = |(test, what): &(&str, &str)| {
        let figures = &found[&(*test, *what)];
        let sorted = |of: fn(&Figure) -> Option<f64>| {
            let mut values: Vec<f64> = figures.iter().filter_map(|figure| of(figure)).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let bound = |of: fn(&Figure) -> Option<f64>| {
            let values = sorted(of);
            (!values.is_empty()).then(|| median(&values))
        };
        let values = sorted(|figure| Some(figure.value));
        let (least, most) = (bound(|figure| figure.least), bound(|figure| figure.most));
        let by_margin = |a: &&&Figure, b: &&&Figure| a.beyond().total_cmp(&b.beyond());
        let by_value = |a: &&&Figure, b: &&&Figure| a.value.total_cmp(&b.value);
        let worst = figures
            .iter()
            .max_by(|a, b| by_margin(a, b).then(by_value(a, b)));
        PromiseRow {
            cell: format!("{place}/{test}"),
            figure: (*what).to_owned(),
            unit: figures[0].unit.clone(),
            smallest: values[0],
            median: median(&values),
            largest: values[values.len() - 1],
            worst: worst.map_or(f64::NAN, |figure| figure.value),
            guests: values.len(),
            least,
            most,
            verdict: verdict(figures),
            source: figures[0].source.clone(),
            kernel: guests[0].kernel.clone(),
            programs: programs.to_owned(),
        }
    };
    order.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "== kernel: 6.18.1\n\
        == begins: stock::caps::table\n\
        FIGURE {\"what\":\"rate\",\"value\":9.5,\"unit\":\"%\",\
        \"least\":8.5,\"most\":null,\"source\":\"SPEC 4\"}\n\
        something else\n\
        FIGURE {broken\n\
        == ok: stock::caps::table\n\
        == begins: stock::caps::storm\n\
        == FAILED (status 101): stock::caps::storm\n";

    fn guest(value: f64) -> Guest {
        let mut guest = Guest::parse(OUTPUT);
        guest.figures[0].1.value = value;
        guest
    }

    fn row(values: &[f64]) -> PromiseRow {
        let guests: Vec<Guest> = values.iter().copied().map(guest).collect();
        rows("6.18/2", "abc", &guests).remove(0)
    }

    #[test]
    fn figures_are_read_with_their_tests() {
        let guest = Guest::parse(OUTPUT);
        assert_eq!(guest.kernel, "6.18.1");
        assert_eq!(guest.failed, ["stock::caps::storm"]);
        assert!(!guest.is_complete);
        let [(test, figure)] = guest.figures.as_slice() else {
            panic!("{guest:?}");
        };
        assert_eq!(test, "stock::caps::table");
        assert_eq!(
            (figure.value, figure.least, figure.most),
            (9.5, Some(8.5), None)
        );
        assert!(Guest::parse(&format!("{OUTPUT}== the end\n")).is_complete);
    }

    #[test]
    fn row_has_smallest_median_and_largest() {
        let row = row(&[9.0, 12.0, 8.0, 8.7, 11.0]);
        assert_eq!(row.cell, "6.18/2/stock::caps::table");
        assert_eq!((row.smallest, row.median, row.largest), (8.0, 9.0, 12.0));
        assert_eq!(row.guests, 5);
        assert_eq!(median(&[1.0, 2.0, 4.0, 5.0]), 3.0);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn promise_is_missed_by_the_median_and_the_worst_is_told_apart() {
        assert_eq!(row(&[8.5, 9.0, 10.0]).verdict, Verdict::Met);
        assert_eq!(row(&[8.4, 9.0, 10.0]).verdict, Verdict::WorstMissed);
        assert_eq!(row(&[8.4, 8.4, 10.0]).verdict, Verdict::Missed);
        let mut unbounded = guest(1.0);
        unbounded.figures[0].1.least = None;
        let rows = rows("6.18/2", "abc", &[unbounded]);
        assert_eq!(rows[0].verdict, Verdict::Unbounded);
    }

    #[test]
    fn worst_value_is_the_farthest_beyond_the_bounds() {
        let worst = |most: Option<f64>| {
            let mut guests = [8.0, 9.0, 10.0].map(guest);
            for guest in &mut guests {
                guest.figures[0].1.most = most;
            }
            rows("6.18/2", "abc", &guests)[0].worst
        };
        assert_eq!(worst(None), 8.0);
        assert_eq!(worst(Some(9.2)), 10.0, "0.8 beyond, and not 0.5");
    }

    #[test]
    fn figure_is_compared_with_the_bound_of_its_own_guest() {
        let mut guests = [10.0, 11.0, 12.0].map(guest);
        for (guest, least) in guests.iter_mut().zip([9.0, 11.5, 11.9]) {
            guest.figures[0].1.least = Some(least);
        }
        let row = rows("6.18/2", "abc", &guests).remove(0);
        assert_eq!((row.verdict, row.worst), (Verdict::WorstMissed, 11.0));
    }
}
