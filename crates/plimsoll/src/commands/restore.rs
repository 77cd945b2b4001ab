//! `plimsoll restore`: undoes the changes of processes that were killed.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use plimsoll_cgroupfs::name::{path_of, shown, text_of};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy};
use plimsoll_daemon::control::protocol::{Answer, Request, SOCKET};
use plimsoll_daemon::service;
use plimsoll_engine::journal::{self, wait_for_last_owner};
use plimsoll_engine::own_groups;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::{self, UndoReport};

use crate::cli::OutputArgs;
use crate::daemon::{guard, remove_log};
use crate::error::{CommandError, EXIT_FAILED, OwnerError, Result};
use crate::output;
use crate::owner::{self, Owner, not_meant};

/// Undoes all changes of ended processes, and unloads the scheduler.
fn recover(runtime: &RuntimeFolder) -> Result<UndoReport> {
    // The scheduler comes first, so that its tasks become ordinary ones.
    let mut report = plimsoll_scx::SchedExtHost::clean_up(runtime);
    report.extend(undo::recover(runtime)?);
    report.extend(guard::free_left_tasks(runtime));
    Ok(report)
}

/// Removes the socket and the log of an ended owner.
fn remove_socket_and_log(runtime: &RuntimeFolder) {
    // The next owner replaces a socket that cannot be removed.
    let _ = fs::remove_file(runtime.path().join(SOCKET));
    remove_log(runtime);
}

/// Undoes every `set`, and all changes of an ended owner.
fn recover_everything() -> Result<UndoReport> {
    let runtime = RuntimeFolder::of_this_user();
    runtime.create()?;
    let hierarchy = Arc::new(Hierarchy::find()?);
    // This owner has the files in this folder, whichever tree it owns.
    if let Some(owner) = Owner::at(&runtime)? {
        match ask_owner(owner) {
            Err(error) if error.is_end_of_owner() => (),
            answered => return answered,
        }
    }
    // An owner that was killed just now may still own the tree.
    let _ownership = owner::wait_for_ownership(&hierarchy, || OwnerError::Silent)?;
    wait_for_last_owner(runtime.path())?;
    let mut report = recover(&runtime)?;
    remove_socket_and_log(&runtime);
    let forgotten = service::forget(&runtime);
    let failed = CommandError::io("cannot forget what was set");
    // A group that is left is among the problems, and may be in a journal that cannot be read.
    let left = journal::left_behind(runtime.path())?;
    let is_left = |name: &str| {
        // A foreign cgroup is set by its path in the hierarchy, and in the journal by its folder.
        let key = match name.starts_with('/') {
            true => text_of(hierarchy.cpu_folder(&path_of(name.trim_start_matches('/')))),
            false => name.to_owned(),
        };
        left.iter()
            .any(|it| it.as_ref().map_or(true, |it| it.0 == key))
    };
    let mut lost = own_cgroups(&hierarchy);
    lost.retain(|(name, _)| !is_left(name));
    for name in forgotten.map_err(failed)? {
        let is_lost = lost.iter().any(|(lost, _)| *lost == name);
        if !is_lost && !is_left(&name) && !report.undone.contains(&name) {
            report.undone.push(name);
        }
    }
    let problems = lost.into_iter().map(|(name, path)| {
        format!("{name}: its journal is lost; end the processes in {path}, then remove that cgroup")
    });
    report.problems.extend(problems);
    Ok(report)
}

/// Lists the outermost cgroups of groups of our own, by group.
fn own_cgroups(hierarchy: &Arc<Hierarchy>) -> Vec<(String, String)> {
    let inside = |group: &CpuGroup| group.children().unwrap_or_default();
    let group_of = |group: &CpuGroup| {
        let name = own_groups::group_of(hierarchy, group.path())?;
        Some((name.to_owned(), shown(group.path())))
    };
    let outer = inside(&CpuGroup::at(hierarchy, hierarchy.base()));
    let is_parent =
        |it: &&CpuGroup| own_groups::is_own(hierarchy, it.path()) && group_of(it).is_none();
    let inner: Vec<CpuGroup> = outer.iter().filter(is_parent).flat_map(inside).collect();
    outer.iter().chain(&inner).filter_map(group_of).collect()
}

/// Lets a running owner undo every `set`, and the groups of a daemon that was killed.
fn ask_owner(mut owner: Owner) -> Result<UndoReport> {
    match owner.ask(&Request::Restore)? {
        Answer::Restored(report) => Ok(report),
        other => Err(not_meant(&other)),
    }
}

/// Undoes every `set` and all changes without a living owner.
pub fn run(args: OutputArgs) -> Result<ExitCode> {
    let report = recover_everything()?;
    let good = report.problems.is_empty();
    if args.json {
        output::print_json("plimsoll.restore/1", &report)?;
    } else {
        if good && report.undone.is_empty() && report.notes.is_empty() {
            output::print_line("nothing was left behind")?;
        }
        for name in &report.undone {
            output::print_line(&format!("undone: {name}"))?;
        }
        for problem in report.notes.iter().chain(&report.problems) {
            output::tell(problem);
        }
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    })
}
