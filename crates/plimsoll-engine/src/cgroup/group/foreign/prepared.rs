//! A change of a foreign group's knobs: planned, recorded, made.

use std::collections::HashMap;

use plimsoll_cgroupfs::CpuGroup;

use super::folder_of;
use crate::cgroup::change::Change;
use crate::cgroup::values::Values;
use crate::cgroup::wanted::Wanted;
use crate::error::Result;
use crate::journal::{Entry, GroupRestore, TaskRestore};
use crate::knobs::{Knobs, Nice};
use crate::tasks::{self, TaskId};
use crate::undo::{self, Lineage, UndoReport};

/// The state of a group before its knobs change.
#[derive(Debug, Clone, Copy)]
pub(in crate::cgroup) struct Known<'a> {
    pub values: &'a Values,
    pub tasks: &'a [TaskRestore],
    pub descendants: Option<&'a GroupRestore>,
    pub nice: Option<Nice>,
}

/// Change of knobs that is planned and not made yet.
#[derive(Debug)]
pub(in crate::cgroup) struct Prepared {
    pub group: CpuGroup,
    change: Change,
    /// Tracked files after the change.
    pub values: Values,
    /// Original nice levels of tasks after the change.
    pub tasks: Vec<TaskRestore>,
    /// Original nice level of tasks that these start.
    pub descendants: Option<GroupRestore>,
    /// Original nice levels to put back, because the level from us is no longer asked for.
    let_go: Option<(GroupRestore, Vec<TaskRestore>)>,
    /// Tasks, each with its new level and its present one.
    renice: Vec<(i32, i32, i32)>,
    /// Journal entries to be on disk before the change.
    pub entries: Vec<Entry>,
    /// Journal entries to be written after the change.
    pub afterwards: Vec<Entry>,
}

impl Prepared {
    /// Reads the present values, and plans the change.
    pub fn new(group: CpuGroup, known: Known<'_>, knobs: &Knobs, yields: bool) -> Result<Self> {
        let wanted = Wanted::on_one_cgroup(knobs, yields);
        let mut change = Change::plan(&group, known.values, &wanted)?;
        let mut prepared = Self {
            group,
            values: std::mem::take(&mut change.values),
            tasks: Vec::new(),
            descendants: None,
            let_go: None,
            renice: Vec::new(),
            entries: std::mem::take(&mut change.entries),
            afterwards: std::mem::take(&mut change.afterwards),
            change,
        };
        match knobs.nice {
            Some(nice) => prepared.set_nice(nice, known)?,
            None if known.nice.is_some() => prepared.reset_nice(known),
            None => (),
        }
        // The values were read from the bound cgroup only if it is still there.
        prepared.group.check_exists()?;
        Ok(prepared)
    }

    /// Plans the level for every task that is there now. A task that has come since the last time
    /// may have our earlier level already, inherited from the task that started it.
    fn set_nice(&mut self, nice: Nice, known: Known<'_>) -> Result<()> {
        let mut known_tasks: HashMap<TaskId, &TaskRestore> = HashMap::new();
        known_tasks.extend(known.tasks.iter().map(|restore| (restore.task, restore)));
        let mut lineage = known
            .descendants
            .map(|group| Lineage::new(group, known.tasks));
        lineage.iter_mut().for_each(Lineage::look);
        let processes = self.group.all_processes()?;
        for tid in processes.into_iter().flat_map(tasks::threads) {
            let Some((task, now)) = tasks::with_nice(tid)? else {
                continue;
            };
            let restore = known_tasks.get(&task);
            let inherited = || lineage.as_ref()?.inherited(tid, now);
            let old = match restore {
                Some(restore) => restore.old,
                None => inherited().unwrap_or(now),
            };
            if restore.is_none_or(|restore| restore.ours != [nice.nice]) {
                self.entries.push(Entry::Renice {
                    tid,
                    start_time: task.start_time,
                    old,
                    new: nice.nice,
                });
            }
            let ours = vec![nice.nice];
            self.tasks.push(TaskRestore { task, old, ours });
            if now != nice.nice {
                self.renice.push((tid, nice.nice, now));
            }
        }
        self.descendants = known.descendants.cloned();
        self.note_descendants(nice.nice);
        Ok(())
    }

    /// Records that tasks started by these from now on have the level, too.
    fn note_descendants(&mut self, nice: i32) {
        let before = self.descendants.take();
        let is_known = before
            .as_ref()
            .is_some_and(|group| group.ours.last() == Some(&nice));
        self.descendants = before.or_else(|| {
            Some(GroupRestore {
                processes: self.group.cpu_file("cgroup.procs"),
                old: undo::commonest_level(&self.tasks)?,
                ours: Vec::new(),
            })
        });
        if let Some(group) = self.descendants.as_mut().filter(|_| !is_known) {
            group.ours.retain(|level| *level != nice);
            group.ours.push(nice);
            self.entries.push(group.entry());
        }
    }

    fn reset_nice(&mut self, known: Known<'_>) {
        let mut back = Vec::new();
        for restore in known.tasks.iter().filter(|restore| restore.task.exists()) {
            let tid = restore.task.tid;
            back.push(tid);
            match tasks::nice(tid) {
                Ok(now) if restore.ours.contains(&now) && now != restore.old => {
                    self.renice.push((tid, restore.old, now));
                }
                _ => (),
            }
        }
        self.let_go = known
            .descendants
            .map(|group| (group.clone(), known.tasks.to_vec()));
        let descendants = known.descendants.map(|group| group.processes.clone());
        self.afterwards.push(Entry::Released {
            paths: descendants.into_iter().collect(),
            tasks: back,
        });
    }

    /// Makes the change. When the kernel refuses, the values from before are written back.
    pub fn execute(&self) -> Result<()> {
        self.change.execute(&self.group)?;
        for (tid, nice, _) in &self.renice {
            if let Err(error) = tasks::set_nice(*tid, *nice) {
                self.revert();
                return Err(error);
            }
        }
        if let Some((group, tasks)) = &self.let_go {
            // A refusal is not reported: the calls above, of the same kind, were accepted.
            undo::restore_group(group, tasks, &mut UndoReport::default());
        }
        Ok(())
    }

    /// Writes the values back that were there before.
    pub fn revert(&self) {
        self.change.revert(&self.group);
        for (tid, _, before) in &self.renice {
            // A level that was refused once may be refused again.
            let _ = tasks::set_nice(*tid, *before);
        }
    }

    /// Returns the journal's entry for a new group that has failed.
    pub fn released(&self) -> Entry {
        Entry::Released {
            paths: vec![folder_of(&self.group)],
            tasks: self.tasks.iter().map(|restore| restore.task.tid).collect(),
        }
    }
}
