//! A change of a foreign group's knobs: planned, recorded, made.

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, read_text};

use super::folder_of;
use crate::cgroup::change::Change;
use crate::cgroup::group::level::Level;
use crate::cgroup::wanted::Wanted;
use crate::error::Result;
use crate::journal::{Entry, FileRestore, Held, KeptJournal, Restores};
use crate::knobs::{Knobs, Nice};
use crate::tasks;
use crate::undo::{self, Levels, UndoReport};

/// Change of knobs that is planned and not made yet.
#[derive(Debug)]
pub(in crate::cgroup) struct Prepared {
    pub group: CpuGroup,
    change: Change,
    /// Record of the cgroup before the change.
    known: Held,
    /// Tasks, each with its new level and its present one.
    renice: Vec<(i32, i32, i32)>,
    /// Whether all levels from us are put back, because none is asked for any more.
    resets_nice: bool,
    /// Journal entries to be on disk before the change.
    pub entries: Vec<Entry>,
}

impl Prepared {
    /// Reads the present values, and plans the change.
    pub fn new(group: CpuGroup, restores: &Restores, knobs: &Knobs, yields: bool) -> Result<Self> {
        let known = restores.held(&folder_of(&group)).clone();
        let wanted = Wanted::on_one_cgroup(knobs, yields);
        let mut prepared = Self {
            change: Change::plan(&group, &known, &wanted)?,
            group,
            known,
            renice: Vec::new(),
            resets_nice: false,
            entries: Vec::new(),
        };
        let entry = prepared.entry(restores, prepared.files());
        prepared.entries.extend(entry);
        let processes = prepared.processes();
        match knobs.nice {
            Some(nice) => prepared.set_nice(nice, restores)?,
            None => prepared.resets_nice = restores.groups.contains_key(&processes),
        }
        // The values were read from the bound cgroup only if it is still there.
        prepared.group.check_exists()?;
        Ok(prepared)
    }

    /// Returns the files while the change is made: the values from before and the new ones are ours.
    fn files(&self) -> Vec<FileRestore> {
        FileRestore::both(&self.known.files, &self.change.files)
    }

    /// Returns the entry for these files of the cgroup; `None`: the journal has it.
    fn entry(&self, restores: &Restores, files: Vec<FileRestore>) -> Option<Entry> {
        let held = Held {
            inode: self.known.inode.or(self.group.inode()),
            files,
            earlier: self.known.earlier.clone(),
            refused: false,
        };
        restores.hold(&folder_of(&self.group), held)
    }

    fn processes(&self) -> PathBuf {
        self.group.cpu_file("cgroup.procs")
    }

    /// Plans the level for every task that is there now. A task that has come since the last time
    /// may have our earlier level already, inherited from the task that started it.
    fn set_nice(&mut self, nice: Nice, restores: &Restores) -> Result<()> {
        let path = self.processes();
        let folder = folder_of(&self.group);
        // The task may have its level from the group of a cgroup inside of this one.
        let hierarchy = self.group.hierarchy();
        let groups = restores.groups.range(folder.clone()..);
        let mut inside = groups.take_while(|(it, _)| it.starts_with(&folder));
        let has_inside = inside.any(|(it, _)| *it != path);
        let mut known = Levels::new(restores);
        let (mut olds, mut all) = (Vec::new(), Vec::new());
        // A process may have threads elsewhere, which are none of this cgroup's.
        for tid in self.group.all_threads()? {
            let Some((task, now)) = tasks::with_nice(tid)? else {
                continue;
            };
            let inside = has_inside.then(|| hierarchy.cgroup_of(tid).ok()).flatten();
            let place = inside.map(|cgroup| hierarchy.cpu_folder(&cgroup));
            let before = known.before(place.as_ref().unwrap_or(&folder), task, now);
            let restore = restores.tasks.get(&task);
            let last = restore.and_then(|restore| restore.last_of(&path));
            if (last, now) != (Some(nice.nice), nice.nice) {
                let level = Level { task, now, before };
                all.extend(level.entries(nice.nice, &path));
            }
            olds.push(before);
            self.renice.push((tid, nice.nice, now));
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

    /// Makes the change. When the kernel refuses, the values from before are written back.
    pub fn execute(&self, restores: &Restores) -> Result<()> {
        self.change.execute(&self.group)?;
        for (tid, nice, before) in &self.renice {
            // It may have another by now: that of a group around this one, which began with it.
            if before == nice && tasks::nice(*tid).is_ok_and(|now| now == *nice) {
                continue;
            }
            if let Err(error) = tasks::set_nice(*tid, *nice) {
                self.revert();
                return Err(error);
            }
        }
        if self.resets_nice {
            // A level that somebody else has given stays, as it does at the end.
            let mut report = UndoReport::default();
            let done = undo::restore_levels(restores, &[&self.processes()], &mut report);
            done.inspect_err(|_| self.revert())?;
        }
        Ok(())
    }

    /// Writes the values back that were there before.
    fn revert(&self) {
        self.change.revert(&self.group);
        for (tid, _, before) in &self.renice {
            // A level that was refused once may be refused again.
            let _ = tasks::set_nice(*tid, *before);
        }
    }

    /// Notes that the change has succeeded. A value that somebody writes from now on is an external
    /// change, also if it was ours once.
    pub fn note_success(self, journal: &mut KeptJournal) {
        let gone = self.resets_nice.then(|| Entry::gone(&self.processes()));
        let after = self.entry(journal.restores(), self.change.files.clone());
        journal.note(gone.into_iter().chain(after));
    }

    /// Notes that the change has failed: the journal is to say of each file that holds its value of
    /// before what it said before.
    pub fn note_failure(&self, journal: &mut KeptJournal) {
        let differences = self.change.differences();
        let is_as_before = |path: &Path| {
            let before = differences.iter().find(|(it, _)| *it == path);
            before.is_none_or(|(_, before)| read_text(path).is_ok_and(|now| now == *before))
        };
        let files = self.files().into_iter();
        let files = files.filter_map(|file| match is_as_before(&file.path) {
            true => self.known.get(&file.path).cloned(),
            false => Some(file),
        });
        let entry = self.entry(journal.restores(), files.collect());
        journal.note(entry);
    }
}
