//! `plimsoll bench`: runs a scenario in the simulator, and with `--real` also
//! on this machine.
//!
//! On the machine every group is a `plimsoll run KNOBS -- …` as a user would
//! type it, and every workload in it a `plimsoll load …`.
//!
//! | file | subject |
//! | --- | --- |
//! | `commands` | command lines of a scenario |
//! | `launch` | launcher of the workloads of one group, which starts them together with the other groups |
//! | `real` | running a scenario on this machine, and its results |
//! | `figures` | figures of both, for comparison |
//! | `outcome` | printed results; the JSON schema |

mod commands;
mod figures;
pub mod launch;
mod outcome;
mod real;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_load::Stop;
use plimsoll_sim::scenario::{Run, ScenarioFile};

use crate::cli::{ENFORCER_VARIABLE, EnforcerChoice};
use crate::error::{Result, UsageError};
use crate::output::{self, Progress};
use crate::sim::host::{ScenarioArgs, drive, exit_code};
use outcome::{Outcome, RunOutcome, SCHEMA};
use real::{Machine, RealOutcome};

/// Examples at the end of the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll bench scenarios/real.toml
  plimsoll bench scenarios/real.toml --real
  plimsoll bench scenarios/real.toml --real --enforcer cgroup --json

With --real it needs the privileges of `plimsoll run`, and takes the duration of the scenario.";

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Also run the scenario on this machine, and print both results
    #[arg(long)]
    real: bool,
    /// Kernel interface to use with --real
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        env = ENFORCER_VARIABLE,
        hide_env_values = true
    )]
    enforcer: EnforcerChoice,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs all variants of the scenario one after another, and prints the results.
pub fn run(args: &Args) -> Result<ExitCode> {
    check_enforcer(args)?;
    let file = args.scenario.read()?;
    let machine = if args.real {
        check_machine(&args.scenario.file, &file)?;
        let hierarchy = Arc::new(Hierarchy::find()?);
        hierarchy.check_permission()?;
        Some(Machine::new(hierarchy, args.enforcer)?)
    } else {
        None
    };
    let stop = Stop::on_signals()?;
    let mut outcome = Outcome::new(&args.scenario.file, &file, args.real);
    let mut progress = Progress::new();
    for run in &file.runs {
        let model = model(run, &stop, &mut progress)?;
        let real: Option<RealOutcome> = match &machine {
            Some(machine) if !stop.is_set() => machine.run(run, &stop, &mut progress)?,
            _ => None,
        };
        outcome
            .runs
            .push(RunOutcome::new(run, &model, real, args.real));
        if stop.is_set() {
            break;
        }
    }
    drop(progress);
    if args.json {
        output::print_json(SCHEMA, &outcome)?;
    } else {
        outcome::print(&outcome)?;
    }
    Ok(exit_code(&stop))
}

/// Refuses an enforcer on the command line without --real, because the
/// simulator has none. The environment variable is allowed, since it may be set
/// for other commands.
fn check_enforcer(args: &Args) -> Result<()> {
    let is_asked = args.enforcer != EnforcerChoice::Auto;
    if args.real || !is_asked || std::env::var_os(ENFORCER_VARIABLE).is_some() {
        return Ok(());
    }
    Err(UsageError::EnforcerWithoutReal.into())
}

/// Refuses a scenario for another machine.
fn check_machine(path: &Path, file: &ScenarioFile) -> Result<()> {
    let here = u32::try_from(plimsoll_load::available_cpus()).unwrap_or(u32::MAX);
    let other = file
        .runs
        .iter()
        .find(|run| run.scenario.machine.cpus != here);
    let Some(run) = other else {
        return Ok(());
    };
    let variant = run.variant.as_ref();
    let variant = variant.map_or_else(String::new, |name| format!(" in variant {name}"));
    let (line, column) = run.cpus_at;
    let place = format!("{}:{line}:{column}", path.display());
    Err(UsageError::OtherMachine {
        place,
        cpus: run.scenario.machine.cpus,
        variant,
        here,
    }
    .into())
}

/// Runs the simulation.
fn model(
    run: &Run,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<plimsoll_sim::host::HostReport> {
    let name = run.variant.as_deref();
    let mut tell = |so_far: &drive::SoFar| progress.show(|| so_far.line(name));
    let (report, ()) = drive::to_the_end(&run.scenario, (), stop, &mut tell)?;
    Ok(report)
}
