//! The request service: an open-loop generator, a FIFO and worker threads that burn CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{CpuClock, burn, precise_timers};
use crate::config::ServiceConfig;
use crate::error::LoadError;
use crate::limits::QUEUE_MAX;
use crate::measure::{Measure, Request, Totals};
use crate::openloop::{Lag, new_measure, spawn, spawn_generator};
use crate::queue::Queue;
use crate::report::{Ending, Latency, ServiceReport};
use crate::units::{micros, nanos, ratio, seconds};

/// Interval at which [`Service::finish`] checks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running service. Dropping it ends the run without a report.
pub(crate) struct Service {
    config: ServiceConfig,
    measure: Arc<Measure>,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    generator: Option<JoinHandle<Lag>>,
}

/// State shared by the generator and the workers.
#[derive(Debug)]
struct Shared {
    queue: Queue<Request>,
    /// Set when the grace is over: workers abandon their current request.
    give_up: AtomicBool,
}

impl Service {
    /// Starts workers and generator. The run begins a few milliseconds later.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if a thread can't be
    /// started.
    pub(crate) fn start(config: &ServiceConfig) -> Result<Self, LoadError> {
        config.validate()?;
        let mut service = Self {
            config: config.clone(),
            measure: new_measure(config, config.workers)?,
            shared: Arc::new(Shared {
                queue: Queue::new(QUEUE_MAX),
                give_up: AtomicBool::new(false),
            }),
            workers: Vec::with_capacity(config.workers),
            generator: None,
        };
        for lane in 0..config.workers {
            let shared = Arc::clone(&service.shared);
            let measure = Arc::clone(&service.measure);
            let worker = spawn("load-worker", move || serve(lane, &shared, &measure))?;
            service.workers.push(worker);
        }
        let shared = Arc::clone(&service.shared);
        let submit = move |request| shared.queue.push(request);
        let generator = spawn_generator(config, &service.measure, config.workers, submit)?;
        service.generator = Some(generator);
        Ok(service)
    }

    /// Ends the run now: no more arrivals. [`Service::finish`] still waits for
    /// the grace.
    pub(crate) fn stop(&self) {
        self.measure.timing.end_early();
    }

    /// Waits for the end of the run and for outstanding answers (no longer than the grace), then
    /// reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if a thread of the run panicked.
    pub(crate) fn finish(mut self) -> Result<ServiceReport, LoadError> {
        let timing = &self.measure.timing;
        while self.is_generating() || self.measure.outstanding() > 0 {
            let give_up_ns = timing.end_ns().saturating_add(nanos(self.config.grace));
            if timing.elapsed_ns() >= give_up_ns {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // Requests that are given up would end the run early.
        let ending = self.ending();
        self.give_up()?;
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
        if self.measure.timing.end_ns() < planned_ns {
            Ending::Stopped
        } else {
            Ending::Complete
        }
    }

    /// Ends the workers and records all pending requests as unfinished.
    fn give_up(&mut self) -> Result<(), LoadError> {
        let generator_lane = self.config.workers;
        self.shared.give_up.store(true, Ordering::Relaxed);
        for request in self.shared.queue.close() {
            self.measure.unfinished(generator_lane, request, 0);
        }
        for worker in self.workers.drain(..) {
            worker
                .join()
                .map_err(|_| LoadError::ThreadDied { role: "worker" })?;
        }
        Ok(())
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
            arrivals: self.config.arrivals.to_string(),
            service: self.config.demand.to_string(),
            workers: self.config.workers,
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
            rate_asked_per_second: self.config.arrivals.mean_rate(),
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

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
        self.shared.give_up.store(true, Ordering::Relaxed);
        self.shared.queue.close();
    }
}

/// Main loop of a worker: takes requests in order and burns their CPU time.
fn serve(lane: usize, shared: &Shared, measure: &Measure) {
    precise_timers();
    while let Some(request) = shared.queue.pop() {
        let burnt = burn(CpuClock::Thread, request.demand_ns, &shared.give_up);
        if burnt.complete {
            measure.answered(lane, request, burnt.cpu_ns);
        } else {
            measure.unfinished(lane, request, burnt.cpu_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrivals::Arrivals;
    use crate::demand::Demand;
    use crate::report::Ending;
    use crate::wait::wait_until;

    const MS: Duration = Duration::from_millis(1);

    fn short(every: Duration, demand: Duration) -> ServiceConfig {
        ServiceConfig {
            arrivals: Arrivals::Bursts { size: 1, every },
            demand: Demand::Constant { value: demand },
            workers: 1,
            duration: Duration::from_millis(400),
            warmup: Duration::ZERO,
            grace: Duration::from_secs(3_600),
            ..ServiceConfig::default()
        }
    }

    #[test]
    fn every_request_is_served_and_its_cpu_time_burnt() {
        let config = ServiceConfig {
            series_interval: Some(Duration::from_millis(100)),
            warmup: Duration::from_millis(100),
            ..short(MS, Duration::from_micros(200))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        // Requests arrive at 0, 1, ... ms; those from 100 ms to 500 ms are
        // measured.
        assert_eq!((report.requests, report.unfinished), (400, 0));
        assert_eq!(report.ending, Ending::Complete);
        assert!((report.cpu_asked_seconds - 0.08).abs() < 1e-9);
        assert!(report.cpu_seconds >= report.cpu_asked_seconds);
        assert!(report.latency.p50_us >= 200.0);
        let counts: Vec<u64> = report.series.iter().map(|p| p.count).collect();
        assert_eq!(counts, [100; 4]);
    }

    #[test]
    fn requests_behind_a_stall_include_it_in_their_latency() {
        // Four requests arrive while the first occupies the only worker. Open
        // loop, so the wait counts in each latency.
        let config = ServiceConfig {
            arrivals: Arrivals::Bursts {
                size: 4,
                every: Duration::from_secs(60),
            },
            ..short(MS, Duration::from_millis(200))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!((report.requests, report.answered), (4, 4));
        // They need 200 ms each and arrived together: the n-th waits for n − 1
        // others.
        assert!(report.latency.max_us >= 800_000.0, "{report:?}");
        assert!(report.latency.p50_us >= 399_000.0, "{report:?}");
        assert_eq!(report.failures, 4, "all are over the deadline of 50 ms");
    }

    #[test]
    fn an_overload_is_not_hidden() {
        // Twenty times the capacity of one worker, without grace: most requests
        // are never answered.
        let config = ServiceConfig {
            grace: Duration::ZERO,
            ..short(MS, Duration::from_millis(20))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!(report.requests, 400);
        assert_eq!(report.answered + report.unfinished, report.requests);
        assert!(report.unfinished > 0, "{report:?}");
        assert_eq!(report.failures, report.late + report.unfinished);
    }

    #[test]
    fn stopped_run_reports_its_measurements() {
        let config = ServiceConfig {
            duration: Duration::from_secs(3_600),
            ..short(MS, Duration::from_micros(10))
        };
        let run = Service::start(&config).unwrap();
        wait_until("requests are measured", || {
            run.measure.totals().requests() >= 20
        });
        run.stop();
        let report = run.finish().unwrap();
        assert_eq!(report.ending, Ending::Stopped);
        assert!(report.requests >= 20 && report.measured_seconds < 3_600.0);
        assert_eq!(report.unfinished, 0);
    }
}
