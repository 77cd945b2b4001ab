//! The request service: an open-loop generator, a FIFO and worker threads that burn CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::arrivals::Arrivals;
use crate::clock::{CpuClock, burn, precise_timers};
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::{
    DURATION_MAX, DURATION_MIN, QUEUE_MAX, REQUESTS_MAX, SERIES_INTERVAL_MIN, SERIES_POINTS_MAX,
    THREADS_MAX,
};
use crate::machine::available_cpus;
use crate::measure::Measure;
use crate::openloop::{Sink, new_measure, spawn};
use crate::queue::Queue;
use crate::run::{Backend, OpenLoop};
use crate::schedule::{Request, Requests};
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

/// The service in one process.
#[derive(Debug)]
pub struct Service;

impl Service {
    /// Starts workers and generator. The run begins a few milliseconds later.
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for a setting out of range, [`LoadError::Io`] if a thread can't be
    /// started.
    pub fn start(config: &ServiceConfig) -> Result<OpenLoop, LoadError> {
        config.validate()?;
        let measure = new_measure(config, config.workers)?;
        let mut local = Local {
            shared: Arc::new(Shared {
                queue: Queue::new(QUEUE_MAX),
                give_up: AtomicBool::new(false),
            }),
            workers: Vec::with_capacity(config.workers),
        };
        for lane in 0..config.workers {
            let (shared, measure) = (Arc::clone(&local.shared), Arc::clone(&measure));
            let worker = spawn("load-worker", move || serve(lane, &shared, &measure))?;
            local.workers.push(worker);
        }
        let sink = QueueSink(Arc::clone(&local.shared));
        OpenLoop::start(
            config,
            Some(config.workers),
            measure,
            config.workers,
            sink,
            Box::new(local),
        )
    }
}

/// State shared by the generator and the workers.
#[derive(Debug)]
struct Shared {
    queue: Queue<Request>,
    /// Set when the grace is over: workers abandon their current request.
    give_up: AtomicBool,
}

struct QueueSink(Arc<Shared>);

