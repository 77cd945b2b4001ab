//! Limiting cases and closed forms.

use plimsoll_sim::interference::{BurstBound, Distribution, Row};

use crate::fixture::{equal, run};

/// One group that has the whole machine and an unlimited burst: a queue with an
/// exponential batch of work in each period, served at one quota a period. No
/// other group leaves it CPU, so it misses deadlines while its backlog exceeds
/// a period: Lindley's recursion `W' = max(W + D − 1, 0)`, which is the waiting
/// time of D/M/1. There, `P(W > 0) = σ`, the root below 1 of `σ = e^{−(1 −
/// σ)/u}` (L. Kleinrock, Queueing Systems I, 6.4).
fn waits(u: f64) -> f64 {
    (0..1_000).fold(0.0, |sigma: f64, _| (-(1.0 - sigma) / u).exp())
}

#[test]
fn single_group_matches_a_d_m_1_queue() {
    for u in [0.5, 0.8] {
        let row = equal(Distribution::Exponential, 1, u, &[BurstBound::Unlimited]);
        let cell = run(vec![row], 400_000, 3, 2).remove(0).remove(0);
        let expected = waits(u);
        // One in 20 intervals does not contain the true value; twice the
        // interval nearly always does.
        let within = 2.0 * cell.missed.half_width.unwrap();
        let difference = (cell.missed.mean - expected).abs();
        assert!(difference < within, "{:?} {expected}", cell.missed);
        assert!(within < 0.03 * expected, "{within}");
    }
}

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
