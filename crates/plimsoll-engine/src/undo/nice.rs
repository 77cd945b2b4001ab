//! Undo of nice levels: of tasks whose level Plimsoll changed, and of the tasks that these have
//! started since.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_cgroupfs::{find_folder, os, threads_below};

use super::UndoReport;
use crate::error::Result;
use crate::journal::{GroupRestore, Restores, TaskRestore};
use crate::tasks::{self, TaskId};

/// Time for which a cgroup whose tasks keep forking is searched.
const SWEEP_MAX: Duration = Duration::from_secs(2);
/// Largest number of ancestors searched.
const GENERATIONS_MAX: usize = 64;

/// Gives the tasks of groups the nice levels that they would have without us: those that were given
/// one, and those that have inherited it. `processes`: the files of the groups' cgroups. A level
/// that somebody else has given stays, and so does one that another group has given since.
///
/// # Errors
/// The first refusal. All other levels are given nevertheless.
pub(crate) fn restore_levels(
    restores: &Restores,
    processes: &[&Path],
    report: &mut UndoReport,
) -> Result<()> {
    let mut done = Ok(());
    let paths = processes.iter();
    let groups: Vec<_> = paths
        .filter_map(|path| Some((*path, restores.groups.get(*path)?)))
        .collect();
    for (path, group) in &groups {
        for task in &group.tasks {
            let restore = restores.tasks.get(task);
            if let Some(restore) = restore.filter(|it| it.last_of(path).is_some()) {
                done = done.and(restore_nice(*task, restore, report));
            }
        }
    }
    for (path, group) in groups {
        let folder = path.parent().unwrap_or(path);
        // Tasks of another cgroup at the same path have their levels from others.
        let inode = restores.held(folder).inode;
        if let Ok(folder) = find_folder(folder, inode) {
            let mut lineage = Lineage::new(group, &restores.tasks);
            done = done.and(sweep(&mut lineage, &folder.join("cgroup.procs")));
        }
    }
    done
}

/// Gives a task its nice level back, unless it has been given another since.
fn restore_nice(task: TaskId, restore: &TaskRestore, report: &mut UndoReport) -> Result<()> {
    let old = restore.old;
    let Ok(now) = tasks::nice(task.tid) else {
        return Ok(());
    };
    if now == old || !task.exists() {
        return Ok(());
    }
    if restore.is_ours(now) {
        return tasks::set_nice(task.tid, old);
    }
    report.problems.push(format!(
        "task {}: has nice {now}, which is not ours; left as it is, it was {old}",
        task.tid
    ));
    Ok(())
}

/// Tasks of one cgroup, to find the nice level that a task would have without Plimsoll.
#[derive(Debug)]
struct Lineage<'a> {
    group: &'a GroupRestore,
    /// Tasks whose level is recorded, of whichever group.
    known: &'a BTreeMap<TaskId, TaskRestore>,
    /// Tasks of the cgroup.
    members: HashSet<i32>,
}

impl<'a> Lineage<'a> {
    fn new(group: &'a GroupRestore, known: &'a BTreeMap<TaskId, TaskRestore>) -> Self {
        Self {
            group,
            known,
            members: HashSet::new(),
        }
    }

    /// Reads the current members of the cgroup.
    fn look(&mut self, processes: &Path) {
        let folder = processes.parent();
        let members = folder.map(threads_below);
        self.members = members.unwrap_or_default().into_iter().collect();
    }

    /// Returns the level that a task of the cgroup gets back. `None`: its present level is not from
    /// us, or is recorded itself.
    fn level_before(&self, tid: i32) -> Option<i32> {
        if self.known.contains_key(&TaskId::of(tid)?) {
            return None;
        }
        self.inherited(tid, tasks::nice(tid).ok()?)
    }

    /// Returns the level that a task with the level `now` gets back, if it is not recorded itself.
    /// `None`: its level is not from us.
    fn inherited(&self, tid: i32, now: i32) -> Option<i32> {
        if !self.group.ours.contains(&now) {
            return None;
        }
        let line =
            std::iter::successors(tasks::inherits_from(tid), |tid| tasks::inherits_from(*tid));
        let mut is_its_own = false;
        for tid in line.take_while(|tid| *tid > 0).take(GENERATIONS_MAX) {
            let known = TaskId::of(tid).and_then(|task| self.known.get(&task));
            if let Some(restore) = known {
                return Some(restore.old);
            }
            if self.members.contains(&tid) {
                continue;
            }
            // The ancestor is outside the cgroup. If it has the same level, the task inherited the
            // level from it, unless the ancestor has it from us; else the task is an orphan.
            if !tasks::nice(tid).is_ok_and(|ancestors| ancestors == now) {
                break;
            }
            is_its_own = true;
        }
        if is_its_own { None } else { self.usual(now) }
    }

