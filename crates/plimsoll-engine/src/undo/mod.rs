//! Putting things back as they were found.

mod nice;
mod recover;
mod values;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use recover::recover;

pub(crate) use nice::{Lineage, commonest_level, restore_group, restore_nice};
pub(crate) use values::{is_refused, restore_files, try_restore_files};

use plimsoll_cgroupfs::{move_process, read_ids, read_text, threads_below, write_text};

use crate::error::{EngineError, Result};
use crate::journal::{self, Entry, FileRestore, Header, Journal, Restores};
use crate::own_groups::{has_group_of_ours, may_be_own};
use crate::policies::Policies;
use crate::runtime::{RuntimeFolder, temporary};
use crate::tasks::{self, Policy, TaskId};

/// A group that keeps forking is chased for this long.
const EVACUATION_MAX: Duration = Duration::from_secs(10);

/// What an undo did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// Groups and targets that are as they were.
    pub undone: Vec<String>,
    /// What could not be put back, or was changed by somebody else since.
    pub problems: Vec<String>,
}

impl UndoReport {
    /// Adds what another undo did.
    pub fn extend(&mut self, more: Self) {
        self.undone.extend(more.undone);
        self.problems.extend(more.problems);
    }

    fn note(&mut self, result: Result<()>) {
        match result {
            Err(error) if !error.is_gone() => self.problems.push(error.to_string()),
            _ => (),
        }
    }
}

/// Undoes entries: first the values of files and tasks, then all else, the last
/// first. Returns whether all is done: what the kernel refuses because of
/// limits of other cgroups it may take later.
pub fn undo_entries(entries: &[Entry], report: &mut UndoReport) -> bool {
    let Restores {
        files,
        tasks,
        groups,
        others,
    } = journal::restores(entries.to_vec());
    let files = of_held_cgroups(files, &others);
    let is_done = restore_files(&files, report);
    for restore in &tasks {
        restore_nice(restore, report);
    }
    for group in &groups {
        restore_group(group, &tasks, report);
    }
    let members = members(entries);
    for entry in others.iter().rev() {
        // One that somebody else has moved on since stays there.
        let is_elsewhere = match (entry, &members) {
            (Entry::Move { pid, .. }, Some(members)) => !members.contains(pid),
            _ => false,
        };
        if !is_elsewhere {
            undo_entry(entry, entries, report);
        }
    }
    for entry in others.iter().rev() {
        if let Entry::Enable { path } = entry {
            report.note(disable(path));
        }
    }
    is_done
}

/// The files but for those of cgroups that were removed, and made anew by others, since.
fn of_held_cgroups(mut files: Vec<FileRestore>, others: &[Entry]) -> Vec<FileRestore> {
    let inodes: HashMap<&Path, u64> = others
        .iter()
        .filter_map(|entry| match entry {
            Entry::Hold { folder, inode } => Some((folder.as_path(), *inode)),
            _ => None,
        })
        .collect();
    files.retain(|file| {
        let held = file
            .path
            .parent()
            .and_then(|folder| inodes.get_key_value(folder));
        held.is_none_or(|(folder, inode)| {
            fs::metadata(folder).is_ok_and(|found| found.ino() == *inode)
        })
    });
    files
}

/// The processes of all cgroups that were created; `None`: none were, and
/// processes were moved to a place of somebody else's.
fn members(entries: &[Entry]) -> Option<HashSet<i32>> {
    let mut found = None;
    for entry in entries {
        if let Entry::Create { folders, .. } = entry {
            let members: &mut HashSet<i32> = found.get_or_insert_default();
            folders
                .iter()
                .for_each(|folder| add_members(folder, members));
        }
    }
    found
}

fn add_members(folder: &Path, members: &mut HashSet<i32>) {
    members.extend(read_ids(&folder.join("cgroup.procs")).unwrap_or_default());
    for child in below(folder) {
        add_members(&child, members);
    }
}

/// Undoes an entry that is no value of a file or a task, one of `all`.
fn undo_entry(entry: &Entry, all: &[Entry], report: &mut UndoReport) {
    match entry {
        Entry::Create {
            folders,
            evacuate_to,
        } => {
            for (index, folder) in folders.iter().enumerate() {
                report.note(remove_group(
                    folder,
                    evacuate_to.get(index).map(PathBuf::as_path),
                ));
            }
        }
        Entry::Move {
            pid,
            start_time,
            from,
        } => {
            if tasks::start_time(*pid) == Some(*start_time) {
                report.note(move_back(from, *pid));
            }
        }
        Entry::Schedule { folder, policy } => {
            let policies = Policies::new(*policy).with(all);
            report.note(unschedule(folder, &[], &policies));
        }
        Entry::Repolicy {
            tid,
            start_time,
            old,
        } => report.note(repolicy(*tid, *start_time, *old)),
        Entry::Pin { folder } => report.note(remove_pins(folder)),
        Entry::Publish { path } => report.note(remove_file(path)),
        // Of files and tasks; after all others; nothing to undo.
        Entry::Write { .. }
        | Entry::Control { .. }
        | Entry::Renice { .. }
        | Entry::ReniceGroup { .. }
        | Entry::Enable { .. }
        | Entry::Hold { .. }
        | Entry::Change { .. }
        | Entry::Released { .. } => (),
    }
}

