//! Estimates with confidence intervals.

use serde::Serialize;

use super::tally::Tally;

/// Number of batches of each row. Enough that Student's t is close to the
/// normal distribution, few enough that each batch is long.
pub const BATCHES: usize = 32;

/// Student's t of 1 to 31 degrees of freedom at 97.5 %: half of a 95 %
/// interval. NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
const STUDENT: [f64; BATCHES - 1] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042, 2.040,
];

/// A mean with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    pub mean: f64,
    /// The interval is the mean plus and minus this. `None` with fewer than two
    /// whole batches or more than [`BATCHES`]. 0 if all batches are equal: then
    /// the event that was counted may never have occurred.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// Method of batch means: batches are far longer than the system's memory,
    /// so their means are independent, and Student's t of their spread bounds
    /// the error of the overall mean.
    #[must_use]
    pub fn of_batches(mean: f64, batches: &[f64]) -> Self {
        Self {
            mean,
            half_width: half_width(batches),
        }
    }
}

fn half_width(batches: &[f64]) -> Option<f64> {
    let student = STUDENT.get(batches.len().checked_sub(2)?)?;
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let squares: f64 = batches.iter().map(|batch| (batch - mean).powi(2)).sum();
    let of_mean = (squares / (count - 1.0) / count).sqrt();
    Some(student * of_mean)
}

/// Figures of one cell: a row of groups under one setting of burst.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellReport {
    pub periods: u64,
    /// Whether all periods asked for were run.
    pub complete: bool,
    /// E(WCET), in periods.
    pub wcet: Estimate,
    /// P(WCET > 1), 0 to 1: share of periods that miss their deadline.
    pub missed: Estimate,
    /// CPU time used, as a share of the machine.
    pub utilisation: Estimate,
    /// Number of periods by WCET: 1, 2, …, up to the longest that occurred or
    /// [`LENGTHS`](super::LENGTHS).
    pub wcet_counts: Vec<u64>,
    /// Number of periods with a longer WCET than that.
    pub longer: u64,
    pub wcet_max: u64,
}

/// Result of one batch.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    /// Whether the batch ran to its end.
    pub(super) complete: bool,
    /// One tally for each column.
    pub(super) tallies: Vec<Tally>,
}

impl CellReport {
    /// Report of one column over the batches that exist, of `of` that were
    /// asked for.
    pub(super) fn of_column(column: usize, batches: &[Batch], of: usize) -> Self {
        let mut all = Tally::default();
        let mut whole = Vec::with_capacity(batches.len());
        for batch in batches {
            let tally = &batch.tallies[column];
            all.add(tally);
            if batch.complete {
                whole.push(tally);
            }
        }
        let estimate = |figure: fn(&Tally) -> f64| {
            let means: Vec<f64> = whole.iter().map(|tally| figure(tally)).collect();
            Estimate::of_batches(figure(&all), &means)
        };
        let seen = all.by_length.iter().rposition(|count| *count > 0);
        Self {
            periods: all.periods,
            complete: whole.len() == of,
            wcet: estimate(Tally::wcet_mean),
            missed: estimate(Tally::missed),
            utilisation: estimate(Tally::utilisation),
            wcet_counts: all.by_length[..seen.map_or(0, |last| last + 1)].to_vec(),
            longer: all.longer,
            wcet_max: all.wcet_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Mean 3, s² = 2.5, t(4) = 2.776.
        let estimate = Estimate::of_batches(3.0, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let half_width = estimate.half_width.unwrap();
        assert!(
            (half_width - 2.776 * 0.5_f64.sqrt()).abs() < 1e-5,
            "{half_width}"
        );
    }

    #[test]
    fn one_batch_has_no_interval() {
        let estimate = Estimate::of_batches(3.0, &[3.0]);
        assert_eq!(estimate.half_width, None);
    }
}
