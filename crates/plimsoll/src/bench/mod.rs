//! `plimsoll bench`: a scenario on the model, and with `--real` on this
//! machine, too.
//!
//! On the machine every group is the command that a user would type,
//! `plimsoll run KNOBS -- …`, and every workload in it a `plimsoll load …`.
//!
//! | file | subject |
//! | --- | --- |
//! | `commands` | the command lines of a scenario |
//! | `launch` | the workloads of one group, held until all groups are there |
//! | `real` | a scenario on this machine, and what it came to |
//! | `figures` | the same figures of both, side by side |
//! | `outcome` | what is printed; the JSON schema |

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
use crate::error::{CommandError, Result};
use crate::output::{self, Progress};
use crate::sim::host::{ScenarioArgs, drive, exit_code};
use outcome::{Outcome, RunOutcome, SCHEMA};
use real::{Machine, RealOutcome};

/// Shown below the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll bench scenarios/real.toml
  plimsoll bench scenarios/real.toml --real
  plimsoll bench scenarios/real.toml --real --enforcer cgroup --json

With --real it needs what `plimsoll run` needs, and takes as long as the scenario says.";

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run it on this machine, too, and print both
    #[arg(long)]
    real: bool,
    /// Which interface of the kernel to use with --real
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

/// Runs the scenario, all its variants one after another, and prints what they came to.
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

/// The model has none. A variable may be there for other commands.
fn check_enforcer(args: &Args) -> Result<()> {
    let is_asked = args.enforcer != EnforcerChoice::Auto;
    if args.real || !is_asked || std::env::var_os(ENFORCER_VARIABLE).is_some() {
        return Ok(());
    }
    Err(CommandError::Other(
        "--enforcer: without --real nothing is enforced; allowed with --real only".into(),
    ))
}

/// A scenario of another machine cannot be run on this one.
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
    Err(CommandError::Other(format!(
        "{}:{}:{}: cpus: `{}`{variant} is another machine's; allowed with --real: {here}, as here",
        path.display(),
        run.cpus_at.0,
        run.cpus_at.1,
        run.scenario.machine.cpus
    )))
}

/// What the model says.
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
