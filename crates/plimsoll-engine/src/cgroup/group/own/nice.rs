//! Nice levels of the tasks of an own group. Its tasks, present and later, have the level of the
//! knobs; a command sets the level on itself.

use super::{Layout, Own};
use crate::error::Result;
use crate::journal::{self, Entry, Restores};
use crate::knobs::Nice;
use crate::tasks::{self, TaskId};
use crate::undo::{self, Lineage, UndoReport};

fn processes_of(layout: &Layout) -> std::path::PathBuf {
    layout.top.cpu_file("cgroup.procs")
}

impl Own {
    /// Records that tasks started in a layout's cgroups have the level of the knobs.
    pub(super) fn record_nice(&mut self, layout: &Layout, nice: Option<Nice>) -> Result<()> {
        match (nice, self.nice_before) {
            (Some(nice), Some(old)) => self.record(&[Entry::ReniceGroup {
                processes: processes_of(layout),
                old,
                new: nice.nice,
            }]),
            _ => Ok(()),
        }
    }

    /// Gives a process the level. `lineage`: original levels of the tasks, some of which may have
    /// another level from us.
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
        let entries = self.journal.read_valid()?.entries;
        let Restores { tasks, groups, .. } = journal::restores(entries);
        let Some(new) = new else {
            return self.reset_nice(
                layout,
                &Restores {
                    tasks,
                    groups,
                    ..Restores::default()
                },
            );
        };
        // A rebuilt group has the levels of all its cgroups.
        let mut all = groups.into_iter().reduce(|mut all, group| {
            all.ours.extend(group.ours);
            all
        });
        if let Some(all) = &mut all {
            all.processes = processes_of(layout);
        }
        let mut lineage = all.as_ref().map(|all| Lineage::new(all, &tasks));
        lineage.iter_mut().for_each(Lineage::look);
        self.record_nice(layout, Some(new))?;
        for pid in layout.top.all_processes()? {
            self.renice(layout, pid, new, lineage.as_ref())?;
        }
        Ok(())
    }

    /// Gives every task the level that it would have without us.
    fn reset_nice(&mut self, layout: &Layout, restores: &Restores) -> Result<()> {
        let Restores { tasks, groups, .. } = restores;
        // A level that somebody else has set stays, as it does at the end.
        let mut report = UndoReport::default();
        for restore in tasks {
            undo::restore_nice(restore, &mut report);
        }
        for group in groups {
            let group = journal::GroupRestore {
                processes: processes_of(layout),
                ..group.clone()
            };
            undo::restore_group(&group, tasks, &mut report);
        }
        let released = Entry::Released {
            paths: groups.iter().map(|group| group.processes.clone()).collect(),
            tasks: tasks.iter().map(|restore| restore.task.tid).collect(),
        };
        self.journal.note(&[released])
    }
}
