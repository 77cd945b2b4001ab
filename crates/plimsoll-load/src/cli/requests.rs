//! The commands `service`, `serve` and `request`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::duration;
use super::output::{print, watch};
use crate::arrival_options::{ArrivalKind, ArrivalOptions};
use crate::arrivals::Arrivals;
use crate::config::ServiceConfig;
use crate::demand::Demand;
use crate::error::LoadError;
use crate::limits::{DURATION_MAX, DURATION_MIN, THREADS_MAX};
use crate::machine::available_cpus;
use crate::report::{Ending, ServiceReport};
use crate::run::OpenLoop;
use crate::service::Service;
use crate::stop::Stop;
use crate::tcp::{self, HttpConfig, Server, ServerConfig};
use crate::trace::Trace;
use crate::units::check_duration;

pub(super) const SERVICE_EXAMPLES: &str = "\
Latency counts from the time at which a request was to arrive, never from when the generator or a
worker woke up. Requests over the deadline and unfinished ones are failures, and their times are
in the percentiles.

Demands (CPU time of a request):
  const:TIME              exp:MEAN                 uniform:LEAST,MOST
  lognormal:MEAN,SIGMA    pareto:MEAN,ALPHA        bimodal:SHORT,LONG,SHARE_OF_LONG

A trace has a first line `arrival,cpu` and a line for each request, in order of arrival: when it
arrives after the start of the run (warm-up included), and the CPU time that it needs. A plain
number is in seconds; units are allowed, as in `12.5ms,300us`.

Examples:
  plimsoll load service --rate 300 --service const:300us --duration 10s
  plimsoll load service --rate 500 --service exp:1ms --series latency.csv --series-interval 100ms
  plimsoll load service --burst-size 40 --burst-every 1s --burst-spread 10ms --rate 50 --json
  plimsoll load service --trace requests.csv --duration 60s";

pub(super) const SPLIT_EXAMPLES: &str = "Examples:
  plimsoll load serve --listen 127.0.0.1:7117 --workers 2
  plimsoll load request --connect 127.0.0.1:7117 --rate 300 --service exp:1ms --duration 10s
  plimsoll load request --connect 127.0.0.1:80 --http /index.html --rate 300";

#[derive(Debug, clap::Args)]
pub(super) struct ServiceArgs {
    /// Worker threads, 1 to 1024 [default: one per CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<usize>,
    #[command(flatten)]
    stream: StreamArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Loopback address and port to listen on; port 0 picks a free one (printed
    /// on standard error)
    #[arg(long, value_name = "ADDRESS", value_parser = |t: &str| tcp::parse_address("listen", t))]
    listen: SocketAddr,
    /// Worker threads, 1 to 1024 [default: one per CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    workers: Option<usize>,
    /// End after this time, up to 24h [default: at SIGINT or SIGTERM, or after
    /// 24h]
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    duration: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(super) struct RequestArgs {
    /// Address of the `serve`, or of a web server; only loopback is accepted
    #[arg(long, value_name = "ADDRESS", value_parser = |t: &str| tcp::parse_address("connect", t))]
    connect: SocketAddr,
    /// Get this page from a web server instead, over HTTP/1.1
    #[arg(long, value_name = "PATH", conflicts_with_all = ["service", "trace"])]
    http: Option<String>,
    /// Connections to the web server, each with one request at a time, 1 to 64
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        requires = "http",
        allow_hyphen_values = true
    )]
    connections: usize,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Parameters of the requests and of the measurement.
#[derive(Debug, clap::Args)]
struct StreamArgs {
    /// Arrival process [default: poisson, or bursty if --burst-size is given]
    #[arg(long, value_enum)]
    arrivals: Option<ArrivalKind>,
    /// Mean requests per second, 0.001 to 1000000 [default: 300, or 0 with
    /// bursts]
    #[arg(long, value_name = "PER_SECOND", allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Requests in one burst, 1 to 100000
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    burst_size: Option<u32>,
    /// Time from one burst to the next, 1ms or more
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    burst_every: Option<Duration>,
    /// Time over which the requests of a burst are spread; 0s for all at once
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    burst_spread: Option<Duration>,
    /// Distribution of the CPU time of a request, 1us to 10s; see below
    #[arg(long, value_name = "DEMAND", default_value = "const:300us")]
    service: Demand,
    /// Read arrivals and CPU times from this CSV file; see below
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["arrivals", "rate", "burst_size", "burst_every", "burst_spread", "service", "seed"]
    )]
    trace: Option<PathBuf>,
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

impl StreamArgs {
    fn arrivals(&self) -> Result<Arrivals, LoadError> {
        let options = ArrivalOptions {
            kind: self.arrivals,
            rate: self.rate,
            burst_size: self.burst_size,
            burst_every: self.burst_every,
            burst_spread: self.burst_spread,
        };
        options.arrivals()
    }

    fn config(&self, workers: Option<usize>) -> Result<ServiceConfig, LoadError> {
        let trace = self.trace.as_deref().map(Trace::read).transpose()?;
        let interval = self.series.as_ref().map(|_| Duration::from_millis(250));
        Ok(ServiceConfig {
            arrivals: self.arrivals()?,
            demand: self.service,
            trace: trace.map(Arc::new),
            workers: workers.unwrap_or(available_cpus().min(THREADS_MAX)),
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

pub(super) fn service(args: &ServiceArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let config = args.stream.config(args.workers)?;
    config.validate()?;
    let file = args.stream.series_file()?;
    let report = follow(Service::start(&config)?, stop)?;
    conclude(&args.stream, file, json, "service", report)
}

pub(super) fn request(args: &RequestArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let config = args.stream.config(None)?;
    config.validate()?;
    let run = match &args.http {
        None => tcp::request(args.connect, &config)?,
        Some(path) => {
            let page = HttpConfig {
                path: path.clone(),
                connections: args.connections,
            };
            tcp::http(args.connect, &page, &config)?
        }
    };
    let file = args.stream.series_file()?;
    let report = follow(run, stop)?;
    conclude(&args.stream, file, json, "request", report)
}

fn follow(run: OpenLoop, stop: &Stop) -> Result<ServiceReport, LoadError> {
    watch(
        stop,
        || run.is_over(),
        || {
            let so_far = run.snapshot();
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
        run.stop();
    }
    run.finish()
}

fn conclude(
    stream: &StreamArgs,
    file: Option<std::fs::File>,
    json: bool,
    command: &str,
    report: ServiceReport,
) -> Result<bool, LoadError> {
    if let Some(mut file) = file {
        file.write_all(report.series_csv().as_bytes())
            .map_err(|e| LoadError::io(stream.series_doing(), e))?;
    }
    let good = report.ending != Ending::ConnectionLost;
    print(json, command, report)?;
    Ok(good)
}

pub(super) fn serve(args: &ServeArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let duration = args.duration.unwrap_or(DURATION_MAX);
    check_duration("duration", duration, (DURATION_MIN, DURATION_MAX))?;
    let server = Server::start(&ServerConfig {
        listen: args.listen,
        workers: args.workers.unwrap_or(available_cpus().min(THREADS_MAX)),
    })?;
    // Not part of the result, but a client needs the address. A closed standard
    // error does not end the run.
    let _ = writeln!(std::io::stderr(), "listening on {}", server.address());
    let started = Instant::now();
    watch(
        stop,
        || started.elapsed() >= duration,
        || format!("{} requests", server.snapshot().requests),
    );
    print(json, "serve", server.finish()?)?;
    Ok(true)
}
