//! `plimsoll set`: change a group, a cgroup or a process. It lasts until it is reset, or until
//! the processes have ended.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::{AccessFlags, access, geteuid};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_daemon::control::protocol::{Request, Set};
use plimsoll_daemon::state::Group;
use plimsoll_engine::EngineError;
use plimsoll_engine::knobs::Bandwidth;
use serde::Serialize;

use crate::cli::SetArgs;
use crate::commands::show::{name_for_owner, print_changed};
use crate::error::{CommandError, Result};
use crate::output;
use crate::owner::{self, NO_DAEMON, Owner};
use crate::run::warn_of_losses;

/// Finds the owner of the target, and has it changed.
pub fn run(args: &SetArgs) -> Result<ExitCode> {
    let given = args.knobs.knobs(None);
    // A line of the kernel's may need the present values to be complete.
    let nothing = args.knobs.cpu_max.is_none() && given.map_err(EngineError::from)?.is_empty();
    if let Some(enabled) = args.burst_enabled {
        if nothing {
            return switch_burst(enabled, args.json);
        }
        let message = "set: --all takes no knobs; allowed: --burst-enabled yes or no";
        return Err(CommandError::Other(message.into()));
    }
    match (args.reset, nothing) {
        (true, true) => reset(args),
        (true, false) => {
            let message = "set: --reset forgets all knobs; allowed: --reset alone, or knobs";
            Err(CommandError::Other(message.into()))
        }
        (false, true) => {
            let message = "set: no knob is given; see `plimsoll set --help` for the knobs";
            Err(CommandError::Other(message.into()))
        }
        (false, false) => change(args),
    }
}

fn change(args: &SetArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    let mut owner = owner_of(&hierarchy, &args.target)?;
    let target = name_for_owner(&hierarchy, &args.target);
    let present = match args.knobs.cpu_max {
        Some(_) => present_bandwidth(&mut owner, &hierarchy, &target),
        None => None,
    };
    let knobs = args.knobs.knobs(present).map_err(EngineError::from)?;
    let groups = owner.change(&Request::Set(Box::new(Set {
        target,
        knobs,
        choice: owner::choice(&args.plan),
    })))?;
    if args.plan.dry_run {
        output::print_plan(&plan_of(&groups), args.json)?;
    } else {
        groups.iter().for_each(warn_of_losses);
        print_changed(groups, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The owner that a target belongs to. Users change what is in their own subtree by their own
/// owner, and ask the host's for all else.
fn owner_of(hierarchy: &Hierarchy, target: &str) -> Result<Owner> {
    if geteuid().is_root() || is_delegated(hierarchy, target) {
        return Owner::for_new_group(hierarchy);
    }
    for mut owner in Owner::all()? {
        let state = owner.show(Some(&name_for_owner(hierarchy, target)));
        if state.is_ok_and(|state| !state.groups.is_empty()) {
            return Ok(owner);
        }
    }
    match Owner::of_host()? {
        Some(owner) => Ok(owner),
        None => Owner::for_new_group(hierarchy),
    }
}

/// Whether a cgroup was given to this user.
fn is_delegated(hierarchy: &Hierarchy, target: &str) -> bool {
    let path = hierarchy.resolve(target);
    let is_writable = |path: &Path| {
        let processes = hierarchy.cpu_folder(path).join("cgroup.procs");
        access(&processes, AccessFlags::W_OK).is_ok()
    };
    path.is_ok_and(|path| is_writable(&path))
}

/// What all of the groups would be enforced by.
fn plan_of(groups: &[Group]) -> serde_json::Value {
    let items = groups.iter().filter_map(|group| group.plan.as_array());
    items.flatten().cloned().collect()
}

/// The bandwidth that the target has: as its owner was asked for it, or as the kernel has it.
fn present_bandwidth(
    owner: &mut Owner,
    hierarchy: &Arc<Hierarchy>,
    target: &str,
) -> Option<Bandwidth> {
    // A target that the owner does not know is refused when it is to be changed.
    let state = owner.show(Some(target)).ok();
    let group = state.and_then(|state| state.groups.into_iter().next());
    let asked = group.and_then(|group| Some(Bandwidth::of(group.knobs.quota?, group.knobs.burst)));
    asked.or_else(|| {
        let path = hierarchy.resolve(target).ok()?;
        let found = CpuGroup::at(hierarchy, path).read_cpu_max().ok()?;
        Some(found.into())
    })
}

/// Switches bursts off for all groups of the owner, or on again unless its file says no.
fn switch_burst(enabled: bool, as_json: bool) -> Result<ExitCode> {
    let mut owner = Owner::for_new_group(&Hierarchy::find()?)?;
    owner.change(&Request::Burst { enabled })?;
    let is_off = owner.show(None)?.daemon.burst_off;
    if as_json {
        #[derive(Serialize)]
        struct Document {
            burst_enabled: bool,
        }
        let burst_enabled = !is_off;
        output::print_json("plimsoll.set/1", &Document { burst_enabled })?;
    } else {
        let state = if is_off { "off" } else { "on" };
        output::print_line(&format!("bursts of all groups are {state}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the owner forget the knobs that were set.
fn reset(args: &SetArgs) -> Result<ExitCode> {
    if args.plan.dry_run {
        let message = "set --reset: has no --dry-run; `plimsoll show` says what is in force";
        return Err(CommandError::Other(message.into()));
    }
    let target = match Hierarchy::find() {
        Ok(hierarchy) => name_for_owner(&hierarchy, &args.target),
        Err(_) => args.target.clone(),
    };
    let mut refused = CommandError::Other(format!("set --reset: {NO_DAEMON}"));
    for mut owner in Owner::all()? {
        let request = Request::Reset {
            target: target.clone(),
        };
        match owner.change(&request) {
            Ok(groups) if groups.is_empty() && !args.json => {
                output::print_line(&format!("{}: settings cleared", args.target))?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(groups) => {
                print_changed(groups, args.json)?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
