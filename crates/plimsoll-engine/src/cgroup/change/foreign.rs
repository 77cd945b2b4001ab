//! Changes of foreign cgroups: their record, and the nice levels of their tasks.

use std::collections::BTreeSet;
use std::path::PathBuf;

use plimsoll_cgroupfs::CpuGroup;

use super::{Change, Step, folder_of};
use crate::cgroup::level::Level;
use crate::cgroup::wanted::Wanted;
use crate::error::Result;
use crate::journal::{Entry, Restores};
use crate::knobs::{Knobs, Nice};
use crate::tasks;
use crate::undo::{self, Levels, UndoReport};

impl Change {
    /// Reads the present values of a foreign cgroup, and plans its change. `levelled`: the folders of
    /// the foreign cgroups that have a nice level of their own after it.
    pub fn plan_foreign(
        group: &CpuGroup,
        restores: &Restores,
        knobs: &Knobs,
        yields: bool,
        levelled: &BTreeSet<PathBuf>,
    ) -> Result<Self> {
        let known = restores.held(&folder_of(group));
        let mut change = Self::plan(group, known, &Wanted::on_one_cgroup(knobs, yields))?;
        change.entries.extend(change.entry(restores, change.both()));
        match knobs.nice {
            Some(nice) => change.set_nice(nice, restores, levelled)?,
            None => change.resets_nice = restores.groups.contains_key(&change.processes()),
        }
        // The values were read from the bound cgroup only if it is still there.
        group.check_exists()?;
        Ok(change)
    }

    /// Plans the level for every task that is there now, but for those in a cgroup inside of this one
    /// that has its own. A task that has come since the last time may have our earlier level
    /// already, inherited from the task that started it.
    fn set_nice(
        &mut self,
        nice: Nice,
        restores: &Restores,
        levelled: &BTreeSet<PathBuf>,
    ) -> Result<()> {
        let path = self.processes();
        let folder = folder_of(&self.group);
        let hierarchy = self.group.hierarchy();
        // The task may have its level from the group of a cgroup inside of this one.
        let groups = restores.groups.range(folder.clone()..);
        let mut inside = groups.take_while(|(it, _)| it.starts_with(&folder));
        let has_inside = inside.any(|(it, _)| *it != path);
        let below = levelled.range(folder.clone()..);
        let mut below = below.take_while(|it| it.starts_with(&folder));
        let has_levelled = below.any(|it| *it != folder);
        let mut known = Levels::new(restores);
        let (mut olds, mut all) = (Vec::new(), Vec::new());
        // A process may have threads elsewhere, which are none of this cgroup's.
        for tid in self.group.all_threads()? {
            let Some((task, now)) = tasks::with_nice(tid)? else {
                continue;
            };
            let place = (has_inside || has_levelled)
                .then(|| hierarchy.cgroup_of(tid).ok())
                .flatten();
            let place = place.map(|cgroup| hierarchy.cpu_folder(&cgroup));
            let place = place.as_ref().unwrap_or(&folder);
            let mut inner = place.ancestors().take_while(|it| *it != folder);
            if inner.any(|it| levelled.contains(it)) {
                continue;
            }
            let before = known.before(place, task, now);
            let level = Level { task, now, before };
            if !level.is_given(nice.nice, &path, restores) {
                all.extend(level.entries(nice.nice, &path));
                let known = restores.tasks.get(&task);
                let last = known.and_then(|known| known.entries(task).last());
                self.levels_before.extend(last.map(|last| (task, last)));
            }
            olds.push(before);
            self.steps.push(Step::Renice {
                tid,
                new: nice.nice,
                before: now,
            });
        }
        // Tasks started by these from now on have the level, too.
        let group = restores.groups.get(&path);
        let usual = group.map(|group| group.old);
        if let Some(old) = usual.or_else(|| undo::commonest_level(olds.into_iter()))
            && group.is_none_or(|group| group.ours.last() != Some(&nice.nice))
        {
            self.entries.push(Entry::ReniceGroup {
                processes: path,
                old,
                new: nice.nice,
            });
        }
        self.entries.extend(all);
        Ok(())
    }

    /// Gives the tasks the levels that they would have without us, if none is asked for any more. A
    /// level that somebody else has given stays, as it does at the end. When the kernel refuses, the
    /// change is taken back.
    pub fn reset_levels(&self, restores: &Restores) -> Result<()> {
        if !self.resets_nice {
            return Ok(());
        }
        let mut report = UndoReport::default();
        let done = undo::restore_levels(restores, &[&self.processes()], &mut report);
        done.inspect_err(|_| self.go_back(self.steps.len()))
    }
}
