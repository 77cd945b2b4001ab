//! The `load` commands: arguments, output, exit codes.
//!
//! A binary takes [`Args`] into its own command line and calls [`run`].

mod arrivals;
mod output;
mod service;

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use crate::burn::{self, BurnConfig};
use crate::error::LoadError;
use crate::limits::THREADS_MAX;
use crate::machine::available_cpus;
use crate::report::Ending;
use crate::steady::{self, SteadyConfig};
use crate::stop::Stop;
use crate::storm::{self, StormConfig};
use output::print;
use service::ServiceArgs;

/// Measurable workloads.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print each report, a JSON object (schema plimsoll.load/2), in one line
    #[arg(long, global = true, display_order = 1_000)]
    json: bool,
}

/// The workloads.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve requests whose arrivals do not depend on the service; report their
    /// latency
    #[command(after_help = service::EXAMPLES)]
    Service(ServiceArgs),
    /// Burn CPU time and count the work done
    #[command(after_help = BURN_EXAMPLES)]
    Burn(BurnArgs),
    /// Run many short-lived processes
    #[command(after_help = STORM_EXAMPLES)]
    Storm(StormArgs),
    /// Hold a share of the whole machine, with a thread bound to each CPU
    #[command(after_help = STEADY_EXAMPLES)]
    Steady(SteadyArgs),
}

const BURN_EXAMPLES: &str = "Examples:
  plimsoll load burn --threads 4 --duration 10s
  plimsoll load burn --threads 4 --report-every 1s --json";

const STORM_EXAMPLES: &str = "Examples:
  plimsoll load storm --processes 2000 --cpu-total 1.9s
  plimsoll load storm --processes 500 --cpu-each 2ms --parallel 4";

const STEADY_EXAMPLES: &str = "Examples:
  plimsoll load steady --percent 40 --duration 10s
  plimsoll load steady --percent 18 --grain 10ms --json";

#[derive(Debug, clap::Args)]
struct BurnArgs {
    /// Number of burners, 1 to 1024 [default: one per CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    threads: Option<usize>,
    /// Duration of the run, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
    /// Also print an object of intermediate figures at this interval
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    report_every: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("cpu").required(true))]
struct StormArgs {
    /// Number of processes, 1 to 1000000
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        allow_hyphen_values = true
    )]
    processes: u32,
    /// CPU time of all processes together
    #[arg(long, value_name = "TIME", group = "cpu", value_parser = duration, allow_hyphen_values = true)]
    cpu_total: Option<Duration>,
    /// CPU time of each process, 1us to 60s
    #[arg(long, value_name = "TIME", group = "cpu", value_parser = duration, allow_hyphen_values = true)]
    cpu_each: Option<Duration>,
    /// Processes alive at once, 1 to 256
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_hyphen_values = true
    )]
    parallel: usize,
}

#[derive(Debug, clap::Args)]
struct SteadyArgs {
    /// Load in percent of all CPUs in the affinity mask, 0 to 100
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    percent: f64,
    /// Period in which each CPU is busy for its share, 100us to 1s
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = duration, allow_hyphen_values = true)]
    grain: Duration,
    /// Duration of the run, up to 24h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    duration: Duration,
}

