//! `plimsoll demo`: shows the main features on this machine in about a minute.
//!
//! Every phase runs commands as a user would type them: this process starts
//! itself as `plimsoll run … -- plimsoll load …`, samples the machine meanwhile
//! and reads the reports.
//!
//! | file | subject |
//! | --- | --- |
//! | `options` | checked arguments |
//! | `scenario` | the phases and their commands |
//! | `runner` | running and measuring a phase |
//! | `outcome` | results; the JSON schema |
//! | `findings` | summary of the results in sentences |
//! | `table` | tables on the terminal |
//! | `progress` | progress on standard error |
//! | `report` | HTML page and its plots |

mod findings;
mod options;
mod outcome;
mod progress;
mod report;
mod runner;
mod scenario;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::host::Capabilities;
use plimsoll_load::Stop;

use crate::cli::DemoArgs;
use crate::error::Result;
use crate::output;
use options::Options;
use outcome::{Host, Outcome, SCHEMA};
use report::ReportFile;
use runner::Runner;
use scenario::Scenario;

/// Runs all phases, prints the tables and writes the report.
pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let options = Options::new(args)?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    hierarchy.check_permission()?;
    let host = Capabilities::of_this_host(&hierarchy);
    let report = ReportFile::open(&options.report)?;
    let stop = Stop::on_signals()?;
    let scenario = Scenario::new(options.phase, plimsoll_load::available_cpus(), &host);
    let mut outcome = Outcome::new(&options, &scenario, Host::of(&host), unix_time());
    let started = Instant::now();
    Runner::new(&hierarchy, host.nr_cpus, &stop, &scenario)?.run(&mut outcome)?;
    outcome.took_seconds = started.elapsed().as_secs_f64();
    outcome.interrupted = stop.is_set();
    outcome.compare();
    outcome.notes.extend(findings::cautions(&outcome));
    if outcome.is_empty() {
        output::tell("demo: interrupted before the first measurement");
    } else {
        report.write(&report::page(&outcome)?)?;
        if options.json {
            output::print_json(SCHEMA, &outcome)?;
        } else {
            table::print(&outcome)?;
        }
    }
    Ok(match stop.signal() {
        Some(signal) => ExitCode::from(128 + signal),
        None => ExitCode::SUCCESS,
    })
}

/// Seconds since 1970; 0 if the clock is earlier.
fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod fixture;