impl Sink for QueueSink {
    fn submit(&self, request: Request) -> Result<(), Request> {
        self.0.queue.push(request)
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

struct Local {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Backend for Local {
    fn is_lost(&self) -> bool {
        false
    }

    fn give_up(&mut self, measure: &Measure, lane: usize) -> Result<(), LoadError> {
        self.shared.give_up.store(true, Ordering::Relaxed);
        for request in self.shared.queue.close() {
            measure.unfinished(lane, request, 0);
        }
        for worker in self.workers.drain(..) {
            worker
                .join()
                .map_err(|_| LoadError::ThreadDied { role: "worker" })?;
        }
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.shared.give_up.store(true, Ordering::Relaxed);
        self.shared.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Ending;

    fn short(rate: f64, demand: Duration) -> ServiceConfig {
        ServiceConfig {
            arrivals: Arrivals::Uniform { rate },
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
            ..short(1_000.0, Duration::from_micros(200))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        // Requests arrive at 1, 2, ... ms; those from 100 ms to 500 ms are
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
                spread: Duration::ZERO,
                base_rate: 0.0,
            },
            ..short(1.0, Duration::from_millis(200))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!((report.requests, report.answered), (4, 4));
        // They need 200 ms each and arrived together: the n-th waits for n − 1
        // others.
        assert!(report.latency.max_us >= 800_000.0, "{report}");
        assert!(report.latency.p50_us >= 399_000.0, "{report}");
        assert_eq!(report.failures, 4, "all are over the deadline of 50 ms");
    }

    #[test]
    fn an_overload_is_not_hidden() {
        // Twenty times the capacity of one worker, without grace: most requests
        // are never answered.
        let config = ServiceConfig {
            grace: Duration::ZERO,
            ..short(1_000.0, Duration::from_millis(20))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!(report.requests, 399);
        assert_eq!(report.answered + report.unfinished, report.requests);
        assert!(report.unfinished >= 300, "{report}");
        assert_eq!(report.failures, report.late + report.unfinished);
        assert!(report.rate_achieved_per_second < report.rate_arrived_per_second);
    }

    #[test]
    fn full_queue_loses_no_request() {
        // More requests at once than the queue holds; the last ones wait in the
        // generator.
        let config = ServiceConfig {
            arrivals: Arrivals::Bursts {
                size: 100_000,
                every: Duration::from_secs(3_600),
                spread: Duration::ZERO,
                base_rate: 0.0,
            },
            duration: Duration::from_millis(50),
            grace: Duration::from_millis(50),
            ..short(1.0, Duration::from_millis(1))
        };
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!(report.requests, 100_000);
        assert!(report.unfinished > 90_000);
    }

    #[test]
    fn stopped_run_reports_its_measurements() {
        let config = ServiceConfig {
            duration: Duration::from_secs(3_600),
            ..short(1_000.0, Duration::from_micros(10))
        };
        let run = Service::start(&config).unwrap();
        while run.snapshot().requests < 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!run.is_over());
        run.stop();
        assert!(run.is_over());
        let report = run.finish().unwrap();
        assert_eq!(report.ending, Ending::Stopped);
        assert!(report.requests >= 20 && report.measured_seconds < 3_600.0);
        assert_eq!(report.unfinished, 0);
    }

    #[test]
    fn same_seed_gives_the_same_run() {
        let config = ServiceConfig {
            arrivals: Arrivals::Poisson { rate: 2_000.0 },
            demand: "exp:20us".parse().unwrap(),
            seed: 99,
            ..short(1.0, Duration::from_micros(20))
        };
        let run = || Service::start(&config).unwrap().finish().unwrap();
        let (one, two) = (run(), run());
        assert_eq!(one.requests, two.requests);
        assert_eq!(one.cpu_asked_seconds, two.cpu_asked_seconds);
    }

    #[test]
    fn trace_replaces_the_draws() {
        let text = "arrival,cpu\n10ms,100us\n20ms,200us\n60ms,300us\n2s,1ms\n";
        let config = ServiceConfig {
            trace: Some(Arc::new(Trace::parse("t.csv", text).unwrap())),
            warmup: Duration::from_millis(15),
            // Invalid, but not checked with a trace.
            ..short(0.0, Duration::ZERO)
        };
        let requests: Vec<u64> = config.requests(7).unwrap().map(|r| r.demand_ns).collect();
        assert_eq!(requests, [100_000, 200_000, 300_000, 1_000_000]);
        let report = Service::start(&config).unwrap().finish().unwrap();
        assert_eq!((report.requests, report.unfinished), (2, 0));
        assert!((report.cpu_asked_seconds - 0.000_5).abs() < 1e-12);
        assert!((report.rate_asked_per_second - 5.0).abs() < 1e-9);
        assert_eq!(report.arrivals, "trace t.csv");
    }

    #[test]
    fn bad_settings_name_the_field() {
        let good = ServiceConfig::default();
        let cases: [(&str, ServiceConfig); 6] = [
            (
                "workers",
                ServiceConfig {
                    workers: 0,
                    ..good.clone()
                },
            ),
            (
                "duration",
                ServiceConfig {
                    duration: Duration::ZERO,
                    ..good.clone()
                },
            ),
            (
                "deadline",
                ServiceConfig {
                    deadline: Duration::ZERO,
                    ..good.clone()
                },
            ),
            (
                "warmup",
                ServiceConfig {
                    warmup: DURATION_MAX * 2,
                    ..good.clone()
                },
            ),
            (
                "series-interval",
                ServiceConfig {
                    series_interval: Some(Duration::ZERO),
                    ..good.clone()
                },
            ),
            (
                "rate × (warmup + duration)",
                ServiceConfig {
                    arrivals: Arrivals::Poisson { rate: 1e6 },
                    duration: DURATION_MAX,
                    ..good.clone()
                },
            ),
        ];
        for (field, config) in cases {
            let text = config.validate().unwrap_err().to_string();
            assert!(text.starts_with(&format!("{field}: ")), "{text}");
        }
        good.validate().unwrap();
    }
}
