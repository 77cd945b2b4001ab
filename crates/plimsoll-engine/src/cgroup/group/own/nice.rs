//! Nice levels of the tasks of an own group. Its tasks, present and later, have the level of the
//! knobs; a command sets the level on itself.

use std::path::{Path, PathBuf};

use super::{Layout, Own};
use crate::error::Result;
use crate::journal::{Entry, Restores};
use crate::knobs::Nice;
use crate::tasks::{self, TaskId};
use crate::undo::{self, Lineage, UndoReport};

fn processes_of(layout: &Layout) -> PathBuf {
    layout.top.cpu_file("cgroup.procs")
}

impl Own {
    /// Records that tasks in a layout's cgroups have the level of the knobs, or one that the knobs or
    /// the layout before gave.
    pub(super) fn record_nice(&mut self, layout: &Layout, nice: Option<Nice>) -> Result<()> {
        let Some(old) = self.nice_before else {
            return Ok(());
        };
        let processes = processes_of(layout);
        let groups = self.journal.restores().groups.iter();
        let before = groups.filter(|(path, _)| **path != processes);
        let mut levels: Vec<i32> = before.flat_map(|(_, it)| it.ours.clone()).collect();
        levels.extend(nice.map(|nice| nice.nice));
        let entries: Vec<Entry> = levels
            .into_iter()
            .map(|new| Entry::ReniceGroup {
                processes: processes.clone(),
                old,
                new,
            })
            .collect();
        self.record(&entries)
    }

    /// Gives a process the level. `lineage`: tasks of the group, some of which may have another level
    /// from us.
    pub(super) fn renice(
        &mut self,
        layout: &Layout,
        pid: i32,
        nice: Nice,
        lineage: Option<&Lineage<'_>>,
    ) -> Result<()> {
        for tid in tasks::threads(pid) {
            let Some((TaskId { start_time, .. }, now)) = tasks::with_nice(tid)? else {
                continue;
            };
            let inherited = lineage.and_then(|lineage| lineage.inherited(tid, now));
            let old = inherited.unwrap_or(now);
            if self.nice_before.is_none() {
                self.nice_before = Some(old);
                self.record_nice(layout, Some(nice))?;
            }
            self.record(&[Entry::Renice {
                tid,
                start_time,
                old,
                new: nice.nice,
                processes: processes_of(layout),
            }])?;
            tasks::set_nice(tid, nice.nice)?;
        }
        Ok(())
    }

    /// Applies a change of the knob.
    pub(super) fn renice_all(
        &mut self,
        layout: &Layout,
        old: Option<Nice>,
        new: Option<Nice>,
    ) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let Some(new) = new else {
            self.reset_nice();
            return Ok(());
        };
        let Restores { groups, tasks, .. } = self.journal.restores();
        let processes = processes_of(layout);
        let (group, known) = (groups.get(&processes).cloned(), tasks.clone());
        let mut lineage = group.as_ref().map(|group| Lineage::new(group, &known));
        lineage.iter_mut().for_each(|it| it.look(&processes));
        self.record_nice(layout, Some(new))?;
        for pid in layout.top.all_processes()? {
            self.renice(layout, pid, new, lineage.as_ref())?;
        }
        Ok(())
    }

    /// Gives every task the level that it would have without us. A level that somebody else has set
    /// stays, as it does at the end.
    fn reset_nice(&mut self) {
        let restores = self.journal.restores();
        let all: Vec<&Path> = restores.groups.keys().map(PathBuf::as_path).collect();
        undo::restore_levels(restores, &all, &mut UndoReport::default());
        let paths = all.into_iter().map(Path::to_owned).collect();
        self.journal.note(vec![Entry::Released { paths }]);
    }
}