/// Runs a command until its end, SIGINT or SIGTERM, and prints its report.
///
/// The exit code is 0; 1 if processes failed; 130 or 143 after SIGINT or
/// SIGTERM.
///
/// # Errors
/// The failure that kept the command from starting or measuring, as one line of
/// text.
pub fn run(args: Args) -> Result<ExitCode, LoadError> {
    let stop = Stop::on_signals()?;
    let json = args.json;
    let mut good = true;
    match args.command {
        Command::Service(args) => service::run(&args, json, &stop)?,
        Command::Burn(args) => burn(&args, json, &stop)?,
        Command::Storm(args) => good = storm(&args, json, &stop)?,
        Command::Steady(args) => steady(&args, json, &stop)?,
    }
    Ok(match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None if good => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

fn burn(args: &BurnArgs, json: bool, stop: &Stop) -> Result<(), LoadError> {
    let config = BurnConfig {
        burners: args.threads.unwrap_or(available_cpus().min(THREADS_MAX)),
        duration: args.duration,
        report_every: args.report_every,
    };
    let report = burn::run(&config, stop, |so_far| print(json, "burn-progress", so_far))?;
    print(json, "burn", report)
}

/// Returns whether no process failed.
fn storm(args: &StormArgs, json: bool, stop: &Stop) -> Result<bool, LoadError> {
    let cpu_each = match (args.cpu_each, args.cpu_total) {
        (Some(each), _) => each,
        (None, total) => total.unwrap_or_default() / args.processes.max(1),
    };
    let config = StormConfig {
        processes: args.processes,
        cpu_each,
        parallel: args.parallel,
    };
    let report = storm::run(&config, stop)?;
    let good = report.failed == 0 || report.ending == Ending::Stopped;
    print(json, "storm", report)?;
    Ok(good)
}

fn steady(args: &SteadyArgs, json: bool, stop: &Stop) -> Result<(), LoadError> {
    let config = SteadyConfig {
        percent: args.percent,
        grain: args.grain,
        duration: args.duration,
    };
    print(json, "steady", steady::run(&config, stop)?)
}

/// Parses a duration with its unit. The workloads check the range, which
/// differs between them.
///
/// # Errors
/// What is wrong with `text`, and what is allowed.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|e| {
        format!("{e}; allowed is a number with a unit, such as 500us, 2ms, 1.5s or 1m")
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    /// A program that has only these commands.
    #[derive(Debug, Parser)]
    #[command(name = "load")]
    struct Standalone {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Standalone::try_parse_from(line.split(' ')).map(|s| s.args)
    }

    /// Error text of a command line that must fail, in parsing or in checking.
    fn refusal(line: &str) -> String {
        match parse(line) {
            Err(error) => error.to_string(),
            Ok(args) => run(args).unwrap_err().to_string(),
        }
    }

    #[test]
    fn definition_is_consistent() {
        Standalone::command().debug_assert();
    }

    #[test]
    fn json_is_accepted_before_and_after_the_command() {
        assert!(parse("load --json burn").unwrap().json);
        assert!(parse("load burn --json").unwrap().json);
    }

    #[test]
    fn bad_input_names_the_field_and_the_value() {
        for (line, field, value) in [
            ("load burn --threads -1", "threads", "-1"),
            ("load burn --threads 0", "threads", "0"),
            ("load burn --threads 1025", "threads", "1025"),
            ("load burn --duration 0s", "duration", "0s"),
            ("load burn --duration 25h", "duration", "1day 1h"),
            ("load burn --duration 5parsec", "duration", "5parsec"),
            ("load storm --cpu-total 0s", "cpu-each", "0s"),
            ("load storm --processes 0 --cpu-total 1s", "processes", "0"),
            ("load storm --cpu-each 1ms --parallel 0", "parallel", "0"),
            (
                "load storm --cpu-each 1ms --parallel 257",
                "parallel",
                "257",
            ),
            ("load steady --percent NaN", "percent", "NaN"),
            ("load steady --percent -5", "percent", "-5"),
            ("load steady --percent x", "percent", "x"),
            ("load steady --percent 100.5", "percent", "100.5"),
            ("load steady --percent 5 --grain 0s", "grain", "0s"),
            ("load service --rate 0", "rate", "0"),
            ("load service --rate NaN", "rate", "NaN"),
            ("load service --service const:0s", "service", "0s"),
            ("load service --service gauss:1ms", "service", "gauss:1ms"),
            ("load service --arrivals sometimes", "arrivals", "sometimes"),
            ("load service --arrivals bursty", "burst-size", "none"),
            (
                "load service --arrivals poisson --burst-size 5",
                "arrivals",
                "poisson",
            ),
            (
                "load service --burst-size 0 --burst-every 1s",
                "burst-size",
                "0",
            ),
            ("load service --workers 0", "workers", "0"),
            ("load service --duration 0s", "duration", "0s"),
            ("load service --warmup 48h", "warmup", "2days"),
            ("load service --deadline 0s", "deadline", "0s"),
            ("load service --series-interval 0s", "series-interval", "0s"),
            (
                "load service --rate 1000000 --duration 24h",
                "rate × (warmup + duration)",
                "86400500000",
            ),
        ] {
            let text = refusal(line);
            let first = text.lines().next().unwrap_or_default();
            assert!(first.contains(field), "{line}: {text}");
            assert!(first.contains(&format!("'{value}'")), "{line}: {text}");
        }
        assert!(refusal("load storm").contains("--cpu-total"));
    }
}
