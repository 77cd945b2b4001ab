//! Undo of recorded changes.

mod nice;
mod recover;
mod report;
mod shared;
mod values;

use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use recover::recover;
pub use report::UndoReport;

pub(crate) use nice::{Levels, commonest_level, restore_levels};
pub(crate) use shared::remove_parents;
pub(crate) use values::{chosen, is_refused, put_back_settings, try_restore_files};

use plimsoll_cgroupfs::{
    CgroupError, CgroupKind, folders_in, move_process, read_ids, read_text, tree,
};
use plimsoll_cgroupfs::{name, os};

use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore, ForeignRestore, Header, Journal, OwnRestore, Restores};
use crate::own_groups::{LEFT, may_be_own};
use crate::tasks::{self, TaskId};
use shared::switch_off;

/// Time for which a group that keeps forking is chased.
const EVACUATION_MAX: Duration = Duration::from_secs(10);

/// Undoes changes: first the levels of tasks, then groups of our own, then the values of files, then
/// what groups share, if none is left, then settings. Returns the entries about what is undone, and
/// whether all is: the kernel may accept the rest later, once limits of other cgroups have changed,
/// or a file is there again.
fn undo_all(restores: &Restores, report: &mut UndoReport) -> (Vec<Entry>, bool) {
    let (mut undone, mut is_done) = (Vec::new(), true);
    let groups: Vec<&Path> = restores.groups.keys().map(PathBuf::as_path).collect();
    let levels = restore_levels(restores, &groups, report);
    report.note(levels);
    for (name, own) in &restores.own {
        let name = name.clone();
        match undo_group(&name, own, report) {
            true => undone.push(Entry::Own { name, own: None }),
            false => is_done = false,
        }
    }
    // v1 refuses a quota of a cgroup around them before.
    let files = restores.held.values().flat_map(ForeignRestore::restores);
    let files: Vec<FileRestore> = files.collect();
    let (late, errors): (Vec<_>, Vec<_>) = try_restore_files(&files, report).into_iter().unzip();
    is_done &= late.is_empty();
    let problems = errors.iter().map(EngineError::to_string);
    report.problems.extend(problems);
    undone.extend(noted_files(restores.held.keys(), late));
    let gone = remove_parents(restores);
    is_done &= gone.len() == restores.parents.len();
    undone.extend(gone);
    if is_done {
        let off = switch_off(restores, report);
        is_done = off.len() == restores.enabled.len();
        undone.extend(off);
    }
    let set_back = put_back_settings(restores.settings.iter(), report);
    is_done &= set_back.len() == restores.settings.len();
    undone.extend(set_back);
    (undone, is_done)
}

/// Returns the entries about foreign cgroups that were put back, by folder, but for files that the
/// kernel refused.
pub(crate) fn noted_files<'a>(
    folders: impl Iterator<Item = &'a PathBuf>,
    refused: Vec<&FileRestore>,
) -> Vec<Entry> {
    let mut late: HashMap<_, Vec<FileRestore>> = HashMap::new();
    for file in refused {
        let of_one = late.entry(file.path.parent()).or_default();
        of_one.push(file.clone());
    }
    let noted = folders.map(|folder| match late.remove(&Some(&**folder)) {
        Some(earlier) => Entry::Held {
            folder: folder.clone(),
            held: ForeignRestore {
                inode: earlier.first().and_then(|file| file.inode),
                earlier,
                refused: true,
                ..ForeignRestore::default()
            },
        },
        None => Entry::gone(folder),
    });
    noted.collect()
}

