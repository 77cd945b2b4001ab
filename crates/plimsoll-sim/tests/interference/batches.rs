//! Batches, and runs that are stopped early.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;

use plimsoll_sim::interference::{BATCHES, BurstBound, Distribution, Experiment, Row, Watch};

use crate::fixture::{equal, run};

fn rows() -> Vec<Row> {
    let bursts = [BurstBound::Quotas(1.0), BurstBound::Unlimited];
    let mut rows = vec![
        equal(Distribution::Exponential, 5, 0.9, &bursts),
        equal(Distribution::Poisson, 20, 0.7, &bursts),
        equal(Distribution::Lognormal { sigma: 0.5 }, 3, 0.5, &bursts),
    ];
    rows[2].correlation = 0.5;
    rows
}

#[test]
fn figures_depend_on_the_seed_and_not_on_threads() {
    let one = run(rows(), 10_007, 9, 1);
    for threads in [2, 7] {
        assert_eq!(run(rows(), 10_007, 9, threads), one, "{threads} threads");
    }
    assert_ne!(run(rows(), 10_007, 10, 2), one);
}

#[test]
fn experiment_stopped_before_the_first_batch_is_empty_and_incomplete() {
    let experiment = Experiment {
        rows: rows(),
        periods: 1_000_000,
        seed: 1,
    };
    let done = AtomicU64::new(0);
    let watch = Watch {
        is_over: &|| true,
        done: &done,
    };
    let cells = experiment
        .run(NonZeroUsize::new(3).unwrap(), &watch)
        .unwrap();
    for cell in cells.iter().flatten() {
        assert_eq!((cell.periods, cell.complete), (0, false));
        assert_eq!((cell.wcet.half_width, cell.missed.half_width), (None, None));
    }
}

/// Batches start without savings and without pending work; with their warm-up,
/// they agree with one long run.
#[test]
fn batches_have_no_bias() {
    let row = equal(Distribution::Exponential, 5, 0.9, &[BurstBound::Unlimited]);
    let short = run(vec![row.clone()], 1_000 * BATCHES as u64, 5, 2);
    let long = run(vec![row], 100_000 * BATCHES as u64, 6, 2);
    let (short, long) = (short[0][0].missed, long[0][0].missed);
    let within = short.half_width.unwrap().hypot(long.half_width.unwrap());
    // Without a warm-up, the result would be 0.61 instead of 0.67.
    assert!(
        (short.mean - long.mean).abs() < within,
        "{short:?} {long:?}"
    );
    assert!(within < 0.03, "{within}");
}
