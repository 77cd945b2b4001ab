//! `plimsoll demo`: shows the main features on this machine in about 80 seconds.
//!
//! Every phase runs commands as a user would type them: this process starts
//! itself as `plimsoll run … -- plimsoll load …`, samples the machine meanwhile
//! and reads the reports.
//!
//! | file | subject |
//! | --- | --- |
//! | `scenario` | the phases and their commands |
//! | `runner` | running and measuring a phase |
//! | `outcome` | results; the JSON schema |
//! | `findings` | summary of the results in sentences |
//! | `table` | tables on the terminal |
//! | `report` | HTML page and its plots |

mod findings;
mod outcome;
mod report;
mod runner;
mod scenario;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::service::Starter as _;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_load::Stop;

use crate::cli::DemoArgs;
use crate::daemon::{HostStarter, guard};
use crate::error::Result;
use crate::expected::{Expected, Mechanism};
use crate::output::{self, ResultFile};
use outcome::{DemoHost, DemoOutcome, SCHEMA};
use runner::Runner;
use scenario::{Scenario, Support};

/// Runs all phases, prints the tables and writes the report.
pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    hierarchy.check_permission()?;
    let host = Capabilities::of_this_host(&hierarchy);
    let report = ResultFile::open("report", &args.report)?;
    let stop = Stop::on_signals()?;
    let support = support(&hierarchy, &stop)?;
    let cpus = plimsoll_load::available_cpus();
    let scenario = Scenario::new(args.phase, cpus, &host, &support);
    let mut outcome = DemoOutcome::new(&args.report, &scenario, DemoHost::of(&host), unix_time());
    let started = Instant::now();
    Runner::new(&hierarchy, host.nr_cpus, &stop, &scenario)?.run(&mut outcome)?;
    outcome.took_seconds = started.elapsed().as_secs_f64();
    outcome.interrupted = stop.is_set();
    outcome.compare();
    if let Some(expected) = Expected::of(&host.kernel, host.nr_cpus, host.is_lazy) {
        outcome.expect(&expected, support.batch);
    }
    outcome.notes.extend(findings::cautions(&outcome));
    if outcome.is_empty() {
        output::tell("demo: interrupted before the first measurement");
    } else {
        report.write(&report::page(&outcome)?)?;
        if args.json {
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

/// Finds the mechanisms of this host that are compared.
fn support(hierarchy: &Arc<Hierarchy>, stop: &Stop) -> Result<Support> {
    let runtime = RuntimeFolder::of_this_user();
    let guard = guard::check();
    let batch = match &guard {
        _ if plimsoll_scx::SchedExtHost::serves(&runtime) => Mechanism::SchedExt,
        Ok(()) => Mechanism::Guard,
        Err(_) => Mechanism::NoGuard,
    };
    let no_guard = match guard {
        Err(error) => Some(error.to_string()),
        Ok(()) if !runner::until_owner_ends(stop)? => Some("an owner runs already".into()),
        Ok(()) => None,
    };
    let starter = HostStarter::new(hierarchy, &runtime);
    Ok(Support {
        no_guard,
        batch,
        has_scheduler: starter.choose(EnforcerWanted::SchedExt).is_ok(),
    })
}

/// Seconds since 1970; 0 if the clock is earlier.
#[expect(clippy::disallowed_methods, reason = "the date of a report")]
fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod fixture;
