//! A running measurement of requests: live figures, end, report.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::config::ServiceConfig;
use crate::error::LoadError;
use crate::measure::{Measure, Totals};
use crate::openloop::{Lag, Sink, spawn_generator};
use crate::report::{Ending, Latency, ServiceReport};
use crate::units::{micros, nanos, ratio, seconds};

/// Interval at which [`OpenLoop::finish`] checks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The serving part of a run. Dropping it ends its threads.
pub(crate) trait Backend: Send {
    /// Whether the service ended by itself.
    fn is_lost(&self) -> bool;
    /// Description of a request's demand, if the configuration does not
    /// determine it.
    fn describe_demand(&self) -> Option<String> {
        None
    }
    /// Ends the service and records all its pending requests as unfinished on
    /// `lane`.
    fn give_up(&mut self, measure: &Measure, lane: usize) -> Result<(), LoadError>;
}

/// A running measurement. Dropping it ends the run without a report.
pub struct OpenLoop {
    config: ServiceConfig,
    workers: Option<usize>,
    measure: Arc<Measure>,
    lane: usize,
    generator: Option<JoinHandle<Lag>>,
    backend: Box<dyn Backend>,
}

/// Live figures of a run; see [`ServiceReport`] for their definitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Snapshot {
    /// Time since the start of the run, warm-up included.
    pub elapsed: Duration,
    /// Requests answered or given up.
    pub requests: u64,
    /// Number of those that were late or given up.
    pub failures: u64,
    /// Requests waiting or being served now, including those of the warm-up.
    pub outstanding: u64,
    /// CPU time used for the answered requests.
    pub cpu_seconds: f64,
    /// Latencies so far.
    pub latency: Latency,
}

impl OpenLoop {
    pub(crate) fn start(
        config: &ServiceConfig,
        workers: Option<usize>,
        measure: Arc<Measure>,
        lane: usize,
        sink: impl Sink,
        backend: Box<dyn Backend>,
    ) -> Result<Self, LoadError> {
        let generator = Some(spawn_generator(config, &measure, lane, sink)?);
        Ok(Self {
            config: config.clone(),
            workers,
            measure,
            lane,
            generator,
            backend,
        })
    }

    /// Live figures. Cheap enough to be called several times a second.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let totals = self.measure.totals();
        Snapshot {
            elapsed: Duration::from_nanos(self.measure.timing.elapsed_ns()),
            requests: totals.requests(),
            failures: totals.late + totals.unfinished,
            outstanding: self.measure.outstanding(),
            cpu_seconds: seconds(totals.cpu_ns),
            latency: Latency::of(&totals),
        }
    }

    /// Ends the run now: no more arrivals. [`OpenLoop::finish`] still waits for
    /// the grace.
    pub fn stop(&self) {
        self.measure.timing.end_early();
    }

    /// Whether arrivals have ended: by the clock, a stop or a lost connection.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.measure.timing.elapsed_ns() >= self.measure.timing.end_ns() || self.backend.is_lost()
    }

    /// Waits for the end of the run and for outstanding answers (no longer than the grace), then
    /// reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if a thread of the run panicked.
    pub fn finish(mut self) -> Result<ServiceReport, LoadError> {
        let timing = &self.measure.timing;
        while self.is_generating() || self.measure.outstanding() > 0 {
            let give_up_ns = timing.end_ns().saturating_add(nanos(self.config.grace));
            if timing.elapsed_ns() >= give_up_ns || self.backend.is_lost() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let ending = self.ending();
        self.backend.give_up(&self.measure, self.lane)?;
        let lag = match self.generator.take().map(JoinHandle::join) {
            Some(Ok(lag)) => lag,
            _ => return Err(LoadError::ThreadDied { role: "generator" }),
        };
        Ok(self.report(&lag, ending))
    }

    fn is_generating(&self) -> bool {
        self.generator.as_ref().is_some_and(|g| !g.is_finished())
    }

    fn ending(&self) -> Ending {
        let planned_ns = nanos(self.config.warmup) + nanos(self.config.duration);
        if self.backend.is_lost() {
            Ending::ConnectionLost
        } else if self.measure.timing.end_ns() < planned_ns {
            Ending::Stopped
        } else {
            Ending::Complete
        }
    }

    fn report(&self, lag: &Lag, ending: Ending) -> ServiceReport {
        let totals: &Totals = &self.measure.totals();
        let timing = &self.measure.timing;
        let measured_ns = timing.end_ns().saturating_sub(timing.warmup_ns);
        let failures = totals.late + totals.unfinished;
        let requests = totals.requests();
        let per_second = |count: u64| ratio(count as f64, seconds(measured_ns));
        let lag_us = |q| micros(lag.value_at_quantile(q).min(lag.max()));
        ServiceReport {
            seed: self.config.seed,
            arrivals: self.config.describe_arrivals(),
            service: self
                .backend
                .describe_demand()
                .unwrap_or_else(|| self.config.describe_demand()),
            workers: self.workers,
            warmup_seconds: self.config.warmup.as_secs_f64(),
            measured_seconds: seconds(measured_ns),
            deadline_us: micros(nanos(self.config.deadline)),
            requests,
            answered: totals.answered,
            late: totals.late,
            unfinished: totals.unfinished,
            failures,
            success_ratio: if requests == 0 {
                1.0
            } else {
                1.0 - failures as f64 / requests as f64
            },
            rate_asked_per_second: self.config.mean_rate(),
            rate_arrived_per_second: per_second(requests),
            rate_achieved_per_second: per_second(totals.answered_in_time),
            latency: Latency::of(totals),
            generator_lag_p99_us: lag_us(0.99),
            generator_lag_max_us: lag_us(1.0),
            cpu_seconds: seconds(totals.cpu_ns),
            cpu_asked_seconds: seconds(totals.demand_ns),
            ending,
            series: totals
                .series
                .as_ref()
                .map_or_else(Vec::new, |s| s.points(measured_ns)),
        }
    }
}

impl Drop for OpenLoop {
    fn drop(&mut self) {
        self.stop();
    }
}
