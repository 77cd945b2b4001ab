//! `plimsoll set`: change a running group, a cgroup or a process.

mod by_daemon;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::unistd::{AccessFlags, access, geteuid};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_engine::cgroup::{check_foreign, set_foreign};
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::Mode;
use plimsoll_engine::policy_set::Selector;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::scheduled::ScheduledGroup;
use plimsoll_engine::{EngineError, undo};

use crate::cli::{EnforcerChoice, PlanArgs, SetArgs};
use crate::control::{self, GroupState, Request};
use crate::error::{CommandError, Result};
use crate::output;
use crate::run::choice::Means;
use crate::run::{self, Planned, session};

use super::show;

/// Finds out what the target is and changes it.
pub fn run(args: &SetArgs) -> Result<ExitCode> {
    let nothing = args.knobs.cpu_max.is_none()
        && args
            .knobs
            .knobs(None)
            .map_err(EngineError::from)?
            .is_empty();
    match (args.reset, nothing) {
        (true, true) => return by_daemon::reset(args),
        (true, false) => {
            let message = "set: --reset forgets all knobs; allowed: --reset alone, or knobs";
            return Err(CommandError::Other(message.into()));
        }
        (false, true) => {
            let message = "set: no knob is given; see `plimsoll set --help` for the knobs";
            return Err(CommandError::Other(message.into()));
        }
        (false, false) => (),
    }
    let runtime = RuntimeFolder::of_this_user();
    if set_group(&runtime, &args.target, args)? {
        return Ok(ExitCode::SUCCESS);
    }
    let hierarchy = Arc::new(Hierarchy::find()?);
    match args.target.parse::<i32>() {
        // An earlier `set` of the same process may keep it.
        Ok(pid) if set_group(&runtime, &process_group(pid), args)? => Ok(ExitCode::SUCCESS),
        Ok(_) if by_daemon::set(&hierarchy, args)? => Ok(ExitCode::SUCCESS),
        Ok(pid) => set_process(&hierarchy, &runtime, pid, args),
        Err(_) => set_cgroup(&hierarchy, &runtime, args),
    }
}

/// The name of the group of a process.
fn process_group(pid: i32) -> String {
    format!("pid-{pid}")
}

/// A group that a living process of ours keeps: that process changes it.
/// Returns whether there is one.
fn set_group(runtime: &RuntimeFolder, name: &str, args: &SetArgs) -> Result<bool> {
    let Some(state) = control::ask(runtime, name, Request::Show)? else {
        return Ok(false);
    };
    check_choice(&state, &args.plan)?;
    let quota = state.knobs.quota;
    let present = quota.map(|q| plimsoll_engine::knobs::Bandwidth::of(q, state.knobs.burst));
    let knobs = args.knobs.knobs(present).map_err(EngineError::from)?;
    let request = Request::Set {
        knobs: Box::new(knobs),
        best_effort: args.plan.best_effort,
        dry_run: args.plan.dry_run,
    };
    let state = control::ask(runtime, name, request)?;
    let gone = || EngineError::NoTarget {
        target: name.into(),
        what: "group",
    };
    show::print_group(&state.ok_or_else(gone)?, args.json)?;
    Ok(true)
}

/// What enforces a group is chosen when it begins: its cgroups, its journal and
/// its tasks depend on it.
fn check_choice(state: &GroupState, plan: &PlanArgs) -> Result<()> {
    let name = &state.name;
    let (is, asked, other) = match state.enforcer {
        EnforcerKind::Cgroup => ("cgroup", "sched-ext", EnforcerChoice::SchedExt),
        EnforcerKind::SchedExt => ("sched-ext", "cgroup", EnforcerChoice::Cgroup),
    };
    if plan.enforcer == other {
        return Err(CommandError::Other(format!(
            "enforcer: `{asked}` cannot take over group `{name}`, which `{is}` enforces; \
             allowed: auto, {is} (or end the group and start it again)"
        )));
    }
    let statistics = state.statistics.as_ref();
    let scheduler = statistics.and_then(|all| all.scheduler.as_ref());
    // In mode all, every group has a scheduler.
    let mode = scheduler.map_or(Mode::Partial.to_string(), |scheduler| {
        scheduler.mode.clone()
    });
    let wanted = plan.mode.map(|mode| Mode::from(mode).to_string());
    match wanted.filter(|wanted| *wanted != mode) {
        Some(wanted) => Err(CommandError::Other(format!(
            "mode: `{wanted}` cannot be had for group `{name}`; allowed: {mode}"
        ))),
        None => Ok(()),
    }
}

/// The group that a cgroup is already, if a living process keeps it.
fn group_of_cgroup(runtime: &RuntimeFolder, folder: &Path) -> Option<String> {
    // Without a runtime folder nobody keeps anything.
    let lock = runtime.lock().ok()?;
    Some(ScheduledGroup::of_cgroup(runtime, &lock, folder)?.name)
}

