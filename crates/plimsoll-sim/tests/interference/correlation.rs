//! Correlation of the demands of groups.

use plimsoll_sim::interference::{BurstBound, Distribution, Row};

use crate::fixture::{equal, run};

#[test]
fn correlated_groups_interfere_more() {
    let apart = equal(
        Distribution::Exponential,
        10,
        0.6,
        &[BurstBound::Quotas(2.0)],
    );
    let rows = [0.0, 0.4, 0.8].map(|correlation| Row {
        correlation,
        ..apart.clone()
    });
    let cells = run(rows.to_vec(), 50_000, 3, 2);
    let missed: Vec<f64> = cells.iter().map(|row| row[0].missed.mean).collect();
    assert!(
        missed[0] < 0.5 * missed[1] && missed[1] < missed[2],
        "{missed:?}"
    );
}
