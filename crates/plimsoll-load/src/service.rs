//! The request service: an open-loop generator, a FIFO and worker threads that burn CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::clock::{CpuClock, burn, precise_timers};
use crate::config::ServiceConfig;
use crate::error::LoadError;
use crate::limits::QUEUE_MAX;
use crate::measure::Measure;
use crate::openloop::{Sink, new_measure, spawn};
use crate::queue::Queue;
use crate::run::{Backend, OpenLoop};
use crate::schedule::Request;

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
    use std::time::Duration;

    use super::*;
    use crate::arrivals::Arrivals;
    use crate::demand::Demand;
    use crate::limits::DURATION_MAX;
    use crate::report::Ending;
    use crate::wait::wait_until;

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
        assert!(report.unfinished > 0, "{report}");
        assert_eq!(report.failures, report.late + report.unfinished);
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
        wait_until("requests are measured", || run.snapshot().requests >= 20);
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
