//! Undo of nice levels: of tasks whose level Plimsoll changed, and of the tasks that these have
//! started since.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use plimsoll_cgroupfs::{os, threads_below};

use super::UndoReport;
use crate::error::Result;
use crate::journal::{GroupRestore, TaskRestore};
use crate::tasks::{self, TaskId};

/// Time for which a cgroup whose tasks keep forking is searched.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// Largest number of ancestors searched.
const GENERATIONS_MAX: usize = 64;

/// Gives a task its nice level back, unless it has been given another since.
pub(crate) fn restore_nice(restore: &TaskRestore, report: &mut UndoReport) {
    let TaskRestore { task, old, ours } = restore;
    let Ok(now) = tasks::nice(task.tid) else {
        return;
    };
    if now == *old || !task.exists() {
        return;
    }
    if ours.contains(&now) {
        return report.note(tasks::set_nice(task.tid, *old));
    }
    report.problems.push(format!(
        "task {}: has nice {now}, which is not ours; left as it is, it was {old}",
        task.tid
    ));
}

/// Known tasks of one cgroup, to find the nice level that a task would have without Plimsoll.
#[derive(Debug)]
pub(crate) struct Lineage<'a> {
    group: &'a GroupRestore,
    /// Original levels of the tasks in the journal.
    known: HashMap<TaskId, i32>,
    /// Tasks of the cgroup.
    members: HashSet<i32>,
}

impl<'a> Lineage<'a> {
    pub fn new(group: &'a GroupRestore, known: &[TaskRestore]) -> Self {
        Self {
            group,
            known: known
                .iter()
                .map(|restore| (restore.task, restore.old))
                .collect(),
            members: HashSet::new(),
        }
    }

    /// Reads the current members of the cgroup.
    pub fn look(&mut self) {
        let folder = self.group.processes.parent();
        self.members = folder
            .map(|folder| threads_below(folder, &[]))
            .unwrap_or_default()
            .into_iter()
            .collect();
    }

    /// Returns the level that a task of the cgroup gets back. `None`: its present level is not from
    /// us, or the task is in the journal itself.
    fn level_before(&self, tid: i32) -> Option<i32> {
        if self.known.contains_key(&TaskId::of(tid)?) {
            return None;
        }
        self.inherited(tid, tasks::nice(tid).ok()?)
    }

    /// Returns the level that a task with the level `now` gets back, if it is not in the journal
    /// itself. `None`: its level is not from us.
    pub fn inherited(&self, tid: i32, now: i32) -> Option<i32> {
        if !self.group.ours.contains(&now) {
            return None;
        }
        let line =
            std::iter::successors(tasks::inherits_from(tid), |tid| tasks::inherits_from(*tid));
        for tid in line.take_while(|tid| *tid > 0).take(GENERATIONS_MAX) {
            let known = TaskId::of(tid).and_then(|task| self.known.get(&task));
            if let Some(old) = known {
                return Some(*old);
            }
            if !self.members.contains(&tid) {
                // The ancestor is outside the cgroup. If it has the same level, the task
                // inherited the level from it; else the task is an orphan.
                let is_its_own = tasks::nice(tid).is_ok_and(|parents| parents == now);
                return if is_its_own { None } else { self.usual(now) };
            }
        }
        self.usual(now)
    }

    /// Returns the level for a task with no known ancestor. `None` if a member of the cgroup had
    /// the level `now` before, because the task may descend from it and must not get a better level
    /// than it had.
    fn usual(&self, now: i32) -> Option<i32> {
        let had_it = |(task, old): (&TaskId, &i32)| *old == now && self.members.contains(&task.tid);
        let is_open = self.known.iter().any(had_it);
        (!is_open).then_some(self.group.old)
    }
}

/// Gives tasks that have inherited a level of ours in a cgroup the level that they would have
/// without us. `known`: tasks in the journal, whose levels are restored already. Tasks fork
/// meanwhile, so the search is repeated until nothing is found.
pub(crate) fn restore_group(group: &GroupRestore, known: &[TaskRestore], report: &mut UndoReport) {
    report.note(sweep(&mut Lineage::new(group, known)));
}

fn sweep(lineage: &mut Lineage<'_>) -> Result<()> {
    let deadline = os::now() + SWEEP_MAX;
    loop {
        lineage.look();
        let mut found = false;
        for tid in &lineage.members {
            let Some(old) = lineage.level_before(*tid) else {
                continue;
            };
            if tasks::nice(*tid).is_ok_and(|now| now != old) {
                found = true;
                tasks::set_nice(*tid, old)?;
            }
        }
        if !found || os::now() >= deadline {
            return Ok(());
        }
    }
}

/// Returns the most common old level of these tasks; of two equally common ones, the weaker.
pub(crate) fn commonest_level(tasks: &[TaskRestore]) -> Option<i32> {
    let mut counts: HashMap<i32, usize> = HashMap::new();
    for restore in tasks {
        *counts.entry(restore.old).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(level, count)| (*count, *level));
    most.map(|(level, _)| level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nice_level_that_somebody_else_gave_stays() {
        let tid = nix::unistd::gettid().as_raw();
        let task = tasks::TaskId::of(tid).unwrap();
        let old = tasks::nice(tid).unwrap();
        tasks::set_nice(tid, 18).unwrap();
        let ours = vec![17];
        let mut report = UndoReport::default();
        restore_nice(&TaskRestore { task, old, ours }, &mut report);
        assert_eq!((report.problems.len(), tasks::nice(tid).unwrap()), (1, 18));
    }
    fn restore(tid: i32, old: i32) -> TaskRestore {
        let task = TaskId { tid, start_time: 1 };
        let ours = vec![7];
        TaskRestore { task, old, ours }
    }

    #[test]
    fn the_commonest_level_is_what_most_had_and_of_two_the_weaker() {
        let of = |levels: &[i32]| {
            let tasks: Vec<_> = levels.iter().map(|level| restore(1, *level)).collect();
            commonest_level(&tasks)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0, 5, 0]), Some(0));
        assert_eq!(of(&[5, 0, 0, 5]), Some(5));
    }

    #[test]
    fn whose_level_may_be_its_own_is_not_given_a_better_one() {
        let group = GroupRestore {
            processes: "/nowhere/cgroup.procs".into(),
            old: 0,
            ours: vec![7],
        };
        // The parent of this process is no member, and has another level.
        let tid = std::process::id().cast_signed();
        let lineage = |known: &[TaskRestore]| {
            let mut lineage = Lineage::new(&group, known);
            lineage.members = HashSet::from([tid, 1]);
            lineage
        };
        let two = [restore(1, 0), restore(2, 7)];
        assert_eq!(lineage(&two).inherited(tid, 7), Some(0));
        assert_eq!(lineage(&two).inherited(tid, 5), None);
        // A member had that level without us, and the task may descend from it.
        assert_eq!(lineage(&[restore(1, 7)]).inherited(tid, 7), None);
    }
}
