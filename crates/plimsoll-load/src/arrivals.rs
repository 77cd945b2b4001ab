//! Arrival processes of requests: open-loop, computed in advance and
//! independent of the service.

use std::time::Duration;

use rand_distr::{Distribution, Exp1};

use crate::limits::{BURST_EVERY_MIN, BURST_SIZE_MAX, DURATION_MAX, RATE_MAX, RATE_MIN};
use crate::random::{Stream, generator};
use crate::units::{nanos, number_between, time_between};

/// Arrivals with exponential gaps, or in bursts.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Arrivals {
    /// Mean requests per second, independent of each other, 0.001 to 1000000
    #[arg(
        long,
        value_name = "PER_SECOND",
        default_value = "300",
        value_parser = number_between(RATE_MIN, RATE_MAX),
        conflicts_with_all = ["burst_size", "burst_every"],
        allow_hyphen_values = true
    )]
    rate: f64,
    /// Requests in one burst, which arrive at once, 1 to 100000
    #[arg(
        long,
        value_name = "N",
        requires = "burst_every",
        value_parser = clap::value_parser!(u32).range(1..=BURST_SIZE_MAX),
        allow_hyphen_values = true
    )]
    burst_size: Option<u32>,
    /// Time from one burst to the next, 1ms to 24h
    #[arg(
        long,
        value_name = "TIME",
        requires = "burst_size",
        value_parser = time_between(BURST_EVERY_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    burst_every: Option<Duration>,
}

impl Arrivals {
    /// Requests of a burst, and the time from one to the next.
    fn bursts(&self) -> Option<(u32, Duration)> {
        self.burst_size.zip(self.burst_every)
    }

    /// Mean requests per second in the long run.
    pub(crate) fn mean_rate(&self) -> f64 {
        match self.bursts() {
            Some((size, every)) => f64::from(size) / every.as_secs_f64(),
            None => self.rate,
        }
    }

    /// Arrival times in ns after the start, ascending and endless. The same
    /// seed gives the same times.
    pub(crate) fn times(self, seed: u64) -> impl Iterator<Item = u64> + use<> {
        let mut rng = generator(seed, Stream::Gaps);
        let mut now_ns = 0.0;
        (0..).map(move |index: u64| match self.bursts() {
            Some((size, every)) => (index / u64::from(size)).saturating_mul(nanos(every)),
            None => {
                let gap: f64 = Exp1.sample(&mut rng);
                now_ns += gap * (1e9 / self.rate);
                now_ns as u64
            }
        })
    }
}

#[cfg(test)]
impl Arrivals {
    pub(crate) fn poisson(rate: f64) -> Self {
        Self {
            rate,
            burst_size: None,
            burst_every: None,
        }
    }

    pub(crate) fn in_bursts(size: u32, every: Duration) -> Self {
        Self {
            burst_size: Some(size),
            burst_every: Some(every),
            ..Self::poisson(300.0)
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
            let times = Arrivals::poisson(300.0).times(seed);
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
        let arrivals = Arrivals::poisson(1_000.0);
        let of = |seed| arrivals.times(seed).take(1_000).collect::<Vec<_>>();
        assert_eq!(of(42), of(42));
        assert_ne!(of(42), of(43));
        assert!(of(42).is_sorted());
    }

    #[test]
    fn bursts_are_complete_simultaneous_and_on_time() {
        let arrivals = Arrivals::in_bursts(40, Duration::from_secs(1));
        for (index, time) in (0..200).zip(arrivals.times(1)) {
            assert_eq!(time, index / 40 * SECOND, "request {index}");
        }
        assert!((arrivals.mean_rate() - 40.0).abs() < 1e-9);
    }
}