/// A process: it gets a group of its own for as long as this command runs.
fn set_process(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    pid: i32,
    args: &SetArgs,
) -> Result<ExitCode> {
    // Says so first if there is no such process.
    hierarchy.folders_of(pid)?;
    let knobs = args.knobs.knobs(None).map_err(EngineError::from)?;
    let name = process_group(pid);
    let planned = run::plan_group(hierarchy, name, Selector::Process(pid), &knobs, &args.plan)?;
    if args.plan.dry_run {
        output::plan(&planned.plan, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    run::warn_of_losses(&planned.plan);
    run::keep_process(hierarchy, runtime, planned, pid)
}

/// A cgroup of somebody else's, in the scheduler for as long as this command
/// runs.
fn schedule_cgroup(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    planned: Planned,
    path: &Path,
    args: &SetArgs,
) -> Result<ExitCode> {
    if args.plan.dry_run {
        output::plan(&planned.plan, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    run::warn_of_losses(&planned.plan);
    run::keep_cgroup(hierarchy, runtime, planned, path)
}

/// Whether a cgroup was given to this user, who is not root: the daemon is
/// not asked for what they may do themselves.
fn is_delegated(hierarchy: &Hierarchy, path: &Path) -> bool {
    let processes = hierarchy.cpu_folder(path).join("cgroup.procs");
    !geteuid().is_root() && access(&processes, AccessFlags::W_OK).is_ok()
}

/// A cgroup of somebody else's.
fn set_cgroup(
    hierarchy: &Arc<Hierarchy>,
    runtime: &RuntimeFolder,
    args: &SetArgs,
) -> Result<ExitCode> {
    let no_target = || EngineError::NoTarget {
        target: args.target.clone(),
        what: "group, cgroup or process",
    };
    let path = hierarchy.resolve(&args.target).map_err(|_| no_target());
    // A cgroup has one keeper.
    if let Ok(path) = &path
        && let Some(name) = group_of_cgroup(runtime, &hierarchy.cpu_folder(path))
        && set_group(runtime, &name, args)?
    {
        return Ok(ExitCode::SUCCESS);
    }
    // What is no cgroup may be a group of the daemon's.
    let is_delegated = path
        .as_ref()
        .is_ok_and(|path| is_delegated(hierarchy, path));
    if !is_delegated && by_daemon::set(hierarchy, args)? {
        return Ok(ExitCode::SUCCESS);
    }
    let path = path?;
    let group = CpuGroup::at(hierarchy, &path);
    let knobs = args
        .knobs
        .knobs(
            group
                .read_cpu_max()
                .ok()
                .map(plimsoll_engine::knobs::Bandwidth::from),
        )
        .map_err(EngineError::from)?;
    let selector = Selector::Cgroup(path.clone());
    let name = format!("cgroup-{}", std::process::id());
    let planned = run::plan_group(hierarchy, name, selector, &knobs, &args.plan)?;
    if let Means::SchedExt(_) = planned.means {
        return schedule_cgroup(hierarchy, runtime, planned, &path, args);
    }
    check_foreign(&planned.policy.knobs)?;
    if args.plan.dry_run {
        output::plan(&planned.plan, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    run::warn_of_losses(&planned.plan);
    runtime.create()?;
    session::report_problems(&undo::recover(runtime, &runtime.lock()?, false)?);
    set_foreign(hierarchy, runtime, path, &planned.policy.knobs)?;
    show::print_cgroup(&group, args.json)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn plan(words: &str) -> PlanArgs {
        let all = format!("plimsoll set g --cap 5% {words}");
        match Cli::try_parse_from(all.split_whitespace()).unwrap().command {
            Command::Set(args) => args.plan,
            _ => panic!("not set"),
        }
    }

    fn state(enforcer: EnforcerKind) -> GroupState {
        GroupState {
            name: "g".into(),
            subject: "true".into(),
            cgroup: "/g".into(),
            pid: 1,
            knobs: Default::default(),
            plan: serde_json::Value::Null,
            enforcer,
            statistics: None,
        }
    }

    #[test]
    fn another_enforcer_or_mode_than_the_groups_is_refused() {
        for (is, words, expected) in [
            (
                EnforcerKind::Cgroup,
                "--enforcer sched-ext",
                "allowed: auto, cgroup",
            ),
            (
                EnforcerKind::SchedExt,
                "--enforcer cgroup",
                "allowed: auto, sched-ext",
            ),
            (EnforcerKind::SchedExt, "--mode all", "allowed: partial"),
            (EnforcerKind::Cgroup, "--mode all", "allowed: partial"),
        ] {
            let refused = check_choice(&state(is), &plan(words)).unwrap_err();
            let message = refused.to_string();
            assert!(message.contains(expected), "{message}");
        }
        for (is, words) in [
            (EnforcerKind::Cgroup, "--enforcer cgroup"),
            (
                EnforcerKind::SchedExt,
                "--enforcer sched-ext --mode partial",
            ),
            (EnforcerKind::SchedExt, "--enforcer auto"),
        ] {
            check_choice(&state(is), &plan(words)).unwrap();
        }
    }
}
