//! Distributions of the CPU time of a request.

use std::str::FromStr;
use std::time::Duration;

use rand_distr::{Distribution, Exp1};

use crate::limits::{DEMAND_MAX, DEMAND_MIN};
use crate::random::{Stream, generator};
use crate::units::{nanos, time_between};

/// Distribution of the CPU time of one request. Means are `DEMAND_MIN` to `DEMAND_MAX`;
/// single draws above `DEMAND_MAX` are cut to it.
///
/// Reads as on the command line: `const:500us`, `exp:1ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    Constant { value: Duration },
    Exponential { mean: Duration },
}

impl Demand {
    fn mean(&self) -> Duration {
        match *self {
            Self::Constant { value } => value,
            Self::Exponential { mean } => mean,
        }
    }

    /// Demands in ns, endless. The same seed gives the same demands.
    pub(crate) fn draws(self, seed: u64) -> impl Iterator<Item = u64> + use<> {
        let mean_ns = nanos(self.mean());
        let mut rng = generator(seed, Stream::Demands);
        std::iter::repeat_with(move || match self {
            Self::Constant { .. } => mean_ns,
            Self::Exponential { .. } => {
                let unit: f64 = Exp1.sample(&mut rng);
                ((unit * mean_ns as f64) as u64).min(nanos(DEMAND_MAX))
            }
        })
    }
}

impl FromStr for Demand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, time) = text.split_once(':').unwrap_or((text, ""));
        let allowed = time_between(DEMAND_MIN, DEMAND_MAX);
        match name {
            "const" => allowed(time).map(|value| Self::Constant { value }),
            "exp" => allowed(time).map(|mean| Self::Exponential { mean }),
            _ => Err("allowed are const:TIME and exp:MEAN".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(text: &str) -> Demand {
        text.parse().unwrap()
    }

    #[test]
    fn quantiles_match_the_distribution() {
        let mut draws: Vec<u64> = demand("exp:1ms").draws(1).take(100_000).collect();
        draws.sort_unstable();
        // The exponential's median is ln 2, its 99th percentile ln 100 times the mean.
        assert!((draws[50_000] as f64 / 693_147.0 - 1.0).abs() < 0.03);
        assert!((draws[99_000] as f64 / 4_605_170.0 - 1.0).abs() < 0.05);
    }

    #[test]
    fn draws_depend_on_the_seed_only_and_stay_below_the_limit() {
        let long = demand("exp:10s");
        let of = |seed| long.draws(seed).take(10_000).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(of(1).into_iter().max(), Some(nanos(DEMAND_MAX)));
    }
}
