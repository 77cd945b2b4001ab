//! Settings of a run of requests.

use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::{
    DURATION_MAX, DURATION_MIN, REQUESTS_MAX, SERIES_INTERVAL_MIN, SERIES_POINTS_MAX, THREADS_MAX,
};
use crate::measure::Request;
use crate::units::{check_count, check_duration, check_number};

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceConfig {
    pub arrivals: Arrivals,
    pub demand: Demand,
    /// Worker threads, 1 to [`THREADS_MAX`].
    pub workers: usize,
    /// Measured time, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
    /// Warm-up: time before the measurement in which requests are served.
    pub warmup: Duration,
    /// A request answered later than this after its intended arrival has failed.
    pub deadline: Duration,
    /// Time after the end of the run to wait for pending answers.
    pub grace: Duration,
    pub seed: u64,
    /// If set, also report latency over time in intervals of this length,
    /// [`SERIES_INTERVAL_MIN`] or more, at most [`SERIES_POINTS_MAX`] of them.
    pub series_interval: Option<Duration>,
}

impl ServiceConfig {
    /// The requests of a run in order of arrival, without an end.
    pub fn requests(&self) -> impl Iterator<Item = Request> + use<> {
        let times = self.arrivals.times(self.seed);
        let demands = self.demand.draws(self.seed);
        let all = (0..).zip(times.zip(demands));
        all.map(|(id, (intended_ns, demand_ns))| Request {
            id,
            intended_ns,
            demand_ns,
        })
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        self.arrivals.validate()?;
        self.demand.validate()?;
        check_count("workers", self.workers as u64, THREADS_MAX as u64)?;
        check_duration("duration", self.duration, (DURATION_MIN, DURATION_MAX))?;
        check_duration("warmup", self.warmup, (Duration::ZERO, DURATION_MAX))?;
        check_duration(
            "deadline",
            self.deadline,
            (Duration::from_micros(1), DURATION_MAX),
        )?;
        check_duration("grace", self.grace, (Duration::ZERO, DURATION_MAX))?;
        let total = self.warmup + self.duration;
        let requests = self.arrivals.mean_rate() * total.as_secs_f64();
        check_number(
            "rate × (warmup + duration)",
            requests,
            (0.0, REQUESTS_MAX),
            " requests",
        )?;
        if let Some(interval) = self.series_interval {
            check_duration(
                "series-interval",
                interval,
                (SERIES_INTERVAL_MIN, DURATION_MAX),
            )?;
            let points = self.duration.as_nanos().div_ceil(interval.as_nanos());
            let points = u64::try_from(points).unwrap_or(u64::MAX);
            let max = u64::try_from(SERIES_POINTS_MAX).unwrap_or(u64::MAX);
            check_count("duration / series-interval", points, max)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Default for ServiceConfig {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::Poisson { rate: 300.0 },
            demand: Demand::Constant {
                value: Duration::from_micros(300),
            },
            workers: 1,
            duration: Duration::from_secs(10),
            warmup: Duration::from_millis(500),
            deadline: Duration::from_millis(50),
            grace: Duration::from_secs(1),
            seed: 1,
            series_interval: None,
        }
    }
}
