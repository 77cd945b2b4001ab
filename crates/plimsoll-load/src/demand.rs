//! Distributions of the CPU time of a request.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand_distr::{Distribution, Exp1, LogNormal, Pareto, StandardUniform};
use rand_pcg::Pcg64;

use crate::error::LoadError;
use crate::limits::{DEMAND_MAX, DEMAND_MIN};
use crate::random::{Stream, generator};
use crate::units::{check_duration, check_number, nanos, show};

/// Forms that [`Demand::from_str`] parses.
const FORMS: &str = "const:TIME, exp:MEAN, uniform:LEAST,MOST, lognormal:MEAN,SIGMA, \
                     pareto:MEAN,ALPHA or bimodal:SHORT,LONG,SHARE_OF_LONG";
/// Range of SIGMA of a lognormal demand: at 4, one draw in a thousand is 8,000
/// times the median.
const SIGMA_RANGE: (f64, f64) = (0.0, 4.0);
/// Range of ALPHA of a Pareto demand: at 1 the mean does not exist.
const ALPHA_RANGE: (f64, f64) = (1.01, 1_000.0);

/// Distribution of the CPU time of one request. Means are `DEMAND_MIN` to `DEMAND_MAX`;
/// single draws above `DEMAND_MAX` are cut to it.
///
/// Reads and prints as on the command line: `const:500us`, `exp:1ms`, `uniform:1ms,3ms`,
/// `lognormal:1ms,0.5`, `pareto:1ms,2.5`, `bimodal:300us,10ms,0.01`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    Constant {
        value: Duration,
    },
    Exponential {
        mean: Duration,
    },
    Uniform {
        least: Duration,
        /// Not below `least`.
        most: Duration,
    },
    LogNormal {
        /// Mean (of the demand, not of its logarithm).
        mean: Duration,
        /// Standard deviation of the demand's natural logarithm, 0 to 4.
        sigma: f64,
    },
    Pareto {
        mean: Duration,
        /// Tail exponent, above 1; the smaller, the heavier the tail.
        alpha: f64,
    },
    /// Short requests mixed with a few long ones.
    Bimodal {
        short: Duration,
        long: Duration,
        /// Share of long requests, 0 to 1.
        long_share: f64,
    },
}

