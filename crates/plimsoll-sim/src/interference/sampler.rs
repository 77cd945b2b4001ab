//! Sampler of the groups' demand in a period.

use std::sync::Arc;

use libm::erfc;
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution as _, Exp1, StandardNormal, StandardUniform};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;

use super::distribution::{Distribution, POISSON_STEPS};
use super::machine::{GroupParams, quotas_ns};
use super::samples::Samples;

/// Poisson outcomes with a smaller probability are ignored.
const NEVER: f64 = 1e-18;
/// Maximum demand: 65,536 of the largest quota. Keeps sums exact.
const DEMAND_MAX_NS: f64 = (1_u64 << 50) as f64;
/// Adding and subtracting this rounds a smaller number to an integer.
const ROUND: f64 = (1_u64 << 52) as f64;

/// Random generator of one batch. Streams of different rows and batches do not
/// overlap, because they are far apart in the sequence: xoshiro256++ has a
/// `long_jump` of 2^192 steps, used for rows, and a `jump` of 2^128, used for
/// batches. D. Blackman, S. Vigna, "Scrambled linear pseudorandom number
/// generators", ACM Transactions on Mathematical Software 47(4), 2021.
pub(super) fn stream(seed: u64, row: usize, batch: usize) -> Xoshiro256PlusPlus {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..row).for_each(|_| rng.long_jump());
    (0..batch).for_each(|_| rng.jump());
    rng
}

/// Rounds to whole nanoseconds, bounded so that sums stay exact.
#[inline]
fn whole_ns(demand_ns: f64) -> f64 {
    (demand_ns.min(DEMAND_MAX_NS) + ROUND) - ROUND
}

/// Draws the demand of a row's groups.
#[derive(Debug, Clone)]
pub struct Sampler {
    kind: Kind,
    /// Factor on the draws, by group.
    scale_ns: Vec<f64>,
    /// Weights of the common and the own part of each group's normal variable,
    /// if demands are correlated.
    correlation: Option<(f64, f64)>,
}

#[derive(Debug, Clone)]
enum Kind {
    Exponential,
    /// One table per group.
    Poisson(Vec<Arc<Steps>>),
    Pareto {
        /// 1 / α.
        inverse_alpha: f64,
    },
    Lognormal {
        sigma: f64,
    },
    Empirical(Arc<Samples>),
}

#[derive(Debug)]
struct Steps {
    mean: f64,
    alias: WeightedAliasIndex<f64>,
    /// Probability of a value above the index.
    more: Vec<f64>,
}

impl Steps {
    fn new(mean: f64) -> Self {
        let mut weights = vec![(-mean).exp()];
        loop {
            let count = weights.len() as f64;
            let weight = weights[weights.len() - 1] * mean / count;
            if count > mean && weight < NEVER {
                break;
            }
            weights.push(weight);
        }
        let mut more: Vec<f64> = weights.clone();
        let mut sum = 0.0;
        for weight in more.iter_mut().rev() {
            sum += std::mem::replace(weight, sum);
        }
        let alias = WeightedAliasIndex::new(weights);
        // PROOF: finite, not negative, at least one above 0, fewer than 2^32.
        #[expect(clippy::unwrap_used, reason = "see above")]
        let alias = alias.unwrap();
        Self { mean, alias, more }
    }

    /// The value that is exceeded with probability `tail`.
    fn at(&self, tail: f64) -> f64 {
        self.more.partition_point(|more| *more > tail) as f64
    }
}

/// Tables of all groups; groups with the same mean share one.
fn steps(means: &[f64]) -> Vec<Arc<Steps>> {
    let mut tables: Vec<Arc<Steps>> = Vec::new();
    let mut table = |mean: f64| {
        if let Some(table) = tables.iter().find(|table| table.mean == mean) {
            return Arc::clone(table);
        }
        let table = Arc::new(Steps::new(mean));
        tables.push(Arc::clone(&table));
        table
    };
    means
        .iter()
        .map(|mean| table(mean * POISSON_STEPS))
        .collect()
}

/// Probability that a standard normal variable exceeds `z`.
fn normal_tail(z: f64) -> f64 {
    0.5 * erfc(z * std::f64::consts::FRAC_1_SQRT_2)
}

