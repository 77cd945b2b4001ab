//! A command of somebody who may not make cgroups: the daemon makes the
//! group, and keeps it as long as anything runs in it.

use std::process::ExitCode;

use plimsoll_daemon::control::protocol::{Request, Run};
use plimsoll_daemon::state::Group;
use plimsoll_engine::enforcer::Sample;
use plimsoll_engine::knobs::Knobs;

use super::child;
use super::held::Held;
use super::signals::Signals;
use super::{default_name, subject_of};
use crate::cli::RunArgs;
use crate::daemon_client::Daemon;
use crate::error::Result;
use crate::output;

/// Runs a command in a group of the daemon's.
pub fn run(mut daemon: Daemon, args: &RunArgs, knobs: &Knobs) -> Result<ExitCode> {
    daemon.check_choice(&args.plan)?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| default_name(&args.command[0]));
    let request = |pid| {
        Request::Run(Box::new(Run {
            name: name.clone(),
            pid,
            subject: subject_of(&args.command),
            knobs: knobs.clone(),
            best_effort: args.plan.best_effort,
            dry_run: args.plan.dry_run,
        }))
    };
    if args.plan.dry_run {
        let own = std::process::id().cast_signed();
        let groups = daemon.change(&request(own))?;
        let plan = groups.into_iter().next().map(|group| group.plan);
        output::print_plan(&plan.unwrap_or_default(), args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    // From here on a signal waits until it can be handled.
    let mut signals = Signals::register()?;
    let held = Held::start(&args.command)?;
    daemon.change(&request(held.pid()))?;
    // It may be long until the command has ended; others are waiting too.
    drop(daemon);
    if let Some(signal) = signals.ending_now() {
        // Sent before there was a command that it could have reached.
        drop(held);
        // What has failed of this, the daemon does by itself.
        let _ = end(&name, true);
        return Ok(child::killed_by(signal));
    }
    let mut child = match held.let_go() {
        Ok(child) => child,
        Err(error) => {
            // That the command cannot be run matters more.
            let _ = end(&name, true);
            return Err(error);
        }
    };
    let status = signals.until_child_ends(&mut child)?;
    report(end(&name, false), args);
    Ok(child::exit_code(status))
}

/// Says that the group is not needed any more, and what it has used. `None`:
/// the daemon has forgotten it already.
fn end(name: &str, release: bool) -> Result<Option<Sample>> {
    let name = name.to_owned();
    let groups = Daemon::needed()?.change(&Request::End { name, release })?;
    Ok(statistics(groups))
}

fn statistics(groups: Vec<Group>) -> Option<Sample> {
    groups.into_iter().next()?.statistics
}

/// What is to be said at the end. Nothing of it may hide the command's exit
/// code.
fn report(ended: Result<Option<Sample>>, args: &RunArgs) {
    let sample = match ended {
        Ok(sample) => sample,
        Err(error) => {
            // The daemon ends the group by itself.
            if args.stats {
                output::tell(&format!("no statistics: {error}"));
            }
            return;
        }
    };
    let Some(sample) = sample else { return };
    if sample.processes > 0 {
        output::tell(
            "the command has ended, but processes that it started run on; \
             their limits stay until they end",
        );
    }
    if args.stats {
        let _ = output::run_statistics(&sample, args.json);
    }
}
