//! Arrival processes of requests: open-loop, computed in advance and
//! independent of the service.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use rand_distr::{Distribution, Exp1, StandardUniform};
use rand_pcg::Pcg64;

use crate::error::LoadError;
use crate::limits::{BURST_EVERY_MIN, BURST_SIZE_MAX, DURATION_MAX, RATE_MAX, RATE_MIN};
use crate::random::{Stream, generator};
use crate::units::{check_count, check_duration, check_number, nanos, show};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Exponential gaps; `rate` per second, `RATE_MIN` to `RATE_MAX`.
    Poisson { rate: f64 },
    /// Equal gaps; the first request arrives one gap after the start.
    Uniform {
        /// Requests per second, `RATE_MIN` to `RATE_MAX`.
        rate: f64,
    },
    /// `size` requests at the start of every interval `every`, plus a Poisson
    /// stream.
    Bursts {
        /// Requests in one burst, 1 to `BURST_SIZE_MAX`.
        size: u32,
        /// Time from the start of one burst to the next, `BURST_EVERY_MIN` to a day.
        every: Duration,
        /// Each request of a burst arrives at a random time within this long of
        /// the burst's start; zero means all at once. Less than `every`.
        spread: Duration,
        /// Rate of the Poisson stream, in requests per second; 0 for none.
        base_rate: f64,
    },
}

impl Arrivals {
    /// Mean requests per second in the long run.
    #[must_use]
    pub fn mean_rate(&self) -> f64 {
        match *self {
            Self::Poisson { rate } | Self::Uniform { rate } => rate,
            Self::Bursts {
                size,
                every,
                base_rate,
                ..
            } => f64::from(size) / every.as_secs_f64() + base_rate,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        const PER_SECOND: &str = " requests per second";
        match *self {
            Self::Poisson { rate } | Self::Uniform { rate } => {
                check_number("rate", rate, (RATE_MIN, RATE_MAX), PER_SECOND)
            }
            Self::Bursts {
                size,
                every,
                spread,
                base_rate,
            } => {
                check_count("burst-size", size.into(), BURST_SIZE_MAX.into())?;
                check_duration("burst-every", every, (BURST_EVERY_MIN, DURATION_MAX))?;
                if spread >= every {
                    let allowed = "less than burst-every";
                    return Err(LoadError::invalid("burst-spread", show(spread), allowed));
                }
                check_number("rate", base_rate, (0.0, RATE_MAX), PER_SECOND)?;
                let total = self.mean_rate();
                check_number(
                    "burst-size / burst-every + rate",
                    total,
                    (RATE_MIN, RATE_MAX),
                    PER_SECOND,
                )
            }
        }
    }

    /// Arrival times in ns after the start, ascending and endless. The same
    /// seed gives the same times.
    #[must_use]
    pub fn times(&self, seed: u64) -> ArrivalTimes {
        let poisson = |rate| Poisson::new(rate, seed);
        ArrivalTimes(match *self {
            Self::Poisson { rate } => Kind::Poisson(poisson(rate)),
            Self::Uniform { rate } => Kind::Uniform { rate, count: 0 },
            Self::Bursts {
                size,
                every,
                spread,
                base_rate,
            } => Kind::Bursts {
                bursts: Bursts {
                    size,
                    every_ns: nanos(every),
                    spread_ns: nanos(spread),
                    next_burst_ns: 0,
                    pending: VecDeque::new(),
                    rng: generator(seed, Stream::Spread),
                },
                base: (base_rate > 0.0).then(|| poisson(base_rate).peekable()),
            },
        })
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson { rate } => write!(f, "poisson {rate}/s"),
            Self::Uniform { rate } => write!(f, "uniform {rate}/s"),
            Self::Bursts {
                size,
                every,
                spread,
                base_rate,
            } => write!(
                f,
                "bursts of {size} every {} within {}, and poisson {base_rate}/s",
                show(*every),
                show(*spread)
            ),
        }
    }
}

/// Endless iterator over arrival times (ns after the start); see [`Arrivals::times`].
#[derive(Debug, Clone)]
pub struct ArrivalTimes(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Poisson(Poisson),
    Uniform {
        rate: f64,
        count: u64,
    },
    Bursts {
        bursts: Bursts,
        base: Option<std::iter::Peekable<Poisson>>,
    },
}

impl Iterator for ArrivalTimes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match &mut self.0 {
            Kind::Poisson(poisson) => poisson.next(),
            Kind::Uniform { rate, count } => {
                // Computed from the count instead of summing gaps, so that
                // rounding errors do not accumulate.
                *count += 1;
                Some((*count as f64 * 1e9 / *rate) as u64)
            }
            Kind::Bursts { bursts, base: None } => Some(bursts.pop()),
            Kind::Bursts {
                bursts,
                base: Some(base),
            } => {
                let burst_ns = bursts.peek();
                base.next_if(|&base_ns| base_ns < burst_ns)
                    .or_else(|| Some(bursts.pop()))
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Poisson {
    gap_mean_ns: f64,
    now_ns: f64,
    rng: Pcg64,
}

impl Poisson {
    fn new(rate: f64, seed: u64) -> Self {
        Self {
            gap_mean_ns: 1e9 / rate,
            now_ns: 0.0,
            rng: generator(seed, Stream::Gaps),
        }
    }
}

impl Iterator for Poisson {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.now_ns += gap * self.gap_mean_ns;
        Some(self.now_ns as u64)
    }
}

#[derive(Debug, Clone)]
struct Bursts {
    size: u32,
    every_ns: u64,
    spread_ns: u64,
    next_burst_ns: u64,
    /// The rest of the current burst, ascending.
    pending: VecDeque<u64>,
    rng: Pcg64,
}

impl Bursts {
    fn peek(&mut self) -> u64 {
        if self.pending.is_empty() {
            self.refill();
        }
        self.pending.front().copied().unwrap_or(u64::MAX)
    }

