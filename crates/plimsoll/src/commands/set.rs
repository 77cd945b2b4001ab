//! `plimsoll set`: changes a group, a cgroup or a process, until a reset or the end of the
//! processes.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::{AccessFlags, access, geteuid};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_daemon::control::protocol::{Request, SetRequest};
use plimsoll_engine::EngineError;
use plimsoll_engine::journal;
use plimsoll_engine::knobs::Bandwidth;
use plimsoll_engine::runtime::RuntimeFolder;
use serde_json::json;

use crate::cli::SetArgs;
use crate::commands::show;
use crate::error::{CommandError, OwnerError, Result};
use crate::output;
use crate::owner::{self, Owner};
use crate::run::warn_of_losses;
use crate::target::Target;

/// Sends the change to the owner of the target.
pub fn run(args: &SetArgs) -> Result<ExitCode> {
    let given = args.knobs.knobs(None);
    // A partial `cpu.max` line is completed from the present values later.
    let nothing = args.knobs.cpu_max.is_none() && given.map_err(EngineError::from)?.is_empty();
    if let Some(enabled) = args.burst_enabled {
        if nothing {
            return switch_burst(enabled, args.json);
        }
        return Err(CommandError::BurstWithKnobs);
    }
    match (args.reset, nothing) {
        (true, true) => reset(args),
        (true, false) => Err(CommandError::ResetWithKnobs),
        (false, true) => Err(CommandError::NoKnob),
        (false, false) => change(args),
    }
}

fn change(args: &SetArgs) -> Result<ExitCode> {
    let hierarchy = Arc::new(Hierarchy::find()?);
    let target = Target::find(&hierarchy, &args.target)?;
    let mut owner = owner_of(&hierarchy, &target)?;
    let given = &args.knobs;
    // A burst alone is one of the quota that is there.
    let needs_present = given.cpu_max.is_some() || (given.burst.is_some() && given.quota.is_none());
    let present = needs_present
        .then(|| present_bandwidth(&mut owner, &hierarchy, &target))
        .flatten();
    let mut knobs = given.knobs(present).map_err(EngineError::from)?;
    if let (Some(_), None, Some(present)) = (knobs.burst, knobs.quota, present) {
        knobs.quota = present.quota.quota_ns.map(|_| present.quota);
    }
    let request = Request::Set(Box::new(SetRequest {
        target: target.name(),
        knobs,
        choice: owner::choice(&args.plan),
    }));
    let groups = owner.change(&request, target.handle())?;
    if args.plan.dry_run {
        let items = groups.into_iter().flat_map(|group| group.plan).flatten();
        output::print_plan(&items.collect::<Vec<_>>(), args.json)?;
    } else {
        warn_of_losses(&hierarchy, &groups);
        show::print(&groups, None, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Connects to the owner of a target: a user's own for cgroups in the user's subtree, the host's
/// for others.
fn owner_of(hierarchy: &Hierarchy, target: &Target) -> Result<Owner> {
    if geteuid().is_root() || is_delegated(hierarchy, target) {
        return Owner::for_new_group(hierarchy);
    }
    for mut owner in Owner::all()? {
        let state = owner.show(Some(target));
        if state.is_ok_and(|state| !state.groups.is_empty()) {
            return Ok(owner);
        }
    }
    match Owner::of_host()? {
        Some(owner) => Ok(owner),
        None => Owner::for_new_group(hierarchy),
    }
}

/// Returns whether a cgroup was delegated to this user.
fn is_delegated(hierarchy: &Hierarchy, target: &Target) -> bool {
    let is_writable = |path: &Path| {
        let processes = hierarchy.cpu_folder(path).join("cgroup.procs");
        access(&processes, AccessFlags::W_OK).is_ok()
    };
    target.path().is_some_and(is_writable)
}

/// Present bandwidth of the target: as requested from its owner, otherwise as in the kernel.
/// `None`: the kernel's value is that of a cap or of the headroom loop, or cannot be read.
fn present_bandwidth(
    owner: &mut Owner,
    hierarchy: &Arc<Hierarchy>,
    target: &Target,
) -> Option<Bandwidth> {
    // The change itself reports an unknown target.
    let state = owner.show(Some(target)).ok();
    let group = state.and_then(|state| state.groups.into_iter().next());
    let knobs = group.map(|group| group.knobs).unwrap_or_default();
    if let Some(quota) = knobs.quota {
        return Some(Bandwidth::of(quota, knobs.burst));
    }
    if knobs.cap.is_some() || knobs.headroom.is_some() {
        return None;
    }
    let found = CpuGroup::at(hierarchy, target.path()?)
        .read_cpu_max()
        .ok()?;
    Some(found.into())
}

/// Switches bursts of all groups off, or on again unless the file disables them.
fn switch_burst(enabled: bool, as_json: bool) -> Result<ExitCode> {
    let mut owner = Owner::for_new_group(&Hierarchy::find()?)?;
    owner.change(&Request::Burst { enabled }, None)?;
    let is_off = owner.show(None)?.daemon.burst_off;
    if as_json {
        output::print_json("plimsoll.set/1", &json!({ "burst_enabled": !is_off }))?;
    } else {
        let state = if is_off { "off" } else { "on" };
        output::print_line(&format!("bursts of all groups are {state}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Resets the knobs of a target at the owner that has it.
fn reset(args: &SetArgs) -> Result<ExitCode> {
    if args.plan.dry_run {
        return Err(CommandError::ResetDryRun);
    }
    let target = match Hierarchy::find() {
        Ok(hierarchy) => Target::find(&hierarchy, &args.target)?,
        Err(_) => Target::group(&args.target),
    };
    let mut refused = CommandError::from(OwnerError::NoneToReset);
    let mut owners = Owner::all()?;
    if owners.is_empty() && !journal::left_behind(RuntimeFolder::of_this_user().path())?.is_empty()
    {
        // A new owner adopts the groups of a killed one.
        owners.push(Owner::find_or_start()?);
    }
    for mut owner in owners {
        let request = Request::Reset {
            target: target.name(),
        };
        match owner.change(&request, target.handle()) {
            Ok(groups) if groups.is_empty() && !args.json => {
                output::print_line(&format!("{}: settings cleared", args.target))?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(groups) => {
                show::print(&groups, None, args.json)?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => refused = error,
        }
    }
    Err(refused)
}
