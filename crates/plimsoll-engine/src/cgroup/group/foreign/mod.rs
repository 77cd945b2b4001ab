//! State of a group whose cgroup another process made.
//!
//! There may be thousands of such groups: no file stays open for one of them, no timer looks at
//! them, and the cost of one is the same however many there are. Only a soft cap and headroom need
//! a loop.

pub(in crate::cgroup) mod check;
pub(in crate::cgroup) mod journal;
pub(in crate::cgroup) mod prepared;

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, read_text};

use self::check::check_one_cgroup;
use self::prepared::{Known, Prepared};
use super::common::{Common, Context};
use super::layout::Layout;
use crate::cgroup::place::{explained, give_controller};
use crate::cgroup::values::{TrackedFile, Values, released};
use crate::error::{EngineError, Result};
use crate::journal::{Entry, FileRestore, GroupRestore, TaskRestore};
use crate::knobs::{Knobs, Nice};
use crate::undo::{self, UndoReport};

/// Values to put back into a foreign cgroup and its tasks.
#[derive(Debug, Default)]
pub(in crate::cgroup) struct Foreign {
    pub values: Values,
    /// Files that were not put back when the cgroup was in a group before, because the kernel
    /// refused that.
    pub earlier: Vec<FileRestore>,
    pub tasks: Vec<TaskRestore>,
    /// Nice level of tasks that the known tasks start; `None`: no task has a level from us.
    pub descendants: Option<GroupRestore>,
}

impl Foreign {
    pub fn known(&self, nice: Option<Nice>) -> Known<'_> {
        Known {
            values: &self.values,
            tasks: &self.tasks,
            descendants: self.descendants.as_ref(),
            nice,
        }
    }

    /// Returns the weight that the cgroup had at first.
    pub fn weight_at_first(&self, common: &Common) -> Result<u32> {
        self.values.weight_at_first(&common.layout.top)
    }

    /// Sets other knobs; undo still writes the first original values. A knob that is not set any
    /// more is put back. Loops are not started.
    ///
    /// # Errors
    /// When the kernel refuses; then all is as it was before.
    pub fn change(
        &mut self,
        common: &mut Common,
        knobs: &Knobs,
        context: &mut Context,
    ) -> Result<()> {
        check_one_cgroup(knobs)?;
        let group = common.layout.top.clone();
        group.check_exists()?;
        // The controller may be off since.
        give_controller(&group, &context.runtime)?;
        let yields = context.yields(knobs, common.is_scheduled, true);
        if !yields {
            // Before the quota is read and put back: the loop must not change it any more.
            context.headroom.remove(&common.name);
        }
        let known = self.known(common.knobs.nice);
        let mut prepared = Prepared::new(group.clone(), known, knobs, yields)?;
        let entries = std::mem::take(&mut prepared.entries);
        context.journal.record(&entries)?;
        if let Err(error) = prepared.execute() {
            self.keep_unreverted(&prepared.values, &group);
            return Err(explained(&group, knobs, error));
        }
        self.commit(prepared, context);
        common.layout = Layout::of_foreign(group, knobs, yields);
        common.knobs = knobs.clone();
        Ok(())
    }

    /// Takes over the original values of a change that has succeeded.
    pub fn commit(&mut self, prepared: Prepared, context: &mut Context) {
        let folder = folder_of(&prepared.group);
        self.values = prepared.values;
        self.tasks = prepared.tasks;
        self.descendants = prepared.descendants;
        self.earlier.extend(context.journal.take_late(&folder));
        context.journal.note(prepared.afterwards);
    }

    /// Returns the external changes of files that were not reported yet.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn audit(&mut self, common: &Common) -> Result<Vec<String>> {
        let group = &common.layout.top;
        group.check_exists()?;
        self.values.audit(group)
    }

    /// Puts nice levels back, but no files.
    pub fn restore_tasks(&self, report: &mut UndoReport) {
        for restore in &self.tasks {
            undo::restore_nice(restore, report);
        }
        if let Some(group) = &self.descendants {
            undo::restore_group(group, &self.tasks, report);
        }
    }

    /// Returns the data to put the files back as they were before the cgroup was in a group for the
    /// first time.
    pub fn restores(&self, group: &CpuGroup) -> Vec<FileRestore> {
        let mut all = self.values.restores(group);
        for earlier in &self.earlier {
            match all.iter_mut().find(|file| file.path == earlier.path) {
                Some(file) => {
                    file.old.clone_from(&earlier.old);
                    file.ours.extend(earlier.ours.iter().cloned());
                    file.driven |= earlier.driven;
                    // The journal's entry of a refused file has only the last.
                    if let Ok(now) = read_text(&file.path) {
                        file.ours.sort_by_key(|ours| *ours == now);
                    }
                }
                None => all.push(earlier.clone()),
            }
        }
        all
    }

    /// Tracks the files of a failed change that the kernel did not let us put back: they are still
    /// ours.
    fn keep_unreverted(&mut self, tried: &Values, group: &CpuGroup) {
        for file in tried.restores(group) {
            let is_known =
                |known: &TrackedFile| file.ours.last().is_some_and(|it| **it == *known.ours);
            let is_left = read_text(&file.path).is_ok_and(|now| file.ours.contains(&now));
            if !is_left || self.values.get(&file.path).is_some_and(is_known) {
                continue;
            }
            match self.earlier.iter_mut().find(|it| it.path == file.path) {
                // The value that this attempt has found is of an earlier attempt, not of others.
                Some(earlier) => earlier.ours.extend(file.ours),
                None => self.earlier.push(file),
            }
        }
    }

    /// Returns the journal's entry for a cgroup that is put back.
    pub fn released(&self, group: &CpuGroup) -> Entry {
        Entry::Released {
            paths: vec![folder_of(group)],
            tasks: self.tasks.iter().map(|restore| restore.task.tid).collect(),
        }
    }

    /// Returns this state with the tasks of `other`.
    pub fn with_tasks_of(mut self, other: &Self) -> Self {
        self.tasks.clone_from(&other.tasks);
        self.descendants.clone_from(&other.descendants);
        self
    }

    pub fn undo(self, common: &Common, context: &mut Context, report: &mut UndoReport) {
        let group = &common.layout.top;
        self.restore_tasks(report);
        let mut files = context.journal.take_all_late();
        let mut noted: Vec<Entry> = files.iter().map(|file| released(&file.path)).collect();
        files.extend(self.restores(group));
        let refused = undo::try_restore_files(&files, report);
        // A refusal because of the limits of others is no problem worth a report.
        let is_reported = |error: &EngineError| !undo::is_refused(error);
        let reported = refused.iter().filter(|(_, error)| is_reported(error));
        let reported = reported.map(|(_, error)| format!("{error}; it will be tried again"));
        report.problems.extend(reported);
        let late: Vec<FileRestore> = refused.into_iter().map(|(file, _)| file.clone()).collect();
        report.undone.push(common.name.as_ref().into());
        noted.push(self.released(group));
        noted.extend(late.iter().map(FileRestore::entry));
        context.journal.add_late(late);
        context.journal.note(noted);
        context.journal.forget_group();
    }
}

/// Returns a cgroup's folder in the form that the parent of its files has: without a slash at the
/// end.
pub(in crate::cgroup) fn folder_of(group: &CpuGroup) -> PathBuf {
    let file = group.cpu_file("cgroup.procs");
    file.parent().map(Path::to_owned).unwrap_or(file)
}
