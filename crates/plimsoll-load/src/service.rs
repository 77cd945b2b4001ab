//! The request service: an open-loop generator, a FIFO and worker threads that burn CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::{CpuClock, burn, precise_timers};
use crate::error::LoadError;
use crate::limits::{
    DURATION_MAX, QUEUE_MAX, REQUESTS_MAX, SERIES_INTERVAL_MIN, SERIES_POINTS_MAX,
};
use crate::machine::{one_per_cpu, threads};
use crate::measure::{Measure, Request, Totals};
use crate::openloop::{Lag, new_measure, spawn, spawn_generator};
use crate::queue::Queue;
use crate::report::{Ending, Latency, ServiceReport};
use crate::requests::Requests;
use crate::stop::Stop;
use crate::units::{micros, nanos, ratio, seconds, time_between};

/// Interval at which [`Service::finish`] checks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub(crate) struct ServiceArgs {
    /// Worker threads, 1 to 1024 [default: one per CPU]
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        allow_hyphen_values = true
    )]
    workers: Option<usize>,
    #[command(flatten)]
    requests: Requests,
    /// Time to wait for answers after the end, up to 24h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        value_parser = time_between(Duration::ZERO, DURATION_MAX),
        allow_hyphen_values = true
    )]
    grace: Duration,
    /// Add latency over time to the JSON, in intervals of this length, 1ms or more
    #[arg(
        long,
        value_name = "TIME",
        value_parser = time_between(SERIES_INTERVAL_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    series_interval: Option<Duration>,
}

impl ServiceArgs {
    /// Checks that the figures of all requests find room.
    fn check(&self) -> Result<(), LoadError> {
        let requests = &self.requests;
        let count = requests.arrivals.mean_rate() * seconds(requests.end_ns());
        if count > REQUESTS_MAX {
            return Err(LoadError::Invalid {
                field: "rate × (warmup + duration)",
                value: count.to_string(),
                allowed: format!("up to {REQUESTS_MAX} requests"),
            });
        }
        let interval = self.series_interval.unwrap_or(requests.duration);
        let points = requests.duration.as_nanos().div_ceil(interval.as_nanos());
        if points > SERIES_POINTS_MAX {
            return Err(LoadError::Invalid {
                field: "duration / series-interval",
                value: points.to_string(),
                allowed: format!("up to {SERIES_POINTS_MAX} intervals"),
            });
        }
        Ok(())
    }
}

/// Serves requests until the end of the run, or until `stop` is set.
///
/// # Errors
/// [`LoadError::Invalid`] for too many figures, [`LoadError::Io`] if a thread can't be started,
/// [`LoadError::ThreadDied`] if one panicked.
pub(crate) fn run(config: &ServiceArgs, stop: &Stop) -> Result<ServiceReport, LoadError> {
    config.check()?;
    let service = Service::start(config)?;
    if stop.wait(config.requests.warmup + config.requests.duration) {
        service.stop();
    }
    service.finish()
}

/// A running service. Dropping it ends the run without a report.
struct Service {
    config: ServiceArgs,
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
    /// [`LoadError::Io`] if a thread can't be started.
    fn start(config: &ServiceArgs) -> Result<Self, LoadError> {
        let workers = config.workers.unwrap_or_else(one_per_cpu);
        let mut service = Self {
            config: config.clone(),
            measure: new_measure(&config.requests, config.series_interval, workers)?,
            shared: Arc::new(Shared {
                queue: Queue::new(QUEUE_MAX),
                give_up: AtomicBool::new(false),
            }),
            workers: Vec::with_capacity(workers),
            generator: None,
        };
        for lane in 0..workers {
            let shared = Arc::clone(&service.shared);
            let measure = Arc::clone(&service.measure);
            let worker = spawn("load-worker", move || serve(lane, &shared, &measure))?;
            service.workers.push(worker);
        }
        let shared = Arc::clone(&service.shared);
        let submit = move |request| shared.queue.push(request);
        let generator = spawn_generator(&config.requests, &service.measure, workers, submit)?;
        service.generator = Some(generator);
        Ok(service)
    }

    /// Ends the run now: no more arrivals. [`Service::finish`] still waits for
    /// the grace.
    fn stop(&self) {
        self.measure.timing.end_early();
    }

    /// Waits for the end of the run and for outstanding answers (no longer than the grace), then
    /// reports.
    ///
    /// # Errors
    /// [`LoadError::ThreadDied`] if a thread of the run panicked.
    fn finish(mut self) -> Result<ServiceReport, LoadError> {
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
        let workers = self.workers.len();
        self.give_up()?;
        let lag = match self.generator.take().map(JoinHandle::join) {
            Some(Ok(lag)) => lag,
            _ => return Err(LoadError::ThreadDied { role: "generator" }),
        };
        Ok(self.report(workers, &lag, ending))
    }

    fn is_generating(&self) -> bool {
        self.generator.as_ref().is_some_and(|g| !g.is_finished())
    }

    fn ending(&self) -> Ending {
        if self.measure.timing.end_ns() < self.config.requests.end_ns() {
            Ending::Stopped
        } else {
            Ending::Complete
        }
    }

    /// Ends the workers and records all pending requests as unfinished.
    fn give_up(&mut self) -> Result<(), LoadError> {
        let generator_lane = self.workers.len();
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

    fn report(&self, workers: usize, lag: &Lag, ending: Ending) -> ServiceReport {
        let totals: &Totals = &self.measure.totals();
        let timing = &self.measure.timing;
        let measured_ns = timing.end_ns().saturating_sub(timing.warmup_ns);
        let failures = totals.late + totals.unfinished;
        let requests = totals.requests();
        let asked = &self.config.requests;
        let per_second = |count: u64| ratio(count as f64, seconds(measured_ns));
        let lag_us = |q| micros(lag.value_at_quantile(q).min(lag.max()));
        ServiceReport {
            seed: asked.seed,
            arrivals: asked.arrivals.to_string(),
            service: asked.service.to_string(),
            workers,
            warmup_seconds: asked.warmup.as_secs_f64(),
            measured_seconds: seconds(measured_ns),
            deadline_us: micros(nanos(asked.deadline)),
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
            rate_asked_per_second: asked.arrivals.mean_rate(),
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

    fn short(every: Duration, demand: Duration) -> ServiceArgs {
        ServiceArgs {
            workers: Some(1),
            requests: Requests {
                arrivals: Arrivals::in_bursts(1, every),
                service: Demand::Constant { value: demand },
                duration: Duration::from_millis(400),
                warmup: Duration::ZERO,
                ..Requests::default()
            },
            grace: Duration::from_secs(3_600),
            series_interval: None,
        }
    }

    #[test]
    fn every_request_is_served_and_its_cpu_time_burnt() {
        let mut config = short(MS, Duration::from_micros(200));
        config.series_interval = Some(Duration::from_millis(100));
        config.requests.warmup = Duration::from_millis(100);
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
        let mut config = short(MS, Duration::from_millis(200));
        config.requests.arrivals = Arrivals::in_bursts(4, Duration::from_secs(60));
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
        let config = ServiceArgs {
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
        let mut config = short(MS, Duration::from_micros(10));
        config.requests.duration = Duration::from_secs(3_600);
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