impl Sampler {
    /// Creates a sampler for groups whose demand follows `distribution`.
    /// `correlation`, 0 to 1: see
    /// [`Row::correlation`](super::Row::correlation).
    #[must_use]
    pub fn new(distribution: &Distribution, groups: &[GroupParams], correlation: f64) -> Self {
        let own_mean = distribution.mean().unwrap_or(0.0);
        let means = groups.iter().map(|group| group.mean.unwrap_or(own_mean));
        let means: Vec<f64> = means.collect();
        // Mean of a draw before scaling.
        let unit = match distribution {
            Distribution::Exponential => 1.0,
            Distribution::Poisson => POISSON_STEPS,
            Distribution::Pareto { alpha } => alpha / (alpha - 1.0),
            Distribution::Lognormal { sigma } => (sigma * sigma / 2.0).exp(),
            Distribution::Empirical(_) => own_mean,
        };
        let scale = |(quota_ns, mean): (f64, &f64)| match distribution {
            Distribution::Poisson => quota_ns / unit,
            _ => quota_ns * mean / unit,
        };
        let kind = match distribution {
            Distribution::Exponential => Kind::Exponential,
            Distribution::Poisson => Kind::Poisson(steps(&means)),
            Distribution::Pareto { alpha } => Kind::Pareto {
                inverse_alpha: alpha.recip(),
            },
            Distribution::Lognormal { sigma } => Kind::Lognormal { sigma: *sigma },
            Distribution::Empirical(samples) => Kind::Empirical(Arc::clone(samples)),
        };
        Self {
            kind,
            scale_ns: quotas_ns(groups)
                .into_iter()
                .zip(&means)
                .map(scale)
                .collect(),
            correlation: (correlation > 0.0)
                .then(|| (correlation.sqrt(), (1.0 - correlation).sqrt())),
        }
    }

