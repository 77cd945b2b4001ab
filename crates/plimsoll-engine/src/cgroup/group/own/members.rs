//! Processes of an own group: their moves, and their nice levels.
//!
//! Its tasks, present and later, have the level of the knobs; a command sets the level on itself. A
//! process that comes from another group leaves that one's level behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CgroupError, CpuGroup, Hierarchy, name};

use crate::cgroup::group::Group;
use crate::cgroup::group::context::Context;
use crate::cgroup::group::layout::Layout;
use crate::cgroup::level::Level;
use crate::error::{EngineError, Result};
use crate::journal::{Entry, OwnRestore};
use crate::tasks::{self, TaskId};
use crate::undo::{self, Levels, UndoReport};

/// State of a process before a group was made for it.
pub(super) struct Before {
    pid: i32,
    /// Folders of its cgroup, one a hierarchy.
    place: Vec<PathBuf>,
    /// Folders to which it goes in the end, if it is in a group of our own already.
    home: Option<Vec<PathBuf>>,
    /// Its tasks, each with its level, and the one that it would have without us.
    levels: Vec<Level>,
}

impl Before {
    /// Reads the state.
    ///
    /// # Errors
    /// When there is no such process, or the pid is another one's by now.
    pub fn of(process: TaskId, context: &Context) -> Result<Self> {
        check_exists(process)?;
        let pid = process.tid;
        Ok(Self {
            pid,
            place: context.hierarchy.folders_of(pid)?,
            home: home_of(pid, context)?,
            levels: levels_of(pid, context)?,
        })
    }

    /// Returns the folders to which the process goes in the end.
    pub fn home(&self) -> &[PathBuf] {
        self.home.as_deref().unwrap_or(&self.place)
    }

    /// Returns the nice level that the process would have without us.
    pub fn nice(&self) -> i32 {
        self.levels.first().map_or(0, |level| level.before)
    }

    /// Puts a process back into the group of our own in which it was. The undo of the new group
    /// would take it out of that, too; it moves only processes that are still there.
    pub fn put_back_into_group(&self, report: &mut UndoReport) {
        if self.home.is_some() {
            // A process that cannot be moved goes home with the undo.
            let _ = undo::move_back(&self.place, self.pid, report);
        }
    }

    /// Gives the process its levels of before again, after the undo of the new group. The journal has
    /// them still, as those of the group in which it was.
    pub fn give_levels_again(&self) {
        for level in self.levels.iter().filter(|level| level.now != level.before) {
            // The kernel has accepted the level before.
            let _ = tasks::set_nice(level.task.tid, level.now);
        }
    }
}

/// Returns the folders to which a process goes in the end that is in a group of our own.
fn home_of(pid: i32, context: &Context) -> Result<Option<Vec<PathBuf>>> {
    let place = context.hierarchy.cgroup_of(pid)?;
    let folder = context.hierarchy.cpu_folder(&place);
    let home = context
        .journal
        .restores()
        .home_of(TaskId::find(pid)?, &folder);
    Ok(home.map(<[PathBuf]>::to_vec))
}

/// Reads the levels of a process that is about to come.
fn levels_of(pid: i32, context: &Context) -> Result<Vec<Level>> {
    let place = context.hierarchy.cgroup_of(pid)?;
    let folder = context.hierarchy.cpu_folder(&place);
    read_levels(tasks::threads(pid), &folder, context)
}

/// Reads the levels of tasks in a cgroup, by its folder.
fn read_levels(
    tids: impl IntoIterator<Item = i32>,
    folder: &Path,
    context: &Context,
) -> Result<Vec<Level>> {
    let mut known = Levels::new(context.journal.restores());
    let mut levels = Vec::new();
    for tid in tids {
        if let Some((task, now)) = tasks::with_nice(tid)? {
            let before = known.before(folder, task, now);
            levels.push(Level { task, now, before });
        }
    }
    Ok(levels)
}

/// Checks that a process exists, and that its pid is not another one's by now.
fn check_exists(process: TaskId) -> Result<()> {
    match process.exists() {
        true => Ok(()),
        false => Err(EngineError::NoTarget {
            target: process.tid.to_string(),
            what: "process",
        }),
    }
}

