//! Builders of experiments with one row.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;

use plimsoll_sim::interference::{
    BurstBound, CellReport, Distribution, Experiment, GroupParams, Row, Sampler, Watch,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

/// `groups` of equal quota, under each of `bursts`.
pub fn equal(distribution: Distribution, groups: usize, mean: f64, bursts: &[BurstBound]) -> Row {
    let group = GroupParams {
        quota: 1.0 / groups as f64,
        mean: Some(mean),
    };
    Row {
        distribution,
        groups: vec![group; groups],
        correlation: 0.0,
        columns: bursts.iter().map(|burst| vec![*burst; groups]).collect(),
    }
}

pub fn run(rows: Vec<Row>, periods: u64, seed: u64, threads: usize) -> Vec<Vec<CellReport>> {
    let experiment = Experiment {
        rows,
        periods,
        seed,
    };
    let done = AtomicU64::new(0);
    let watch = Watch {
        is_over: &|| false,
        done: &done,
    };
    let threads = NonZeroUsize::new(threads).expect("at least one");
    experiment.run(threads, &watch).expect("it can be run")
}

/// Draws of a row's groups, period by period.
pub struct Draws {
    sampler: Sampler,
    rng: Xoshiro256PlusPlus,
    demand_ns: Vec<f64>,
}

impl Draws {
    pub fn new(row: &Row, lanes: usize, seed: u64) -> Self {
        Self {
            sampler: Sampler::new(&row.distribution, &row.groups, row.correlation),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            demand_ns: vec![0.0; lanes],
        }
    }

    pub fn next(&mut self) -> &[f64] {
        self.sampler.draw(&mut self.rng, &mut self.demand_ns);
        &self.demand_ns
    }
}
