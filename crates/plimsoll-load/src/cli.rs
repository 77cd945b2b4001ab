//! The `load` commands: arguments, output, exit codes.
//!
//! A binary takes [`LoadArgs`] into its own command line and calls [`run`].

use std::io::Write as _;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use crate::burn::{self, BurnArgs};
use crate::error::LoadError;
use crate::report::{Document, Ending};
use crate::service::{self, ServiceArgs};
use crate::steady::{self, SteadyArgs};
use crate::stop::Stop;
use crate::storm::{self, StormArgs};

/// Measurable workloads.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
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
    #[command(after_help = SERVICE_EXAMPLES)]
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

const SERVICE_EXAMPLES: &str = "\
Latency counts from the time at which a request was to arrive, never from when the generator or a
worker woke up. Requests over the deadline and unfinished ones are failures, and their times are
in the percentiles.

Examples:
  plimsoll load service --rate 300 --service const:300us --duration 10s
  plimsoll load service --rate 500 --service exp:1ms --series-interval 100ms --json
  plimsoll load service --burst-size 40 --burst-every 1s --json";

const BURN_EXAMPLES: &str = "Examples:
  plimsoll load burn --threads 4 --duration 10s
  plimsoll load burn --threads 4 --report-every 1s --json";

const STORM_EXAMPLES: &str = "Examples:
  plimsoll load storm --processes 2000 --cpu-total 1.9s
  plimsoll load storm --processes 500 --cpu-each 2ms --parallel 4";

const STEADY_EXAMPLES: &str = "Examples:
  plimsoll load steady --percent 40 --duration 10s
  plimsoll load steady --percent 18 --grain 10ms --json";

/// Runs a command until its end, SIGINT or SIGTERM, and prints its report.
///
/// The exit code is 0; 1 if processes failed; 130 or 143 after SIGINT or
/// SIGTERM.
///
/// # Errors
/// The failure that kept the command from starting or measuring, as one line of
/// text.
pub fn run(args: LoadArgs) -> Result<ExitCode, LoadError> {
    let stop = Stop::on_signals()?;
    let json = args.json;
    let mut good = true;
    match args.command {
        Command::Service(args) => print(json, "service", service::run(&args, &stop)?)?,
        Command::Burn(args) => {
            let tell = |so_far| print(json, "burn-progress", so_far);
            print(json, "burn", burn::run(&args, &stop, tell)?)?;
        }
        Command::Storm(args) => {
            let report = storm::run(&args, &stop)?;
            good = report.failed == 0 || report.ending == Ending::Stopped;
            print(json, "storm", report)?;
        }
        Command::Steady(args) => print(json, "steady", steady::run(&args, &stop)?)?,
    }
    Ok(match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None if good => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// Prints a report: with `json` in one line, else for a reader.
fn print<T: Serialize>(json: bool, command: &str, report: T) -> Result<(), LoadError> {
    let document = Document::new(command, report);
    let text = if json {
        serde_json::to_string(&document)
    } else {
        serde_json::to_string_pretty(&document)
    };
    let text = text.map_err(|e| LoadError::io("writing JSON", e))?;
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // The work is done, although the reader of the report has gone.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|e| LoadError::io("writing to standard output", e)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// A program that has only these commands.
    #[derive(Debug, Parser)]
    #[command(name = "load")]
    struct Standalone {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn parse(line: &str) -> Result<LoadArgs, clap::Error> {
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
    fn json_is_accepted_before_and_after_the_command() {
        assert!(parse("load --json burn").unwrap().json);
        assert!(parse("load burn --json").unwrap().json);
    }

    /// Command lines, and the field and the value that each is refused for.
    const BAD_INPUT: &str = "
burn --threads -1 => threads = -1
burn --threads 0 => threads = 0
burn --threads 1025 => threads = 1025
burn --duration 25h => duration = 25h
storm --cpu-each 0s => cpu-each = 0s
storm --cpu-total 1ms => cpu-total / processes = 500ns
storm --processes 0 --cpu-total 1s => processes = 0
storm --cpu-each 1ms --parallel 0 => parallel = 0
storm --cpu-each 1ms --parallel 257 => parallel = 257
steady --percent -5 => percent = -5
steady --percent 100.5 => percent = 100.5
steady --percent 5 --grain 0s => grain = 0s
service --rate 0 => rate = 0
service --service const:0s => service = const:0s
service --service const:5 => service = const:5
service --service exp:1ns => service = exp:1ns
service --service gauss:1ms => service = gauss:1ms
service --burst-size 0 --burst-every 1s => burst-size = 0
service --workers 0 => workers = 0
service --duration 0s => duration = 0s
service --warmup 48h => warmup = 48h
service --deadline 0s => deadline = 0s
service --series-interval 0s => series-interval = 0s
service --rate 1000000 --duration 24h => rate × (warmup + duration) = 86400500000
service --rate 1 --duration 24h --series-interval 1s => duration / series-interval = 86400
";

    #[test]
    fn bad_input_names_the_field_and_the_value() {
        for case in BAD_INPUT.trim().lines() {
            let (line, place) = case.split_once(" => ").unwrap();
            let (field, value) = place.split_once(" = ").unwrap();
            let text = refusal(&format!("load {line}"));
            let first = text.lines().next().unwrap_or_default();
            assert!(first.contains(field), "{line}: {text}");
            assert!(first.contains(&format!("'{value}'")), "{line}: {text}");
        }
        for (line, missing) in [
            ("load storm", "--cpu-total"),
            ("load service --burst-size 5", "--burst-every"),
            ("load service --burst-every 1s", "--burst-size"),
        ] {
            assert!(refusal(line).contains(missing), "{line}");
        }
        for (line, allowed) in [
            ("load steady --percent NaN", "a number from 0 to 100"),
            ("load burn --duration 0s", "a time from 1ms to 1day"),
            ("load service --service exp:11s", "a time from 1us to 10s"),
            ("load burn --duration 5parsec", "a number with a unit, such"),
        ] {
            let text = refusal(line);
            assert!(text.contains(&format!("allowed is {allowed}")), "{text}");
        }
        for bound in [
            "steady --percent 0",
            "steady --percent 100",
            "burn --duration 1day",
        ] {
            assert!(parse(&format!("load {bound}")).is_ok(), "{bound}");
        }
        let both = "load service --rate 3 --burst-size 5 --burst-every 1s";
        assert!(refusal(both).contains("'--rate <PER_SECOND>' cannot be used with"));
    }
}