impl Group {
    /// Moves a running process into a group, unless it is there.
    pub(in crate::cgroup) fn move_in(&self, process: TaskId, context: &mut Context) -> Result<()> {
        let pid = process.tid;
        let hierarchy = &context.hierarchy;
        let from = hierarchy.folders_of(pid)?;
        let own = self.layout.top.folders();
        let mut pairs = from.iter().zip(&own);
        if pairs.all(|(place, own)| place.starts_with(own)) {
            return Ok(());
        }
        check_together(hierarchy, pid, &from)?;
        check_thawed(hierarchy, pid)?;
        let levels = levels_of(pid, context)?;
        let home = home_of(pid, context)?;
        context.journal.record(&[Entry::Move {
            group: self.name.as_ref().into(),
            process,
            // Another group of our own may be gone then.
            from: home.unwrap_or(from),
        }])?;
        // The journal takes time.
        check_exists(process)?;
        let added = self.layout.leaf.add_process(pid);
        added.map_err(|error| real_time_refused(error, pid))?;
        let nice = self.knobs.nice;
        let due = levels
            .iter()
            .filter(|level| nice.is_some() || level.before != level.now);
        let new = due.map(|level| (level, nice.map_or(level.before, |nice| nice.nice)));
        self.give_levels(new, context)
    }

    /// Gives tasks of the group levels, but for those that the group has given.
    fn give_levels<'a>(
        &self,
        levels: impl Iterator<Item = (&'a Level, i32)>,
        context: &mut Context,
    ) -> Result<()> {
        let processes = processes_of(&self.layout);
        let restores = context.journal.restores();
        let due: Vec<_> = levels
            .filter(|(level, new)| !level.is_given(*new, &processes, restores))
            .collect();
        let entries = due
            .iter()
            .flat_map(|(level, new)| level.entries(*new, &processes));
        let entries: Vec<Entry> = entries.collect();
        context.journal.record(&entries)?;
        due.into_iter()
            .try_for_each(|(level, new)| tasks::set_nice(level.task.tid, new))
    }

    /// Records that tasks in a layout's cgroups have the level of the knobs.
    pub(super) fn record_nice(&self, layout: &Layout, context: &mut Context) -> Result<()> {
        let own = context.journal.restores().own.get(&*self.name);
        let (Some(own), Some(nice)) = (own, self.knobs.nice) else {
            return Ok(());
        };
        let entry = Entry::ReniceGroup {
            processes: processes_of(layout),
            old: own.nice,
            new: nice.nice,
        };
        context.journal.record(&[entry])
    }

    /// Gives all tasks of the group the level of the knobs.
    pub(super) fn renice_all(&self, context: &mut Context) -> Result<()> {
        let Some(new) = self.knobs.nice else {
            return self.reset_nice(context);
        };
        let layout = &self.layout;
        let levels = read_levels(layout.top.all_threads()?, &layout.top.cpu_file(""), context)?;
        self.record_nice(layout, context)?;
        let levels = levels.iter().map(|level| (level, new.nice));
        self.give_levels(levels, context)
    }

    /// Gives every task of the group the level that it would have without us. A level that somebody
    /// else has set stays, as it does at the end.
    fn reset_nice(&self, context: &mut Context) -> Result<()> {
        let restores = context.journal.restores();
        let own = restores.own.get(&*self.name).into_iter();
        let all = own.flat_map(OwnRestore::processes);
        let paths: Vec<PathBuf> = all.filter(|it| restores.groups.contains_key(it)).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let all: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
        undo::restore_levels(restores, &all, &mut UndoReport::default())?;
        // Not the cgroups themselves, which stay.
        let gone = paths.iter().map(|path| Entry::gone(path));
        context.journal.note(gone);
        Ok(())
    }
}

/// Checks that the threads of a process are in one place: a move, and its undo, would put them into
/// one.
fn check_together(hierarchy: &Hierarchy, pid: i32, from: &[PathBuf]) -> Result<()> {
    for tid in tasks::threads(pid) {
        // A thread that has ended since has no cgroup.
        if hierarchy.folders_of(tid).is_ok_and(|place| place != from) {
            let cgroup = name::shown(&hierarchy.cgroup_of(tid)?);
            return Err(EngineError::ThreadsApart { pid, tid, cgroup });
        }
    }
    Ok(())
}

/// Checks that a move does not thaw a process.
fn check_thawed(hierarchy: &Arc<Hierarchy>, pid: i32) -> Result<()> {
    let place = CpuGroup::at(hierarchy, hierarchy.cgroup_of(pid)?);
    match place.frozen_by() {
        Some(frozen) => Err(EngineError::Frozen {
            pid,
            cgroup: name::shown(frozen.path()),
        }),
        None => Ok(()),
    }
}

/// Explains why a process cannot enter: a kernel with groups of real-time tasks lets none into a
/// cgroup that has no real-time runtime of its own (`sched_rt_can_attach` in kernel/sched/rt.c).
fn real_time_refused(error: CgroupError, pid: i32) -> EngineError {
    match error.os_error() {
        Some(libc::EINVAL) if tasks::nr_real_time(&tasks::threads(pid)) > 0 => {
            EngineError::RealTime { pid }
        }
        _ => error.into(),
    }
}

fn processes_of(layout: &Layout) -> PathBuf {
    layout.top.cpu_file("cgroup.procs")
}
