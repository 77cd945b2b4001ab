//! Distributions of the demand of a group in a period.

use std::sync::Arc;

use super::samples::Samples;

/// Shape of the Pareto distribution in the source.
pub const PARETO_ALPHA_DEFAULT: f64 = 4.0;
/// Default shape of the lognormal distribution: the standard deviation is 1.3
/// times the mean.
pub const SIGMA_DEFAULT: f64 = 1.0;
/// The Poisson distribution counts tenths of the quota, as the source does.
pub(super) const POISSON_STEPS: f64 = 10.0;
/// Shapes of the Pareto distribution: at 1 it has no mean.
const PARETO_ALPHA: (f64, f64) = (1.1, 100.0);
/// Shapes of the lognormal distribution: at 5 the mean is an outlier.
const SIGMA: (f64, f64) = (0.01, 5.0);

/// Distribution of demand over periods. Periods are independent of each other.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    Exponential,
    /// Tenths of the quota: Poisson with ten times the mean, divided by ten.
    Poisson,
    /// Pareto, with the minimum that yields the mean.
    Pareto {
        /// The shape, 1.1 to 100; up to 2, the variance is infinite and
        /// intervals mean little.
        alpha: f64,
    },
    Lognormal {
        /// Standard deviation of the logarithm, 0.01 to 5.
        sigma: f64,
    },
    /// Measured demand, drawn with replacement and scaled to the mean.
    Empirical(Arc<Samples>),
}

impl Distribution {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Poisson => "poisson",
            Self::Pareto { .. } => "pareto",
            Self::Lognormal { .. } => "lognormal",
            Self::Empirical(_) => "empirical",
        }
    }

    /// Mean of the measured demand; `None` for the other distributions, which
    /// need one.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Empirical(samples) => Some(samples.mean()),
            _ => None,
        }
    }

    /// Squared coefficient of variation for a mean of `mean` quotas; infinite
    /// for a Pareto distribution with a shape of 2 or less.
    #[must_use]
    pub fn variation_squared(&self, mean: f64) -> f64 {
        match self {
            Self::Exponential => 1.0,
            Self::Poisson => (POISSON_STEPS * mean).recip(),
            Self::Pareto { alpha } if *alpha <= 2.0 => f64::INFINITY,
            Self::Pareto { alpha } => (alpha * (alpha - 2.0)).recip(),
            Self::Lognormal { sigma } => (sigma * sigma).exp_m1(),
            Self::Empirical(samples) => samples.variation_squared(),
        }
    }

    /// Describes a parameter that is out of range: field, value, allowed.
    pub(super) fn problem(&self) -> Option<String> {
        let (field, value, (least, most)) = match self {
            Self::Pareto { alpha } => ("alpha", *alpha, PARETO_ALPHA),
            Self::Lognormal { sigma } => ("sigma", *sigma, SIGMA),
            _ => return None,
        };
        let is_allowed = (least..=most).contains(&value);
        (!is_allowed)
            .then(|| format!("{field}: `{value}` is out of range; allowed: {least} to {most}"))
    }
}