impl Demand {
    #[must_use]
    pub fn mean(&self) -> Duration {
        match *self {
            Self::Constant { value } => value,
            Self::Exponential { mean }
            | Self::LogNormal { mean, .. }
            | Self::Pareto { mean, .. } => mean,
            Self::Uniform { least, most } => (least + most) / 2,
            Self::Bimodal {
                short,
                long,
                long_share,
            } => short.mul_f64(1.0 - long_share) + long.mul_f64(long_share),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a demand out of range, zero or NaN.
    pub fn validate(&self) -> Result<(), LoadError> {
        let range = (DEMAND_MIN, DEMAND_MAX);
        match *self {
            Self::Uniform { least, most } => {
                check_duration("service", least, range)?;
                check_duration("service", most, (least, DEMAND_MAX))
            }
            Self::LogNormal { mean, sigma } => {
                check_number("service (SIGMA)", sigma, SIGMA_RANGE, "")?;
                check_duration("service", mean, range)
            }
            Self::Pareto { mean, alpha } => {
                check_number("service (ALPHA)", alpha, ALPHA_RANGE, "")?;
                check_duration("service", mean, range)
            }
            Self::Bimodal {
                short,
                long,
                long_share,
            } => {
                check_number("service (SHARE_OF_LONG)", long_share, (0.0, 1.0), "")?;
                check_duration("service", short, range)?;
                check_duration("service", long, range)
            }
            Self::Constant { .. } | Self::Exponential { .. } => {
                check_duration("service", self.mean(), range)
            }
        }
    }

    /// Demands in ns, endless. The same seed gives the same demands.
    ///
    /// # Errors
    /// As [`Demand::validate`].
    pub fn draws(&self, seed: u64) -> Result<Draws, LoadError> {
        self.validate()?;
        let refused = |e: &dyn fmt::Display| LoadError::invalid("service", self, e);
        let shape = match *self {
            Self::Constant { value } => Shape::Constant(nanos(value)),
            Self::Exponential { mean } => Shape::Exponential(nanos(mean) as f64),
            Self::Uniform { least, most } => {
                Shape::Uniform(nanos(least) as f64, nanos(most - least) as f64)
            }
            Self::LogNormal { mean, sigma } => {
                let mu = (nanos(mean) as f64).ln() - sigma * sigma / 2.0;
                Shape::LogNormal(LogNormal::new(mu, sigma).map_err(|e| refused(&e))?)
            }
            Self::Pareto { mean, alpha } => {
                let scale = nanos(mean) as f64 * (alpha - 1.0) / alpha;
                Shape::Pareto(Pareto::new(scale, alpha).map_err(|e| refused(&e))?)
            }
            Self::Bimodal {
                short,
                long,
                long_share,
            } => Shape::Bimodal(nanos(short), nanos(long), long_share),
        };
        let rng = generator(seed, Stream::Demands);
        Ok(Draws { shape, rng })
    }
}

/// Endless iterator over demands in ns; see [`Demand::draws`].
#[derive(Debug, Clone)]
pub struct Draws {
    shape: Shape,
    rng: Pcg64,
}

/// A distribution with its parameters in ns.
#[derive(Debug, Clone)]
enum Shape {
    Constant(u64),
    Exponential(f64),
    /// Minimum and width.
    Uniform(f64, f64),
    LogNormal(LogNormal<f64>),
    Pareto(Pareto<f64>),
    /// Short, long, share of long.
    Bimodal(u64, u64, f64),
}

impl Iterator for Draws {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let rng = &mut self.rng;
        let ns = match &self.shape {
            Shape::Constant(ns) => *ns,
            Shape::Exponential(mean) => {
                let unit: f64 = Exp1.sample(rng);
                (unit * mean) as u64
            }
            Shape::Uniform(least, width) => {
                let share: f64 = StandardUniform.sample(rng);
                (least + share * width) as u64
            }
            Shape::LogNormal(d) => d.sample(rng) as u64,
            Shape::Pareto(d) => d.sample(rng) as u64,
            Shape::Bimodal(short, long, long_share) => {
                let share: f64 = StandardUniform.sample(rng);
                if share < *long_share { *long } else { *short }
            }
        };
        Some(ns.min(nanos(DEMAND_MAX)))
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No spaces within a duration ("1ms 500us" has one), so that the text
        // can be parsed again.
        let word = |d: &Duration| show(*d).replace(' ', "");
        match self {
            Self::Constant { value } => write!(f, "const:{}", word(value)),
            Self::Exponential { mean } => write!(f, "exp:{}", word(mean)),
            Self::Uniform { least, most } => write!(f, "uniform:{},{}", word(least), word(most)),
            Self::LogNormal { mean, sigma } => write!(f, "lognormal:{},{sigma}", word(mean)),
            Self::Pareto { mean, alpha } => write!(f, "pareto:{},{alpha}", word(mean)),
            Self::Bimodal {
                short,
                long,
                long_share,
            } => write!(f, "bimodal:{},{},{long_share}", word(short), word(long)),
        }
    }
}

impl FromStr for Demand {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        let refuse = || LoadError::invalid("service", text, FORMS);
        let (name, rest) = text.split_once(':').ok_or_else(refuse)?;
        let parts: Vec<&str> = rest.split(',').map(str::trim).collect();
        let time = |part: &str| humantime::parse_duration(part).map_err(|_| refuse());
        let number = |part: &str| part.parse::<f64>().map_err(|_| refuse());
        let demand = match (name, parts.as_slice()) {
            ("const", [value]) => Self::Constant {
                value: time(value)?,
            },
            ("exp", [mean]) => Self::Exponential { mean: time(mean)? },
            ("uniform", [least, most]) => Self::Uniform {
                least: time(least)?,
                most: time(most)?,
            },
            ("lognormal", [mean, sigma]) => Self::LogNormal {
                mean: time(mean)?,
                sigma: number(sigma)?,
            },
            ("pareto", [mean, alpha]) => Self::Pareto {
                mean: time(mean)?,
                alpha: number(alpha)?,
            },
            ("bimodal", [short, long, share]) => Self::Bimodal {
                short: time(short)?,
                long: time(long)?,
                long_share: number(share)?,
            },
            _ => return Err(refuse()),
        };
        demand.validate()?;
        Ok(demand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(text: &str) -> Demand {
        text.parse().unwrap()
    }

    #[test]
    fn means_are_as_requested() {
        for (text, mean_us) in [
            ("const:500us", 500.0),
            ("exp:1ms", 1_000.0),
            ("uniform:1ms,3ms", 2_000.0),
            ("lognormal:1ms,0.5", 1_000.0),
            ("pareto:1ms,3", 1_000.0),
            ("bimodal:300us,10ms,0.01", 397.0),
        ] {
            let d = demand(text);
            let sum: u64 = d.draws(7).unwrap().take(400_000).sum();
            let drawn_us = sum as f64 / 400_000.0 / 1e3;
            assert!(
                (drawn_us / mean_us - 1.0).abs() < 0.02,
                "{text}: {drawn_us}"
            );
            assert!((d.mean().as_secs_f64() * 1e6 / mean_us - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn quantiles_match_the_distributions() {
        let ordered = |text: &str| {
            let mut draws: Vec<u64> = demand(text).draws(1).unwrap().take(100_000).collect();
            draws.sort_unstable();
            draws
        };
        let exponential = ordered("exp:1ms");
        // The exponential's median is ln 2, its 99th percentile ln 100 times the mean.
        assert!((exponential[50_000] as f64 / 693_147.0 - 1.0).abs() < 0.03);
        assert!((exponential[99_000] as f64 / 4_605_170.0 - 1.0).abs() < 0.05);
        // The minimum of the Pareto is mean × (alpha − 1) / alpha.
        let pareto = ordered("pareto:1ms,4");
        assert!(pareto[0] >= 749_999 && pareto[0] < 751_000);
        let uniform = ordered("uniform:1ms,3ms");
        assert!(uniform[0] >= 1_000_000 && uniform[99_999] <= 3_000_000);
    }

    #[test]
    fn draws_depend_on_the_seed_only_and_stay_below_the_limit() {
        let heavy = demand("pareto:1s,1.05");
        let of = |seed| heavy.draws(seed).unwrap().take(10_000).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        assert_eq!(of(1).into_iter().max(), Some(nanos(DEMAND_MAX)));
    }

    #[test]
    fn text_reads_back() {
        for text in [
            "const:1ms500us",
            "exp:2ms",
            "uniform:1ms,3ms",
            "lognormal:1ms,0.5",
            "pareto:1ms,3.5",
            "bimodal:300us,10ms,0.01",
        ] {
            assert_eq!(demand(text).to_string(), text);
        }
    }

    #[test]
    fn bad_demands_are_refused_in_one_line() {
        for text in [
            "",
            "1ms",
            "const",
            "const:",
            "const:5",
            "const:0ms",
            "const:-1ms",
            "const:1parsec",
            "const:1ms,2",
            "exp:0s",
            "exp:NaN",
            "normal:1ms",
            "uniform:3ms,1ms",
            "lognormal:1ms",
            "lognormal:1ms,NaN",
            "lognormal:1ms,-1",
            "pareto:1ms,1",
            "pareto:1ms,inf",
            "bimodal:1ms,2ms,1.5",
            "const:11s",
            "exp:1ns",
        ] {
            let error = text.parse::<Demand>().unwrap_err().to_string();
            assert!(error.starts_with("service"), "{text}: {error}");
            assert!(
                error.contains("is not allowed") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
