//! What is `set` where a daemon runs: it stays until it is reset, or until
//! the processes have ended.

use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_daemon::control::protocol::{Request, Set};
use plimsoll_daemon::state::Group;
use plimsoll_engine::EngineError;
use plimsoll_engine::knobs::Bandwidth;

use crate::cli::SetArgs;
use crate::commands::show::{name_for_daemon, served};
use crate::daemon_client::{Daemon, NO_DAEMON};
use crate::error::{CommandError, Result};
use crate::output;

/// Lets the daemon change the target. Returns whether there is one.
pub fn set(hierarchy: &Arc<Hierarchy>, args: &SetArgs) -> Result<bool> {
    let Some(mut daemon) = Daemon::find()? else {
        return Ok(false);
    };
    daemon.check_choice(&args.plan)?;
    let target = name_for_daemon(hierarchy, &args.target);
    // Only a line of the kernel's leaves something out.
    let present = match args.knobs.cpu_max {
        Some(_) => present_bandwidth(&mut daemon, hierarchy, &target),
        None => None,
    };
    let knobs = args.knobs.knobs(present).map_err(EngineError::from)?;
    let groups = daemon.change(&Request::Set(Box::new(Set {
        target,
        knobs,
        best_effort: args.plan.best_effort,
        dry_run: args.plan.dry_run,
    })))?;
    if args.plan.dry_run {
        output::print_plan(&plan_of(&groups), args.json)?;
    } else {
        served::print_changed(groups, args.json)?;
    }
    Ok(true)
}

/// What all of the groups would be enforced by.
fn plan_of(groups: &[Group]) -> serde_json::Value {
    let items = groups.iter().filter_map(|group| group.plan.as_array());
    items.flatten().cloned().collect()
}

/// The bandwidth that the target has, as asked of the daemon or as it was.
fn present_bandwidth(
    daemon: &mut Daemon,
    hierarchy: &Arc<Hierarchy>,
    target: &str,
) -> Option<Bandwidth> {
    // What the daemon does not know, it will say when it is to change it.
    let state = daemon.show(Some(target)).ok();
    let group = state.and_then(|state| state.groups.into_iter().next());
    let asked = group.and_then(|group| Some(Bandwidth::of(group.knobs.quota?, group.knobs.burst)));
    asked.or_else(|| {
        let path = hierarchy.resolve(target).ok()?;
        let found = CpuGroup::at(hierarchy, path).read_cpu_max().ok()?;
        Some(found.into())
    })
}

/// Lets the daemon forget what was set.
pub fn reset(args: &SetArgs) -> Result<ExitCode> {
    let Some(mut daemon) = Daemon::find()? else {
        return Err(CommandError::Other(format!(
            "set --reset: {NO_DAEMON}; what was `set` without one, `plimsoll restore` undoes"
        )));
    };
    if args.plan.dry_run {
        let message = "set --reset: has no --dry-run; `plimsoll show` says what is in force";
        return Err(CommandError::Other(message.into()));
    }
    let target = match Hierarchy::find() {
        Ok(hierarchy) => name_for_daemon(&hierarchy, &args.target),
        Err(_) => args.target.clone(),
    };
    let groups = daemon.change(&Request::Reset { target })?;
    if groups.is_empty() && !args.json {
        output::print_line(&format!("{}: nothing is asked of it any more", args.target))?;
    } else {
        served::print_changed(groups, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plans_of_several_groups_are_one() {
        let group = |knob: &str| Group {
            plan: serde_json::json!([{ "knob": knob }]),
            ..Group::default()
        };
        let none = Group::default();
        let plan = plan_of(&[group("cap"), none, group("quota")]);
        assert_eq!(
            plan,
            serde_json::json!([{"knob": "cap"}, {"knob": "quota"}])
        );
    }
}
