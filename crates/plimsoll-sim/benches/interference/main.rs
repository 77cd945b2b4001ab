//! Cost of a period of one group in the interference experiment: by number of
//! groups, by distribution, by number of bursts that share the draws, and
//! compared with a naive port of the source's pseudo-code.
//!
//! `cargo bench -p plimsoll-sim --bench interference`; throughput is in periods
//! of one group under one burst.

mod plain;

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU64;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_sim::interference::{
    Burst, Distribution, Experiment, Group, Machine, Row, Sampler, Watch, published,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use plain::Plain;

/// Periods of each cell in one measurement.
const PERIODS: u64 = 32_000;
const MEAN: f64 = 0.7;

fn row(distribution: Distribution, groups: usize, bursts: &[Burst]) -> Row {
    let group = Group {
        quota: 1.0 / groups as f64,
        mean: Some(MEAN),
    };
    Row {
        distribution,
        groups: vec![group; groups],
        correlation: 0.0,
        columns: bursts.iter().map(|burst| vec![*burst; groups]).collect(),
    }
}

fn experiment(criterion: &mut Criterion, group: &str, name: BenchmarkId, row: Row) {
    let counted = PERIODS * (row.groups.len() * row.columns.len()) as u64;
    let experiment = Experiment {
        rows: vec![row],
        periods: PERIODS,
        seed: 1,
    };
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(counted));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let done = AtomicU64::new(0);
            let watch = Watch {
                is_over: &|| false,
                done: &done,
            };
            experiment.run(NonZeroUsize::MIN, &watch)
        });
    });
    group.finish();
}

fn by_groups(criterion: &mut Criterion) {
    for groups in [1, 5, 20, 100, 1_000] {
        let row = row(Distribution::Exponential, groups, &published::BURSTS);
        let name = BenchmarkId::new("groups", groups);
        experiment(criterion, "interference, 3 bursts", name, row);
    }
}

fn by_distribution(criterion: &mut Criterion) {
    for distribution in [
        Distribution::Exponential,
        Distribution::Poisson,
        Distribution::Pareto { alpha: 4.0 },
        Distribution::Lognormal { sigma: 1.0 },
    ] {
        let name = distribution.name();
        let row = row(distribution, 20, &published::BURSTS);
        let name = BenchmarkId::new(name, 20);
        experiment(criterion, "interference, by demand", name, row);
    }
}

fn by_bursts(criterion: &mut Criterion) {
    for bursts in 1..=3 {
        let row = row(Distribution::Exponential, 20, &published::BURSTS[..bursts]);
        let name = BenchmarkId::new("bursts", bursts);
        experiment(criterion, "interference, 20 groups", name, row);
    }
}

/// One machine on precomputed draws, which leaves out the cost of drawing.
fn compared_with_plain(criterion: &mut Criterion) {
    for groups in [5, 20, 100] {
        let row = row(Distribution::Exponential, groups, &[Burst::Quotas(1.0)]);
        let machine = Machine::new(&row.groups, &row.columns[0]).expect("it can be run");
        let sampler = Sampler::new(&row.distribution, &row.groups, 0.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut draw = || {
            let mut demand_ns = vec![0.0; machine.lanes()];
            sampler.draw(&mut rng, &mut demand_ns);
            demand_ns
        };
        let draws: Vec<Vec<f64>> = (0..PERIODS).map(|_| draw()).collect();
        let mut group = criterion.benchmark_group(format!("{groups} groups, periods alone"));
        group.throughput(Throughput::Elements(PERIODS * groups as u64));
        group.bench_function("machine", |bencher| {
            bencher.iter(|| {
                let mut machine = machine.clone();
                let missed = draws.iter().filter(|draw| !machine.period(draw).is_met);
                missed.count()
            });
        });
        group.bench_function("plain", |bencher| {
            bencher.iter(|| {
                let mut plain = Plain::new(groups, machine.quota_ns()[0], 1.0);
                draws.iter().filter(|draw| !plain.period(draw)).count()
            });
        });
        group.finish();
    }
}

criterion_group!(
    benches,
    by_groups,
    by_distribution,
    by_bursts,
    compared_with_plain
);
criterion_main!(benches);
