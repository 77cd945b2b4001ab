//! The source's table of results, and the experiment to reproduce it.
//!
//! "Re: [PATCH v4 1/4] sched/fair: Introduce primitives for CFS bandwidth
//! burst", H. Chang, linux-kernel, 12 May 2021: E(WCET) and P(WCET > 1) of 16
//! settings under three bursts each.

use super::distribution::{Distribution, PARETO_ALPHA_DEFAULT};
use super::estimate::{CellReport, Estimate};
use super::experiment::Row;
use super::machine::{BurstBound, GroupParams};

/// Bursts of the source: its columns.
pub const BURSTS: [BurstBound; 3] = [
    BurstBound::Quotas(1.0),
    BurstBound::Quotas(2.0),
    BurstBound::Unlimited,
];
/// "Simulation is done for over 1M periods".
pub const PERIODS: u64 = 1_000_000;

/// A cell as printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedCell {
    /// E(WCET), to four decimals.
    pub wcet: f64,
    /// P(WCET > 1), 0 to 1; printed as a percentage with two decimals.
    pub missed: f64,
}

/// Rounding error of the printed E(WCET) and P(WCET > 1): half of the last
/// digit.
const ROUNDED: (f64, f64) = (0.000_05, 0.000_05);
/// Factor on our confidence interval. The source's figures are estimates over
/// as many periods, so the difference has √2 times the spread of one; 1 in 250
/// differences exceeds this many intervals.
const TIMES: f64 = 2.0;

impl PublishedCell {
    /// Whether chance and rounding explain the difference between the source's
    /// figures and ours.
    #[must_use]
    pub fn agrees(&self, ours: &CellReport) -> bool {
        let within = |ours: Estimate, printed: f64, rounded: f64| {
            let by_chance = TIMES * ours.half_width.unwrap_or(f64::INFINITY);
            (ours.mean - printed).abs() <= by_chance + rounded
        };
        within(ours.wcet, self.wcet, ROUNDED.0) && within(ours.missed, self.missed, ROUNDED.1)
    }
}

/// A row as printed.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedRow {
    /// Exponential, Poisson or Pareto.
    pub distribution: Distribution,
    /// Groups of equal quota.
    pub groups: usize,
    /// Mean demand as a share of the quota.
    pub mean: f64,
    /// One cell for each of [`BURSTS`].
    pub cells: [PublishedCell; 3],
}

impl PublishedRow {
    #[must_use]
    pub fn row(&self) -> Row {
        let group = GroupParams {
            quota: 1.0 / self.groups as f64,
            mean: Some(self.mean),
        };
        Row {
            distribution: self.distribution.clone(),
            groups: vec![group; self.groups],
            correlation: 0.0,
            columns: BURSTS.map(|burst| vec![burst; self.groups]).to_vec(),
        }
    }
}

/// Mean in percent; then for each burst E(WCET), and P(WCET > 1) in percent.
type Printed = (u32, [(f64, f64); 3]);

const EXPONENTIAL_5: [Printed; 4] = [
    (30, [(1.0001, 0.01), (1.0002, 0.02), (1.0002, 0.02)]),
    (50, [(1.0176, 1.66), (1.0301, 2.76), (1.0352, 3.15)]),
    (70, [(1.1503, 11.52), (1.2691, 17.51), (1.4057, 21.86)]),
    (90, [(1.3042, 21.17), (1.6701, 34.19), (3.7937, 60.02)]),
];
const EXPONENTIAL_20: [Printed; 3] = [
    (50, [(1.0, 0.0), (1.0001, 0.01), (1.0002, 0.02)]),
    (70, [(1.0060, 0.59), (1.0217, 2.05), (1.0476, 4.18)]),
    (90, [(1.1989, 14.07), (1.4467, 24.46), (2.8603, 46.26)]),
];
const POISSON_5: [Printed; 2] = [
    (70, [(1.0071, 0.69), (1.0071, 0.69), (1.0071, 0.70)]),
    (90, [(1.4313, 25.22), (1.5124, 27.29), (1.5237, 27.52)]),
];
const POISSON_20: [Printed; 1] = [(90, [(1.0708, 6.06), (1.0879, 7.20), (1.0903, 7.35)])];
const PARETO_5: [Printed; 4] = [
    (30, [(1.0, 0.0), (1.0, 0.0), (1.0001, 0.01)]),
    (50, [(1.0001, 0.01), (1.0008, 0.08), (1.0019, 0.16)]),
    (70, [(1.0117, 1.11), (1.0234, 2.11), (1.0308, 2.38)]),
    (90, [(1.3994, 21.97), (1.6059, 26.49), (1.8296, 28.78)]),
];
const PARETO_20: [Printed; 2] = [
    (70, [(1.0, 0.0), (1.0001, 0.01), (1.0013, 0.12)]),
    (90, [(1.0447, 3.96), (1.0941, 7.49), (1.1622, 10.59)]),
];

/// All rows, in the source's order.
#[must_use]
pub fn rows() -> Vec<PublishedRow> {
    let pareto = Distribution::Pareto {
        alpha: PARETO_ALPHA_DEFAULT,
    };
    let tables: [(&Distribution, usize, &[Printed]); 6] = [
        (&Distribution::Exponential, 5, &EXPONENTIAL_5),
        (&Distribution::Exponential, 20, &EXPONENTIAL_20),
        (&Distribution::Poisson, 5, &POISSON_5),
        (&Distribution::Poisson, 20, &POISSON_20),
        (&pareto, 5, &PARETO_5),
        (&pareto, 20, &PARETO_20),
    ];
    let rows = tables
        .into_iter()
        .flat_map(|(distribution, groups, printed)| {
            let row = move |(percent, cells): &Printed| PublishedRow {
                distribution: distribution.clone(),
                groups,
                mean: f64::from(*percent) / 100.0,
                cells: cells.map(|(wcet, percent)| PublishedCell {
                    wcet,
                    // The nearest binary value to the printed one.
                    missed: (percent * 100.0).round() / 1e4,
                }),
            };
            printed.iter().map(row)
        });
    rows.collect()
}
