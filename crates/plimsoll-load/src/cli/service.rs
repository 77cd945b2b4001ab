//! The command `service`.

use std::time::Duration;

use super::arrivals::ArrivalArgs;
use super::duration;
use super::output::print;
use crate::config::ServiceConfig;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::THREADS_MAX;
use crate::machine::available_cpus;
use crate::service::Service;
use crate::stop::Stop;

pub(super) const EXAMPLES: &str = "\
Latency counts from the time at which a request was to arrive, never from when the generator or a
worker woke up. Requests over the deadline and unfinished ones are failures, and their times are
in the percentiles.

Examples:
  plimsoll load service --rate 300 --service const:300us --duration 10s
  plimsoll load service --rate 500 --service exp:1ms --series-interval 100ms --json
  plimsoll load service --burst-size 40 --burst-every 1s --json";

#[derive(Debug, clap::Args)]
pub(super) struct ServiceArgs {
    /// Worker threads, 1 to 1024 [default: one per CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<usize>,
    #[command(flatten)]
    arrivals: ArrivalArgs,
    /// CPU time of a request, 1us to 10s: const:TIME, or exp:MEAN with an
    /// exponential distribution
    #[arg(long, value_name = "DEMAND", default_value = "const:300us")]
    service: Demand,
    /// Measured time, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
    /// Warm-up, in which requests are served but not measured
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration, allow_hyphen_values = true)]
    warmup: Duration,
    /// Deadline: requests answered later than this count as failures
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = duration, allow_hyphen_values = true)]
    deadline: Duration,
    /// Time to wait for answers after the end
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, allow_hyphen_values = true)]
    grace: Duration,
    /// Seed of arrivals and demands: the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Add latency over time to the JSON, in intervals of this length, 1ms or more
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    series_interval: Option<Duration>,
}

impl ServiceArgs {
    fn config(&self) -> Result<ServiceConfig, LoadError> {
        Ok(ServiceConfig {
            arrivals: self.arrivals.arrivals()?,
            demand: self.service,
            workers: self.workers.unwrap_or(available_cpus().min(THREADS_MAX)),
            duration: self.duration,
            warmup: self.warmup,
            deadline: self.deadline,
            grace: self.grace,
            seed: self.seed,
            series_interval: self.series_interval,
        })
    }
}

pub(super) fn run(args: &ServiceArgs, json: bool, stop: &Stop) -> Result<(), LoadError> {
    let service = Service::start(&args.config()?)?;
    if stop.wait(args.warmup + args.duration) {
        service.stop();
    }
    print(json, "service", service.finish()?)
}