    /// Returns the level for a task with no known ancestor. `None` if a member of the cgroup had
    /// the level `now` before, because the task may descend from it and must not get a better level
    /// than it had.
    fn usual(&self, now: i32) -> Option<i32> {
        let of = |tid, start_time| TaskId { tid, start_time };
        let had_it = |tid: &i32| {
            let mut known = self.known.range(of(*tid, 0)..=of(*tid, u64::MAX));
            known.any(|(_, restore)| restore.old == now)
        };
        let is_open = self.members.iter().any(had_it);
        (!is_open).then_some(self.group.old)
    }
}

/// Nice levels that tasks would have without us.
#[derive(Debug)]
pub(crate) struct Levels<'a> {
    restores: &'a Restores,
    /// Tasks of the groups asked for so far, by the files of their cgroups.
    lineages: BTreeMap<PathBuf, Lineage<'a>>,
}

impl<'a> Levels<'a> {
    pub fn new(restores: &'a Restores) -> Self {
        Self {
            restores,
            lineages: BTreeMap::new(),
        }
    }

    /// Returns the level that a task in a cgroup, by folder, would have without us; `now`: its
    /// present one.
    pub fn before(&mut self, folder: &Path, task: TaskId, now: i32) -> i32 {
        if let Some(restore) = self.restores.tasks.get(&task) {
            return if restore.is_ours(now) {
                restore.old
            } else {
                now
            };
        }
        let Restores { groups, tasks, .. } = self.restores;
        // A group inside of another may have another level.
        for folder in folder.ancestors() {
            let processes = folder.join("cgroup.procs");
            let Some(group) = groups.get(&processes) else {
                continue;
            };
            let lineage = self.lineages.entry(processes).or_insert_with_key(|path| {
                let mut lineage = Lineage::new(group, tasks);
                lineage.look(path);
                lineage
            });
            if let Some(before) = lineage.inherited(task.tid, now) {
                return before;
            }
        }
        now
    }
}

/// Gives tasks that have inherited a level of ours the level that they would have without us. Tasks
/// fork meanwhile, so the search is repeated until nothing is found.
fn sweep(lineage: &mut Lineage<'_>, processes: &Path) -> Result<()> {
    let deadline = os::now() + SWEEP_MAX;
    loop {
        lineage.look(processes);
        let (mut found, mut done) = (false, Ok(()));
        for tid in &lineage.members {
            let Some(old) = lineage.level_before(*tid) else {
                continue;
            };
            if tasks::nice(*tid).is_ok_and(|now| now != old) {
                let set = tasks::set_nice(*tid, old);
                found |= set.is_ok();
                done = done.and(set);
            }
        }
        if !found || os::now() >= deadline {
            return done;
        }
    }
}

/// Returns the most common of these levels; of two equally common ones, the weaker.
pub(crate) fn commonest_level(levels: impl Iterator<Item = i32>) -> Option<i32> {
    let mut counts: HashMap<i32, usize> = HashMap::new();
    for level in levels {
        *counts.entry(level).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(level, count)| (*count, *level));
    most.map(|(level, _)| level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Entry;

    const PROCESSES: &str = "/nowhere/cgroup.procs";

    /// Returns the records of a journal in which tasks of the group were given level 7.
    fn restores(tasks: &[(TaskId, i32)]) -> Restores {
        let group = Entry::ReniceGroup {
            processes: PROCESSES.into(),
            old: 0,
            new: 7,
        };
        let tasks = tasks.iter().map(|(task, old)| Entry::Renice {
            task: *task,
            old: *old,
            new: 7,
            processes: PROCESSES.into(),
        });
        Restores::of([group].into_iter().chain(tasks))
    }

    #[test]
    fn the_commonest_level_is_what_most_had_and_of_two_the_weaker() {
        let of = |levels: &[i32]| commonest_level(levels.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[0, 5, 0]), Some(0));
        assert_eq!(of(&[5, 0, 0, 5]), Some(5));
    }

    #[test]
    fn whose_level_may_be_its_own_is_not_given_a_better_one() {
        // The parent of this process is no member, and has another level.
        let tid = std::process::id().cast_signed();
        let inherited = |known: &[(i32, i32)], now| {
            let id = |tid| TaskId { tid, start_time: 1 };
            let known: Vec<_> = known.iter().map(|(tid, old)| (id(*tid), *old)).collect();
            let restores = restores(&known);
            let group = &restores.groups[Path::new(PROCESSES)];
            let mut lineage = Lineage::new(group, &restores.tasks);
            lineage.members = HashSet::from([tid, 1]);
            lineage.inherited(tid, now)
        };
        let two = [(1, 0), (2, 7)];
        assert_eq!(inherited(&two, 7), Some(0));
        assert_eq!(inherited(&two, 5), None);
        // A member had that level without us, and the task may descend from it.
        assert_eq!(inherited(&[(1, 7)], 7), None);
    }
}