    /// Draws the groups' demand in one period, in whole nanoseconds of their
    /// [`Machine`](super::Machine). Elements of `demand_ns` beyond the number
    /// of groups do not change.
    #[inline]
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus, demand_ns: &mut [f64]) {
        match self.correlation {
            None => self.draw_apart(rng, demand_ns),
            Some(parts) => self.draw_together(rng, demand_ns, parts),
        }
    }

    #[inline]
    fn draw_apart(&self, rng: &mut Xoshiro256PlusPlus, demand_ns: &mut [f64]) {
        let lanes = demand_ns.iter_mut().zip(&self.scale_ns);
        match &self.kind {
            Kind::Exponential => {
                for (demand_ns, scale_ns) in lanes {
                    let draw: f64 = Exp1.sample(rng);
                    *demand_ns = whole_ns(draw * scale_ns);
                }
            }
            Kind::Poisson(tables) => {
                for ((demand_ns, scale_ns), table) in lanes.zip(tables) {
                    *demand_ns = whole_ns(table.alias.sample(rng) as f64 * scale_ns);
                }
            }
            // The logarithm of a Pareto variable is exponential.
            Kind::Pareto { inverse_alpha } => {
                for (demand_ns, scale_ns) in lanes {
                    let draw: f64 = Exp1.sample(rng);
                    *demand_ns = whole_ns((draw * inverse_alpha).exp() * scale_ns);
                }
            }
            Kind::Lognormal { sigma } => {
                for (demand_ns, scale_ns) in lanes {
                    let draw: f64 = StandardNormal.sample(rng);
                    *demand_ns = whole_ns((draw * sigma).exp() * scale_ns);
                }
            }
            Kind::Empirical(samples) => {
                for (demand_ns, scale_ns) in lanes {
                    let draw: f64 = StandardUniform.sample(rng);
                    *demand_ns = whole_ns(samples.at(draw) * scale_ns);
                }
            }
        }
    }

    fn draw_together(
        &self,
        rng: &mut Xoshiro256PlusPlus,
        demand_ns: &mut [f64],
        (common, own): (f64, f64),
    ) {
        let shared: f64 = StandardNormal.sample(rng);
        for (group, (demand_ns, scale_ns)) in demand_ns.iter_mut().zip(&self.scale_ns).enumerate() {
            let apart: f64 = StandardNormal.sample(rng);
            let z = common * shared + own * apart;
            let draw = match &self.kind {
                Kind::Exponential => -normal_tail(z).ln(),
                Kind::Poisson(tables) => tables[group].at(normal_tail(z)),
                Kind::Pareto { inverse_alpha } => normal_tail(z).powf(-inverse_alpha),
                Kind::Lognormal { sigma } => (z * sigma).exp(),
                Kind::Empirical(samples) => samples.at(normal_tail(-z)),
            };
            *demand_ns = whole_ns(draw * scale_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn distributions() -> Vec<Distribution> {
        let samples = Samples::parse("s.csv", "cpu\n0.1\n0.2\n0.3\n1.4\n").unwrap();
        vec![
            Distribution::Exponential,
            Distribution::Poisson,
            Distribution::Pareto { alpha: 4.0 },
            Distribution::Lognormal { sigma: 0.8 },
            Distribution::Empirical(Arc::new(samples)),
        ]
    }

    fn groups(means: &[Option<f64>]) -> Vec<GroupParams> {
        let group = |mean: &Option<f64>| GroupParams {
            quota: 1.0 / means.len() as f64,
            mean: *mean,
        };
        means.iter().map(group).collect()
    }

    /// Draws in quotas, for each group.
    fn draws(
        distribution: &Distribution,
        groups: &[GroupParams],
        correlation: f64,
    ) -> Vec<Vec<f64>> {
        let sampler = Sampler::new(distribution, groups, correlation);
        let quotas = quotas_ns(groups);
        let mut rng = stream(5, 0, 0);
        let mut all = vec![Vec::with_capacity(DRAWS); groups.len()];
        let mut demand_ns = vec![0.0; groups.len()];
        for _ in 0..DRAWS {
            sampler.draw(&mut rng, &mut demand_ns);
            for ((all, demand_ns), quota_ns) in all.iter_mut().zip(&demand_ns).zip(&quotas) {
                assert_eq!(demand_ns.fract(), 0.0);
                all.push(demand_ns / quota_ns);
            }
        }
        all
    }

    fn mean(draws: &[f64]) -> f64 {
        draws.iter().sum::<f64>() / draws.len() as f64
    }

    fn tail(draws: &[f64], beyond: f64) -> f64 {
        draws.iter().filter(|draw| **draw > beyond).count() as f64 / draws.len() as f64
    }

    fn pearson(a: &[f64], b: &[f64]) -> f64 {
        let (mean_a, mean_b) = (mean(a), mean(b));
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            a.iter()
                .zip(b)
                .map(|(x, y)| f(x - mean_a, y - mean_b))
                .sum()
        };
        sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
    }

    #[test]
    fn every_distribution_has_the_requested_mean() {
        let groups = groups(&[Some(0.3), Some(0.9)]);
        for distribution in distributions() {
            for correlation in [0.0, 0.6] {
                let draws = draws(&distribution, &groups, correlation);
                for (draws, asked) in draws.iter().zip([0.3, 0.9]) {
                    let got = mean(draws);
                    assert!((got / asked - 1.0).abs() < 0.01, "{distribution:?}: {got}");
                }
            }
        }
    }

    #[test]
    fn correlation_does_not_change_a_groups_distribution() {
        let groups = groups(&[Some(0.7)]);
        for distribution in distributions() {
            let apart = draws(&distribution, &groups, 0.0);
            let together = draws(&distribution, &groups, 0.5);
            for beyond in [0.25, 0.65, 0.95, 1.55, 2.05] {
                let (a, b) = (tail(&apart[0], beyond), tail(&together[0], beyond));
                assert!((a - b).abs() < 0.005, "{distribution:?} {beyond}: {a} {b}");
            }
        }
    }

    #[test]
    fn the_correlation_is_that_of_the_normal_factors() {
        let groups = groups(&[Some(0.7), Some(0.7)]);
        // The logarithm of a lognormal variable is the normal one.
        let lognormal = Distribution::Lognormal { sigma: 1.0 };
        for correlation in [0.0, 0.25, 0.8, 1.0] {
            let draws = draws(&lognormal, &groups, correlation);
            let logs: Vec<Vec<f64>> = draws
                .iter()
                .map(|draws| draws.iter().map(|draw| draw.ln()).collect())
                .collect();
            let got = pearson(&logs[0], &logs[1]);
            assert!((got - correlation).abs() < 0.01, "{correlation}: {got}");
        }
    }

    #[test]
    fn measured_demand_without_a_mean_is_drawn_as_it_is() {
        let all = distributions();
        let draws = draws(&all[4], &groups(&[None]), 0.0);
        assert!((tail(&draws[0], 1.0) - 0.25).abs() < 0.005);
        assert!((mean(&draws[0]) - 0.5).abs() < 0.005);
    }

    #[test]
    fn each_row_and_batch_has_a_stream_of_its_own() {
        assert_ne!(stream(1, 0, 0), stream(1, 1, 0));
        assert_ne!(stream(1, 0, 0), stream(1, 0, 1));
    }
}
