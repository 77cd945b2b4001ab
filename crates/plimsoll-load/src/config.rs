//! Settings of a run of requests.

use std::sync::Arc;
use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::{
    DURATION_MAX, DURATION_MIN, REQUESTS_MAX, SERIES_INTERVAL_MIN, SERIES_POINTS_MAX, THREADS_MAX,
};
use crate::machine::available_cpus;
use crate::schedule::Requests;
use crate::trace::Trace;
use crate::units::{check_count, check_duration, check_number, nanos, ratio};

/// Settings of a run of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceConfig {
    /// Arrival process of the requests.
    pub arrivals: Arrivals,
    /// CPU demand of the requests.
    pub demand: Demand,
    /// Requests from a file, which replace `arrivals`, `demand` and `seed`.
    pub trace: Option<Arc<Trace>>,
    /// Worker threads, 1 to [`THREADS_MAX`]. Not used over TCP, where the server has its own.
    pub workers: usize,
    /// Measured time, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
    /// Warm-up: time before the measurement in which requests are served.
    pub warmup: Duration,
    /// A request answered later than this after its intended arrival has failed.
    pub deadline: Duration,
    /// Time after the end of the run to wait for pending answers.
    pub grace: Duration,
    /// Seed of all random draws.
    pub seed: u64,
    /// If set, also report latency over time in intervals of this length,
    /// [`SERIES_INTERVAL_MIN`] or more, at most [`SERIES_POINTS_MAX`] of them.
    pub series_interval: Option<Duration>,
}

impl Default for ServiceConfig {
    /// 300 Poisson requests per second of 300 µs each for 10 s, after half a
    /// second of warm-up; one worker per CPU; 50 ms deadline, 1 s grace, seed
    /// 1, no time series.
    fn default() -> Self {
        Self {
            arrivals: Arrivals::Poisson { rate: 300.0 },
            demand: Demand::Constant {
                value: Duration::from_micros(300),
            },
            trace: None,
            workers: available_cpus().min(THREADS_MAX),
            duration: Duration::from_secs(10),
            warmup: Duration::from_millis(500),
            deadline: Duration::from_millis(50),
            grace: Duration::from_secs(1),
            seed: 1,
            series_interval: None,
        }
    }
}

impl ServiceConfig {
    /// The requests of a run with this seed, in order of arrival, for a real
    /// run or a model of it. Endless unless from a trace; a run takes those
    /// that arrive before its end.
    ///
    /// # Errors
    /// As [`Demand::validate`].
    pub fn requests(&self, seed: u64) -> Result<Requests, LoadError> {
        Ok(match &self.trace {
            Some(trace) => Requests::traced(Arc::clone(trace)),
            None => Requests::drawn(self.arrivals.times(seed), self.demand.draws(seed)?),
        })
    }

    /// Expected requests per second of the measured time.
    #[must_use]
    pub fn mean_rate(&self) -> f64 {
        let Some(trace) = &self.trace else {
            return self.arrivals.mean_rate();
        };
        let warmup_ns = nanos(self.warmup);
        let count = trace.count_within(warmup_ns, warmup_ns.saturating_add(nanos(self.duration)));
        ratio(count as f64, self.duration.as_secs_f64())
    }

    /// Description of the arrival process.
    pub(crate) fn describe_arrivals(&self) -> String {
        match &self.trace {
            Some(trace) => format!("trace {}", trace.file()),
            None => self.arrivals.to_string(),
        }
    }

    /// Description of the demand.
    pub(crate) fn describe_demand(&self) -> String {
        match &self.trace {
            Some(_) => "as in the trace".to_owned(),
            None => self.demand.to_string(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] names the first field that is out of range.
    pub fn validate(&self) -> Result<(), LoadError> {
        if self.trace.is_none() {
            self.arrivals.validate()?;
            self.demand.validate()?;
        }
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
        let requests = self.mean_rate() * total.as_secs_f64();
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
