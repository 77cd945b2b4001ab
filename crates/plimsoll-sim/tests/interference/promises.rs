//! Properties of all experiments.

use plimsoll_sim::interference::{BurstBound, CellReport, Distribution, GroupParams, Row};
use proptest::prelude::*;

use crate::fixture::run;

fn distribution() -> impl Strategy<Value = Distribution> {
    prop_oneof![
        Just(Distribution::Exponential),
        Just(Distribution::Poisson),
        (1.5..8.0).prop_map(|alpha| Distribution::Pareto { alpha }),
        (0.1..2.0).prop_map(|sigma| Distribution::Lognormal { sigma }),
    ]
}

/// Quotas that sum up to 1 at most, and means.
fn groups() -> impl Strategy<Value = Vec<GroupParams>> {
    prop::collection::vec((0.1..1.0, 0.05..0.95), 1..12).prop_map(|parts| {
        let sum: f64 = parts.iter().map(|(quota, _)| quota).sum();
        let group = |(quota, mean): (f64, f64)| GroupParams {
            quota: quota / sum,
            mean: Some(mean),
        };
        parts.into_iter().map(group).collect()
    })
}

fn row() -> impl Strategy<Value = Row> {
    (distribution(), groups(), prop_oneof![Just(0.0), 0.0..=1.0]).prop_map(
        |(distribution, groups, correlation)| Row {
            distribution,
            correlation,
            columns: [
                BurstBound::Quotas(0.0),
                BurstBound::Quotas(0.7),
                BurstBound::Quotas(3.0),
                BurstBound::Unlimited,
            ]
            .map(|burst| vec![burst; groups.len()])
            .to_vec(),
            groups,
        },
    )
}

fn check(cell: &CellReport) {
    // The first count is of periods that met their deadline. All others missed
    // it, …
    let met = cell.wcet_counts.first().copied().unwrap_or(0);
    let missed = (cell.periods - met) as f64 / cell.periods as f64;
    assert!((cell.missed.mean - missed).abs() < 1e-9, "{missed}");
    assert!(cell.wcet.mean >= 1.0 + missed - 1e-12);
    // … and in each of those the machine was busy to the end.
    let least = missed - 1e-9;
    assert!((least..=1.0 + 1e-12).contains(&cell.utilisation.mean));
    assert_eq!(
        cell.wcet_counts.iter().sum::<u64>() + cell.longer,
        cell.periods
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn figures_are_probabilities_and_means(row in row(), seed in any::<u64>()) {
        for cell in &run(vec![row], 1_000, seed, 1)[0] {
            check(cell);
        }
    }

    /// The tolerance is for single periods: a burst taken earlier is not
    /// available later.
    #[test]
    fn larger_burst_does_not_reduce_interference(row in row(), seed in any::<u64>()) {
        let cells = &run(vec![row], 2_000, seed, 1)[0];
        prop_assert_eq!(cells[0].missed.mean, 0.0);
        for pair in cells.windows(2) {
            prop_assert!(pair[0].missed.mean <= pair[1].missed.mean + 0.02, "{:?}", pair);
        }
    }
}
