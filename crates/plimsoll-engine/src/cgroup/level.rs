//! Nice level of a task that a group is about to change.

use std::path::Path;

use crate::journal::{Entry, Restores};
use crate::tasks::TaskId;

#[derive(Debug)]
pub(in crate::cgroup) struct Level {
    pub task: TaskId,
    pub now: i32,
    /// Level that the task would have without us.
    pub before: i32,
}

impl Level {
    /// Returns whether a group has given the task this level already. `processes`: the file of the
    /// group's cgroup.
    pub fn is_given(&self, new: i32, processes: &Path, restores: &Restores) -> bool {
        let restore = restores.tasks.get(&self.task);
        let last = restore.and_then(|restore| restore.last_of(processes));
        (last, self.now) == (Some(new), new)
    }

    /// Returns the entries to be on disk before a group gives the task a level. `processes`: the
    /// file of the group's cgroup. A present level that is from us is ours also if the change is
    /// never made, and if the group that gave it ends.
    pub fn entries(&self, new: i32, processes: &Path) -> Vec<Entry> {
        let is_from_us = self.now != self.before && self.now != new;
        let present = is_from_us.then_some(self.now);
        let levels = present.into_iter().chain([new]);
        levels
            .map(|new| Entry::Renice {
                task: self.task,
                old: self.before,
                new,
                processes: processes.to_owned(),
            })
            .collect()
    }
}
