//! The request service: an open-loop generator, a FIFO and worker threads that burn CPU time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::{CpuClock, burn, precise_timers};
use crate::error::LoadError;
use crate::ledger::{Ledger, Run};
use crate::limits::{DURATION_MAX, REQUESTS_MAX, SERIES_INTERVAL_MIN, SERIES_POINTS_MAX};
use crate::machine::{one_per_cpu, spawn, threads};
use crate::queue::Queue;
use crate::report::ServiceReport;
use crate::requests::Requests;
use crate::stop::Stop;
use crate::units::{seconds, time_between};

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
/// [`LoadError::ThreadDied`] if that of the generator panicked.
pub(crate) fn run(config: &ServiceArgs, stop: &Stop) -> Result<ServiceReport, LoadError> {
    config.check()?;
    let served = Served {
        ledger: Ledger::new(&config.requests),
        queue: Queue::default(),
        is_over: AtomicBool::new(false),
    };
    let run = thread::scope(|scope| {
        let mut workers = 0..config.workers.unwrap_or_else(one_per_cpu);
        let started =
            workers.try_for_each(|_| spawn(scope, stop, "load-worker", || served.work()).map(drop));
        let run = started.and_then(|()| {
            let generate = || served.generate(config.grace);
            let generator = spawn(scope, stop, "load-generator", generate)?;
            if stop.wait(config.requests.warmup + config.requests.duration) {
                served.ledger.stop();
            }
            let run = generator.join();
            run.unwrap_or(Err(LoadError::ThreadDied { role: "generator" }))
        });
        served.is_over.store(true, Ordering::Relaxed);
        served.queue.close();
        run
    })?;
    Ok(run.report(config.series_interval))
}

/// State that the generator and the workers share.
#[derive(Debug)]
struct Served {
    ledger: Ledger,
    /// Numbers and demands in ns of the requests.
    queue: Queue<(u64, u64)>,
    /// Set when the grace is over: workers abandon their current request.
    is_over: AtomicBool,
}

impl Served {
    /// Gives the requests to the workers and waits for the answers.
    fn generate(&self, grace: Duration) -> Result<Run, LoadError> {
        self.ledger.run(grace, |number, demand_ns| {
            self.queue.push((number, demand_ns));
            Ok(())
        })
    }

    /// Main loop of a worker: takes requests in order and burns their CPU time.
    fn work(&self) {
        precise_timers();
        while let Some((number, demand_ns)) = self.queue.pop() {
            if burn(CpuClock::Thread, demand_ns, &self.is_over).complete {
                self.ledger.answered(number, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;
    use crate::report::Ending;

    #[test]
    fn every_request_is_served_and_its_cpu_time_burnt() {
        let config = ServiceArgs {
            workers: Some(3),
            requests: Requests {
                arrivals: Arrivals::in_bursts(1, Duration::from_millis(1)),
                service: "const:200us".parse().unwrap(),
                duration: Duration::from_millis(400),
                warmup: Duration::from_millis(100),
                deadline: Duration::from_secs(3_600),
                seed: 1,
            },
            grace: Duration::from_secs(3_600),
            series_interval: Some(Duration::from_millis(100)),
        };
        let report = run(&config, &Stop::default()).unwrap();
        // Requests arrive at 0, 1, ... ms; those from 100 ms to 500 ms are
        // measured.
        assert_eq!((report.requests, report.failures), (400, 0));
        assert_eq!(report.ending, Ending::Complete);
        assert!(report.latency.p50_us >= 200.0);
        let counts: Vec<u64> = report.series.iter().map(|p| p.count).collect();
        assert_eq!(counts, [100; 4]);
    }
}