/// Takes the cpu controller back from the children of a cgroup, unless groups
/// of ours are among them: those go by [`hand_over_enabled`].
fn disable(path: &Path) -> Result<()> {
    let is_in_use = path.parent().is_some_and(has_group_of_ours);
    let enabled = read_text(path)?;
    if is_in_use || !enabled.split_whitespace().any(|name| name == "cpu") {
        return Ok(());
    }
    Ok(write_text(path, "-cpu")?)
}

/// Leaves `+cpu` that groups of ours still need to whoever is the last of them
/// to go.
///
/// # Errors
/// When what is shared cannot be read or written.
pub(crate) fn hand_over_enabled(entries: &[Entry], runtime: &RuntimeFolder) -> Result<()> {
    let enabled = entries.iter().filter_map(|entry| match entry {
        Entry::Enable { path } if path.parent().is_some_and(has_group_of_ours) => Some(path),
        _ => None,
    });
    let enabled: Vec<&PathBuf> = enabled.collect();
    if enabled.is_empty() {
        return Ok(());
    }
    let mut shared = runtime.shared()?;
    for path in enabled {
        if !shared.enabled.contains(path) {
            shared.enabled.push(path.clone());
        }
    }
    runtime.set_shared(&shared)
}

/// The same as [`undo_journal`], with [`hand_over_enabled`] before it.
///
/// # Errors
/// As both.
pub(crate) fn undo_and_hand_over(
    mut journal: Journal,
    runtime: &RuntimeFolder,
    report: &mut UndoReport,
) -> Result<()> {
    hand_over_enabled(&journal.read_sound()?.entries, runtime)?;
    undo_journal(journal, report)
}

/// Whether a task has a policy that it has from us.
fn has_our_policy(tid: i32) -> bool {
    tasks::policy_number(tid)
        .is_some_and(|policy| Policy::of(policy) == Policy::Ext || tasks::is_away(tid, policy))
}

/// Gives a task its policy back, if it has ours.
fn repolicy(tid: i32, start_time: u64, old: i32) -> Result<()> {
    let task = TaskId { tid, start_time };
    if !has_our_policy(tid) || !task.exists() {
        return Ok(());
    }
    let mut policies = Policies::default();
    policies.remember(task, old);
    policies.give_back(tid)
}

/// Hands the tasks of a cgroup and of all below it, but for the cgroups `apart`,
/// back to the fair class, each with the policy that it had. They fork
/// meanwhile, and a child inherits the policy: once is not enough.
///
/// # Errors
/// When the kernel refuses.
pub fn unschedule(folder: &Path, apart: &[PathBuf], policies: &Policies) -> Result<()> {
    let deadline = Instant::now() + EVACUATION_MAX;
    loop {
        let mut found = false;
        for tid in threads_below(folder, apart) {
            if has_our_policy(tid) {
                found = true;
                policies.give_back(tid)?;
            }
        }
        if !found || Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// Removes a file of ours, if it is there, and what it was to be replaced by.
fn remove_file(path: &Path) -> Result<()> {
    for path in [temporary(path), path.to_owned()] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(EngineError::file("remove", &path, error));
            }
            _ => (),
        }
    }
    Ok(())
}

/// Removes what is pinned in a folder, and the folder.
fn remove_pins(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    let failed = |source| EngineError::file("remove", folder, source);
    for entry in entries.flatten() {
        fs::remove_file(entry.path()).map_err(failed)?;
    }
    fs::remove_dir(folder).map_err(failed)
}

/// Moves a process to where it was, or, if that cgroup is gone, to the
/// nearest one above it that is left.
fn move_back(folders: &[PathBuf], pid: i32) -> Result<()> {
    for folder in folders {
        move_to_nearest(folder, pid)?;
    }
    Ok(())
}

