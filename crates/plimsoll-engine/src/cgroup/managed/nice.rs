//! The nice levels of a group's tasks. Whoever is in the group when it gets one
//! is given it, and so is who comes; a command gives it to itself.

use super::{Layout, ManagedGroup};
use crate::error::Result;
use crate::journal::{self, Entry, Restores};
use crate::knobs::Nice;
use crate::tasks;
use crate::undo::{self, Lineage, UndoReport};

/// The `cgroup.procs` of a group.
fn processes_of(layout: &Layout) -> std::path::PathBuf {
    layout.top.cpu_file("cgroup.procs")
}

impl ManagedGroup {
    /// Writes down that what is started in a layout's cgroups has the level of
    /// the knobs.
    pub(super) fn record_nice(&mut self, layout: &Layout) -> Result<()> {
        match (self.knobs.nice, self.nice_before) {
            (Some(nice), Some(old)) => self.record(&[Entry::ReniceGroup {
                processes: processes_of(layout),
                old,
                new: nice.nice,
            }]),
            _ => Ok(()),
        }
    }

    /// Gives a process the level. `lineage`: what is known of the tasks, some
    /// of which may have had another from us.
    pub(super) fn renice(
        &mut self,
        pid: i32,
        nice: i32,
        lineage: Option<&Lineage<'_>>,
    ) -> Result<()> {
        for tid in tasks::threads(pid) {
            let (Some(start_time), Ok(now)) = (tasks::start_time(tid), tasks::nice(tid)) else {
                continue;
            };
            let inherited = lineage.and_then(|lineage| lineage.inherited(tid, now));
            let old = inherited.unwrap_or(now);
            if self.nice_before.is_none() {
                self.nice_before = Some(old);
                self.record_nice(&self.layout.clone())?;
            }
            self.record(&[Entry::Renice {
                tid,
                start_time,
                old,
                new: Some(nice),
            }])?;
            tasks::set_nice(tid, nice)?;
        }
        Ok(())
    }

    /// Follows a change of the knob.
    pub(super) fn renice_all(&mut self, old: Option<Nice>, new: Option<Nice>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let Restores { tasks, groups, .. } = match &mut self.journal {
            Some(journal) => journal::restores(journal.read_sound()?.entries),
            None => return Ok(()),
        };
        let Some(new) = new else {
            return self.reset_nice(&Restores {
                tasks,
                groups,
                ..Restores::default()
            });
        };
        // One that was rebuilt has the levels of all its cgroups.
        let mut all = groups.into_iter().reduce(|mut all, group| {
            all.ours.extend(group.ours);
            all
        });
        if let Some(all) = &mut all {
            all.processes = processes_of(&self.layout);
        }
        let mut lineage = all.as_ref().map(|all| Lineage::new(all, &tasks));
        lineage.iter_mut().for_each(Lineage::look);
        self.record_nice(&self.layout.clone())?;
        for pid in self.layout.top.all_processes()? {
            self.renice(pid, new.nice, lineage.as_ref())?;
        }
        Ok(())
    }

    /// Every task gets back what it would have without us.
    fn reset_nice(&mut self, restores: &Restores) -> Result<()> {
        let Restores { tasks, groups, .. } = restores;
        // What somebody else has set stays, as it does at the end.
        let mut report = UndoReport::default();
        for restore in tasks {
            undo::restore_nice(restore, &mut report);
        }
        for group in groups {
            let group = journal::GroupRestore {
                processes: processes_of(&self.layout),
                ..group.clone()
            };
            undo::restore_group(&group, tasks, &mut report);
        }
        let released = Entry::Released {
            paths: groups.iter().map(|group| group.processes.clone()).collect(),
            tasks: tasks.iter().map(|restore| restore.task.tid).collect(),
            processes: Vec::new(),
        };
        match &mut self.journal {
            Some(journal) => journal.note(&[released]),
            None => Ok(()),
        }
    }
}
