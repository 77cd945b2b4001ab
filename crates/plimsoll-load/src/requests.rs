//! Settings of a run of requests.

use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::limits::{DURATION_MAX, DURATION_MIN};
use crate::units::{nanos, time_between};

/// The requests of a run.
#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct Requests {
    #[command(flatten)]
    pub(crate) arrivals: Arrivals,
    /// CPU time of a request, 1us to 10s: const:TIME, or exp:MEAN with an
    /// exponential distribution
    #[arg(long, value_name = "DEMAND", default_value = "const:300us")]
    pub(crate) service: Demand,
    /// Measured time, up to 24h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = time_between(DURATION_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    pub(crate) duration: Duration,
    /// Warm-up, in which requests are served but not measured, up to 24h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "500ms",
        value_parser = time_between(Duration::ZERO, DURATION_MAX),
        allow_hyphen_values = true
    )]
    pub(crate) warmup: Duration,
    /// Deadline: requests answered later than this count as failures
    #[arg(
        long,
        value_name = "TIME",
        default_value = "50ms",
        value_parser = time_between(Duration::from_micros(1), DURATION_MAX),
        allow_hyphen_values = true
    )]
    pub(crate) deadline: Duration,
    /// Seed of arrivals and demands: the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

impl Requests {
    /// Arrivals and demands in ns, in order of arrival and without an end.
    pub(crate) fn schedule(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let times = self.arrivals.times(self.seed);
        times.zip(self.service.draws(self.seed))
    }

    /// Time at which arrivals end, in ns after the start.
    pub(crate) fn end_ns(&self) -> u64 {
        nanos(self.warmup) + nanos(self.duration)
    }
}