/// Undoes a group of our own but for the nice levels of its tasks: its processes go where they were
/// before, and its cgroups are removed. Returns whether none of them is left.
pub(crate) fn undo_group(name: &str, own: &OwnRestore, report: &mut UndoReport) -> bool {
    let folders = own.tops().flat_map(|folder| tree(folder));
    let members: HashSet<i32> = folders.flat_map(|folder| processes_in(&folder)).collect();
    for (TaskId { tid, start_time }, from) in &own.moved {
        // A process that somebody else has moved on since stays there.
        if !members.contains(tid) {
            continue;
        }
        match tasks::find_start_time(*tid) {
            Ok(found) if found == *start_time => {
                let moved = move_back(from, *tid, report);
                report.note(moved);
            }
            Ok(_) | Err(EngineError::NoTarget { .. }) => {}
            // The process stays, because another one may have its pid by now.
            Err(error) => report.problems.push(error.to_string()),
        }
    }
    for (_, folders) in own.made().rev() {
        for (index, folder) in folders.iter().enumerate() {
            let evacuate_to = own.evacuate_to.get(index);
            let removed = remove_group(folder, evacuate_to.map(|to| (&**to, &mut *report)));
            report.note(removed);
        }
    }
    let is_left = own.tops().any(|folder| os::exists(folder));
    if !is_left {
        report.undone.push(name.to_owned());
    }
    !is_left
}

/// Lists the processes of one cgroup; none if it is gone, or threaded: then the domain above lists
/// them.
fn processes_in(folder: &Path) -> Vec<i32> {
    read_ids(&folder.join("cgroup.procs")).unwrap_or_default()
}

/// Moves a process back to its cgroup, or, if that is gone, to the nearest one above it that is
/// left.
pub(crate) fn move_back(folders: &[PathBuf], pid: i32, report: &mut UndoReport) -> Result<()> {
    for folder in folders {
        move_to_nearest(folder, pid, report)?;
    }
    Ok(())
}

/// Moves a process to a cgroup, or to the nearest one above that takes it: v2 refuses processes
/// where children have controllers, except at the root. There the limits above its old cgroup
/// would hold no more, so a new cgroup in the nearest one comes before. Groups of ours above are
/// skipped.
fn move_to_nearest(folder: &Path, pid: i32, report: &mut UndoReport) -> Result<()> {
    let above = folder.ancestors().skip(1).filter(|path| !may_be_own(path));
    let (mut first_error, mut refuses) = (None, None);
    for place in std::iter::once(folder).chain(above) {
        if !is_cgroup(place) {
            continue;
        }
        let is_root = !place.parent().is_some_and(is_cgroup);
        if let Some(within) = refuses.filter(|_| is_root)
            && move_into_new(within, pid, report).is_ok()
        {
            return Ok(());
        }
        if would_harm(place) {
            let path = place.to_owned();
            first_error = first_error.or(Some(CgroupError::HasChildren { path }));
            refuses = refuses.or(Some(place));
            continue;
        }
        match move_process(&[place.to_owned()], pid) {
            Ok(()) => return Ok(()),
            Err(error) => {
                let is_busy = error.os_error() == Some(libc::EBUSY);
                refuses = refuses.or(is_busy.then_some(place));
                first_error = first_error.or(Some(error));
            }
        }
    }
    first_error.map_or(Ok(()), |error| Err(error.into()))
}

fn is_cgroup(folder: &Path) -> bool {
    os::exists(&folder.join("cgroup.procs"))
}

/// Moves a process to a cgroup of its own kind in another, which may be there from before. It
/// stays, as the process does, which is noted once; whoever removes the other one removes it.
fn move_into_new(within: &Path, pid: i32, report: &mut UndoReport) -> Result<()> {
    let folder = within.join(LEFT);
    match os::create_folder(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(EngineError::file("create", &folder, error));
        }
        _ => {}
    }
    if let Err(error) = move_process(std::slice::from_ref(&folder), pid) {
        // It is not removed if it has processes.
        let _ = os::remove_folder(&folder);
        return Err(error.into());
    }
    let note = format!(
        "{}: stays, for processes whose old cgroup is gone or takes none",
        name::text_of(&folder)
    );
    if !report.notes.contains(&note) {
        report.notes.push(note);
    }
    Ok(())
}

/// Returns whether a process would make a v2 cgroup the root of a threaded subtree, so that the
/// cgroups in it take no processes any more.
pub(crate) fn would_harm(folder: &Path) -> bool {
    // The root has no type, and a threaded subtree is one already. With a controller that is not
    // for threads, such as memory, the kernel refuses the process anyway.
    let gives_any = || {
        let given = read_text(&folder.join("cgroup.subtree_control"));
        given.is_ok_and(|given| !given.is_empty())
    };
    let is_domain = matches!(CgroupKind::at(folder), Ok(Some(CgroupKind::Domain)));
    is_domain && gives_any() && folders_in(folder).is_ok_and(|below| !below.is_empty())
}

