//! Arrival processes of requests: open-loop, computed in advance and
//! independent of the service.

use std::fmt;
use std::time::Duration;

use rand_distr::{Distribution, Exp1};

use crate::error::LoadError;
use crate::limits::{BURST_EVERY_MIN, BURST_SIZE_MAX, DURATION_MAX, RATE_MAX, RATE_MIN};
use crate::random::{Stream, generator};
use crate::units::{check_count, check_duration, check_number, nanos, show};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Exponential gaps; `rate` per second, `RATE_MIN` to `RATE_MAX`.
    Poisson { rate: f64 },
    /// `size` requests at once at the start of every interval `every`.
    Bursts {
        /// Requests in one burst, 1 to `BURST_SIZE_MAX`.
        size: u32,
        /// Time from one burst to the next, `BURST_EVERY_MIN` to a day.
        every: Duration,
    },
}

impl Arrivals {
    /// Mean requests per second in the long run.
    #[must_use]
    pub fn mean_rate(&self) -> f64 {
        match *self {
            Self::Poisson { rate } => rate,
            Self::Bursts { size, every } => f64::from(size) / every.as_secs_f64(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        let field = match *self {
            Self::Poisson { .. } => "rate",
            Self::Bursts { size, every } => {
                check_count("burst-size", size.into(), BURST_SIZE_MAX.into())?;
                check_duration("burst-every", every, (BURST_EVERY_MIN, DURATION_MAX))?;
                "burst-size / burst-every"
            }
        };
        let range = (RATE_MIN, RATE_MAX);
        check_number(field, self.mean_rate(), range, " requests per second")
    }

    /// Arrival times in ns after the start, ascending and endless. The same
    /// seed gives the same times.
    pub fn times(self, seed: u64) -> impl Iterator<Item = u64> + use<> {
        let mut rng = generator(seed, Stream::Gaps);
        let mut now_ns = 0.0;
        (0..).map(move |index: u64| match self {
            Self::Poisson { rate } => {
                let gap: f64 = Exp1.sample(&mut rng);
                now_ns += gap * (1e9 / rate);
                now_ns as u64
            }
            Self::Bursts { size, every } => (index / u64::from(size)).saturating_mul(nanos(every)),
        })
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { rate } => write!(f, "poisson {rate}/s"),
            Self::Bursts { size, every } => write!(f, "bursts of {size} every {}", show(*every)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn poisson_has_the_requested_rate_and_variance() {
        let count = |seed| {
            let times = Arrivals::Poisson { rate: 300.0 }.times(seed);
            times.take_while(|&t| t < 10 * SECOND).count() as f64
        };
        let counts: Vec<f64> = (0..400).map(count).collect();
        let mean = counts.iter().sum::<f64>() / 400.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
        assert!((mean - 3_000.0).abs() < 15.0, "mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.3, "variance {variance}");
    }

    #[test]
    fn times_depend_on_the_seed_only() {
        let arrivals = Arrivals::Poisson { rate: 1_000.0 };
        let of = |seed| arrivals.times(seed).take(1_000).collect::<Vec<_>>();
        assert_eq!(of(42), of(42));
        assert_ne!(of(42), of(43));
        assert!(of(42).is_sorted());
    }

    #[test]
    fn bursts_are_complete_simultaneous_and_on_time() {
        let arrivals = Arrivals::Bursts {
            size: 40,
            every: Duration::from_secs(1),
        };
        for (index, time) in (0..200).zip(arrivals.times(1)) {
            assert_eq!(time, index / 40 * SECOND, "request {index}");
        }
        assert!((arrivals.mean_rate() - 40.0).abs() < 1e-9);
    }

    #[test]
    fn bad_rates_and_bursts_are_refused() {
        for rate in [0.0, -3.0, f64::NAN, f64::INFINITY, 2e6] {
            let error = Arrivals::Poisson { rate }.validate().unwrap_err();
            assert!(error.to_string().starts_with("rate: '"), "{error}");
        }
        let check = |size, every| Arrivals::Bursts { size, every }.validate();
        assert!(check(10, Duration::from_secs(1)).is_ok());
        assert!(check(0, Duration::from_secs(1)).is_err());
        assert!(check(10, Duration::ZERO).is_err());
        assert!(check(100_000, Duration::from_millis(1)).is_err());
    }
}
