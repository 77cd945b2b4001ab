//! The command `service`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::arrivals::ArrivalArgs;
use super::duration;
use super::output::{print, watch};
use crate::config::ServiceConfig;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::THREADS_MAX;
use crate::machine::available_cpus;
use crate::report::ServiceReport;
use crate::service::Service;
use crate::stop::Stop;

pub(super) const EXAMPLES: &str = "\
Latency counts from the time at which a request was to arrive, never from when the generator or a
worker woke up. Requests over the deadline and unfinished ones are failures, and their times are
in the percentiles.

Examples:
  plimsoll load service --rate 300 --service const:300us --duration 10s
  plimsoll load service --rate 500 --service exp:1ms --series latency.csv --series-interval 100ms
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
    /// Write latency over time to this file, as CSV
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
    /// Interval of the series, 1ms or more [default: 250ms with --series]; also
    /// adds the series to the JSON
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    series_interval: Option<Duration>,
}

impl ServiceArgs {
    fn config(&self) -> Result<ServiceConfig, LoadError> {
        let interval = self.series.as_ref().map(|_| Duration::from_millis(250));
        Ok(ServiceConfig {
            arrivals: self.arrivals.arrivals()?,
            demand: self.service,
            workers: self.workers.unwrap_or(available_cpus().min(THREADS_MAX)),
            duration: self.duration,
            warmup: self.warmup,
            deadline: self.deadline,
            grace: self.grace,
            seed: self.seed,
            series_interval: self.series_interval.or(interval),
        })
    }

    /// Opens the file of the series before the run, so that an unwritable file
    /// fails early.
    fn series_file(&self) -> Result<Option<std::fs::File>, LoadError> {
        let open = |path: &PathBuf| {
            std::fs::File::create(path).map_err(|e| LoadError::io(self.series_doing(), e))
        };
        self.series.as_ref().map(open).transpose()
    }

    fn series_doing(&self) -> String {
        let path = self.series.as_deref().unwrap_or(std::path::Path::new(""));
        format!("writing the series to {}", path.display())
    }
}

pub(super) fn run(args: &ServiceArgs, json: bool, stop: &Stop) -> Result<(), LoadError> {
    let config = args.config()?;
    config.validate()?;
    let file = args.series_file()?;
    let report = follow(Service::start(&config)?, stop)?;
    if let Some(mut file) = file {
        file.write_all(report.series_csv().as_bytes())
            .map_err(|e| LoadError::io(args.series_doing(), e))?;
    }
    print(json, "service", report)
}

fn follow(service: Service, stop: &Stop) -> Result<ServiceReport, LoadError> {
    watch(
        stop,
        || service.is_over(),
        || {
            let so_far = service.snapshot();
            format!(
                "{} s, {} requests, {} failures, p99 {:.0} us",
                so_far.elapsed.as_secs(),
                so_far.requests,
                so_far.failures,
                so_far.latency.p99_us
            )
        },
    );
    if stop.is_set() {
        service.stop();
    }
    service.finish()
}