/// Moves all processes of a group, and of groups below it, to `evacuate_to`, which goes with the
/// report of the undo, and removes these groups.
pub(crate) fn remove_group(
    folder: &Path,
    mut evacuate_to: Option<(&Path, &mut UndoReport)>,
) -> Result<()> {
    let deadline = os::now() + EVACUATION_MAX;
    loop {
        if !os::exists(folder) {
            return Ok(());
        }
        let mut folders = tree(folder);
        folders.reverse();
        if let Some((target, report)) = &mut evacuate_to {
            for pid in folders.iter().flat_map(|folder| processes_in(folder)) {
                move_to_nearest(target, pid, report)?;
            }
        }
        let mut folders = folders.iter();
        match folders.try_for_each(|folder| os::remove_folder(folder)) {
            // A process forked in between, or a dying one is not gone yet.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && os::now() < deadline => {
                os::sleep(Duration::from_millis(1));
            }
            // Another program has removed one of them.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => {
                return other.map_err(|source| EngineError::file("remove", folder, source));
            }
        }
    }
}

/// Undoes a whole journal and removes it, as [`undo_groups`] does, and reports its subject.
///
/// # Errors
/// When the journal cannot be read or removed.
pub fn undo_journal(journal: Journal, report: &mut UndoReport) -> Result<()> {
    let subject = undo_groups(journal, report)?;
    report.undone.extend(subject);
    Ok(())
}

/// Undoes a whole journal and removes it. The journal stays for the next attempt while one of its
/// groups still exists or the kernel refuses a value. A damaged journal is undone as far as it is
/// valid, and set aside. Returns the journal's subject, if all is undone and anything else than
/// groups of our own was, which are reported by name.
///
/// # Errors
/// When the journal cannot be read or removed.
pub(crate) fn undo_groups(mut journal: Journal, report: &mut UndoReport) -> Result<Option<String>> {
    let parsed = journal.read_valid()?;
    if parsed
        .header
        .as_ref()
        .is_some_and(Header::is_of_another_boot)
    {
        // The objects of another boot are gone, and new ones may have their names.
        return journal.finish().map(|()| None);
    }
    let restores = Restores::of(parsed.entries);
    let (undone, is_done) = undo_all(&restores, report);
    if !is_done {
        // If it cannot be noted, it is only undone again.
        return journal.note(&undone).map(|()| None);
    }
    if let Some(first) = parsed.damaged.first() {
        let path = journal.path().to_owned();
        let aside = journal.set_aside()?;
        report.problems.push(format!(
            "{}: is damaged ({first}; damaged lines: {}); all else of it is undone, and it is kept as {}",
            path.display(),
            parsed.damaged.len(),
            aside.display()
        ));
        return Ok(None);
    }
    journal.finish()?;
    let header = parsed.header.filter(|_| !restores.held.is_empty());
    Ok(header.map(|header| header.subject))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_damaged_journal_is_reported_in_a_short_line() {
        let folder = tempfile::tempdir().unwrap();
        let header = Header::new("d", "");
        let path = Journal::create(folder.path(), &header)
            .unwrap()
            .path()
            .to_owned();
        let whole = fs::read_to_string(&path).unwrap();
        let key = "x".repeat(10_000);
        let damage = format!("{{\"{key}\":{{}}}}\n").repeat(3);
        fs::write(&path, format!("{whole}{damage}")).unwrap();
        let mut journal = Journal::take_over(&path).unwrap().unwrap();
        let refused = journal.rewrite(&[]).unwrap_err().to_string();
        assert!(refused.contains("line 2"), "{refused}");
        let mut report = UndoReport::default();
        undo_journal(journal, &mut report).unwrap();
        assert!(!path.exists() && path.with_extension("journal.damaged").exists());
        let [problem] = &*report.problems else {
            panic!("{report:?}")
        };
        assert!(problem.contains("(line 2: unknown variant `x"), "{problem}");
        assert!(
            problem.contains("x; damaged lines: 3); all else"),
            "{problem}"
        );
        assert!(problem.len() < 500, "{problem}");
    }
}