    fn pop(&mut self) -> u64 {
        let front = self.peek();
        self.pending.pop_front();
        front
    }

    fn refill(&mut self) {
        let start_ns = self.next_burst_ns;
        self.next_burst_ns = start_ns.saturating_add(self.every_ns);
        for _ in 0..self.size {
            let share: f64 = StandardUniform.sample(&mut self.rng);
            let offset_ns = (share * self.spread_ns as f64) as u64;
            self.pending.push_back(start_ns.saturating_add(offset_ns));
        }
        self.pending.make_contiguous().sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn count_within(arrivals: Arrivals, seconds: u64, seed: u64) -> usize {
        arrivals
            .times(seed)
            .take_while(|&t| t < seconds * SECOND)
            .count()
    }

    #[test]
    fn poisson_has_the_requested_rate_and_variance() {
        let arrivals = Arrivals::Poisson { rate: 300.0 };
        let counts: Vec<f64> = (0..400)
            .map(|seed| count_within(arrivals, 10, seed) as f64)
            .collect();
        let mean = counts.iter().sum::<f64>() / 400.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 399.0;
        assert!((mean - 3_000.0).abs() < 15.0, "mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.3, "variance {variance}");
    }

    #[test]
    fn uniform_is_exact() {
        let arrivals = Arrivals::Uniform { rate: 300.0 };
        // A request due exactly at the end belongs to the next interval.
        assert_eq!(count_within(arrivals, 10, 0), 2_999);
        let times: Vec<u64> = arrivals.times(0).take(900).collect();
        assert_eq!(times[299], SECOND);
        assert_eq!(times[899], 3 * SECOND);
    }

    #[test]
    fn times_depend_on_the_seed_only() {
        for arrivals in [
            Arrivals::Poisson { rate: 1_000.0 },
            Arrivals::Bursts {
                size: 7,
                every: Duration::from_millis(100),
                spread: Duration::from_millis(20),
                base_rate: 50.0,
            },
        ] {
            let of = |seed| arrivals.times(seed).take(1_000).collect::<Vec<_>>();
            assert_eq!(of(42), of(42));
            assert_ne!(of(42), of(43));
            assert!(of(42).is_sorted());
        }
    }

    #[test]
    fn bursts_are_complete_and_on_time() {
        let arrivals = Arrivals::Bursts {
            size: 40,
            every: Duration::from_secs(1),
            spread: Duration::from_millis(10),
            base_rate: 0.0,
        };
        let times: Vec<u64> = arrivals.times(1).take(200).collect();
        assert!(times.is_sorted());
        for (index, time) in times.iter().enumerate() {
            assert_eq!(time / SECOND, index as u64 / 40, "burst of request {index}");
            assert!(time % SECOND < SECOND / 100);
        }
        assert!((arrivals.mean_rate() - 40.0).abs() < 1e-9);
    }

    #[test]
    fn burst_without_spread_is_simultaneous_and_the_base_stream_continues() {
        let arrivals = Arrivals::Bursts {
            size: 10,
            every: Duration::from_secs(1),
            spread: Duration::ZERO,
            base_rate: 100.0,
        };
        let times: Vec<u64> = arrivals
            .times(3)
            .take_while(|&t| t < 100 * SECOND)
            .collect();
        let in_bursts = times.iter().filter(|&&t| t % SECOND == 0).count();
        assert_eq!(in_bursts, 1_000);
        let base = times.len() - in_bursts;
        assert!((9_500..10_500).contains(&base), "{base}");
    }

    #[test]
    fn bad_rates_and_bursts_are_refused() {
        for rate in [0.0, -3.0, f64::NAN, f64::INFINITY, 2e6] {
            let error = Arrivals::Poisson { rate }.validate().unwrap_err();
            assert!(error.to_string().starts_with("rate: '"), "{error}");
        }
        let good = (10, Duration::from_secs(1), Duration::ZERO, 0.0);
        let check = |(size, every, spread, base_rate)| {
            Arrivals::Bursts {
                size,
                every,
                spread,
                base_rate,
            }
            .validate()
        };
        assert!(check(good).is_ok());
        assert!(check((0, good.1, good.2, 0.0)).is_err());
        assert!(check((10, Duration::ZERO, good.2, 0.0)).is_err());
        assert!(check((10, good.1, good.1, 0.0)).is_err());
        assert!(check((10, good.1, good.2, f64::NAN)).is_err());
        assert!(check((100_000, Duration::from_millis(1), good.2, 0.0)).is_err());
    }
}