/// Moves a process to a cgroup, or to the nearest one above it that takes
/// it: v2 refuses processes where children have controllers, except at the
/// root. Groups of ours that happen to be above are no place to stay.
fn move_to_nearest(folder: &Path, pid: i32) -> Result<()> {
    let above = folder.ancestors().skip(1).filter(|path| !may_be_own(path));
    let mut first_error = None;
    for place in std::iter::once(folder).chain(above) {
        if !place.join("cgroup.procs").exists() {
            continue;
        }
        match move_process(&[place.to_owned()], pid) {
            Ok(()) => return Ok(()),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    first_error.map_or(Ok(()), |error| Err(error.into()))
}

/// Moves everything that runs in a group, or in groups below it, elsewhere
/// and removes them.
pub(crate) fn remove_group(folder: &Path, evacuate_to: Option<&Path>) -> Result<()> {
    let deadline = Instant::now() + EVACUATION_MAX;
    loop {
        if !folder.exists() {
            return Ok(());
        }
        if let Some(target) = evacuate_to {
            evacuate(folder, target)?;
        }
        match remove_tree(folder) {
            // A process forked in between, or a dying one is not gone yet.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => {
                return other.map_err(|source| EngineError::file("remove", folder, source));
            }
        }
    }
}

/// The folders of the cgroups directly below one.
fn below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries
        .flatten()
        .filter(is_folder)
        .map(|entry| entry.path())
        .collect()
}

fn evacuate(folder: &Path, target: &Path) -> Result<()> {
    for child in below(folder) {
        evacuate(&child, target)?;
    }
    let text = match read_text(&folder.join("cgroup.procs")) {
        Ok(text) => text,
        // Gone, or threaded: then the domain above lists its processes.
        Err(_) => return Ok(()),
    };
    for pid in text.lines().filter_map(|line| line.parse().ok()) {
        move_to_nearest(target, pid)?;
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> std::io::Result<()> {
    for child in below(folder) {
        remove_tree(&child)?;
    }
    fs::remove_dir(folder)
}

/// Undoes a journal whole and removes it. While a group of it is still
/// there, or the kernel refuses a value, the journal stays for the next
/// attempt. Of one that is damaged, what can be read is undone, and it is kept
/// aside.
///
/// # Errors
/// When the journal cannot be read or removed.
pub fn undo_journal(mut journal: Journal, report: &mut UndoReport) -> Result<()> {
    let sound = journal.read_sound()?;
    if sound
        .header
        .as_ref()
        .is_some_and(Header::is_of_another_boot)
    {
        // Nothing of it is left, and another thing may have its name.
        return journal.finish();
    }
    let is_done = undo_entries(&sound.entries, report);
    let left = sound.entries.iter().any(|entry| match entry {
        Entry::Create { folders, .. } => folders.iter().any(|folder| folder.exists()),
        _ => false,
    });
    if left || !is_done {
        return Ok(());
    }
    if !sound.damaged.is_empty() {
        let path = journal.path().to_owned();
        let aside = journal.set_aside()?;
        report.problems.push(format!(
            "{}: is damaged ({}); all else of it is undone, and it is kept as {}",
            path.display(),
            sound.damaged.join("; "),
            aside.display()
        ));
        return Ok(());
    }
    if let Some(header) = sound.header {
        report.undone.push(if header.persistent {
            header.subject
        } else {
            header.name
        });
    }
    journal.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_controller_that_groups_of_ours_need_goes_with_the_last_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path().join("run"));
        runtime.create().unwrap();
        let control = folder.path().join("cgroup.subtree_control");
        fs::write(&control, "cpu io").unwrap();
        let group = folder.path().join("plimsoll");
        fs::create_dir(&group).unwrap();
        let undo_one = || {
            let header = Header::new("a", "/a", &Default::default());
            let mut journal = Journal::create(runtime.path(), &header).unwrap();
            let path = control.clone();
            journal.record(&[Entry::Enable { path }]).unwrap();
            let mut report = UndoReport::default();
            undo_and_hand_over(journal, &runtime, &mut report).unwrap();
            assert!(report.problems.is_empty(), "{report:?}");
        };
        let shared = || runtime.shared().unwrap().enabled;
        undo_one();
        assert_eq!(fs::read_to_string(&control).unwrap(), "cpu io");
        assert_eq!(shared(), std::slice::from_ref(&control));
        fs::remove_dir(&group).unwrap();
        undo_one();
        assert!(fs::read_to_string(&control).unwrap().starts_with("-cpu"));
    }

    #[test]
    fn what_was_published_goes_with_what_was_to_replace_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, "{}").unwrap();
        fs::write(temporary(&path), "{").unwrap();
        let entries = [Entry::Publish { path }];
        let mut report = UndoReport::default();
        assert!(undo_entries(&entries, &mut report));
        // It need not be there.
        assert!(undo_entries(&entries, &mut report));
        assert_eq!(report, UndoReport::default());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
