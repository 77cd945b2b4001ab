//! Change of a cgroup: the writes that give it the wanted values, and its tasks their nice levels, in
//! their order; planned, recorded, made.

mod foreign;
mod values;

use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::{CpuGroup, CpuMax, read_text};

use super::wanted::Wanted;
use crate::error::Result;
use crate::journal::{Entry, FileRestore, ForeignRestore, KeptJournal, Restores};
use crate::tasks::{self, TaskId};

/// Writes that take a cgroup from its present values to the wanted ones.
#[derive(Debug)]
pub(super) struct Change {
    pub group: CpuGroup,
    /// Record of the cgroup before the change.
    known: ForeignRestore,
    /// Writes in an order in which the kernel takes them.
    steps: Vec<Step>,
    /// Files that hold wanted values after the change, with the data to put them back from then on.
    files: Vec<FileRestore>,
    /// Journal entries to be on disk before the change; none for a cgroup of our own.
    pub entries: Vec<Entry>,
    /// Tasks that had a level from us before, each with the entry about the last one.
    levels_before: Vec<(TaskId, Entry)>,
    /// Whether all levels from us are put back, because none is asked for any more.
    resets_nice: bool,
}

#[derive(Debug)]
enum Step {
    Write {
        path: PathBuf,
        text: String,
        /// Writes that lead back to the state before the step.
        back: Vec<(PathBuf, String)>,
    },
    Renice {
        tid: i32,
        new: i32,
        before: i32,
    },
}

impl Step {
    fn make(&self, group: &CpuGroup) -> Result<()> {
        match self {
            Self::Write { path, text, .. } => Ok(group.write_file(path, text)?),
            // It may have another by now: that of a group around this one, which began with it.
            Self::Renice { tid, new, before }
                if before == new && tasks::nice(*tid).is_ok_and(|now| now == *new) =>
            {
                Ok(())
            }
            Self::Renice { tid, new, .. } => tasks::set_nice(*tid, *new),
        }
    }

    /// Leads back to the state before the step. A refused write stays for the next attempt.
    fn take_back(&self, group: &CpuGroup) {
        match self {
            Self::Write { back, .. } => {
                for (path, text) in back {
                    let _ = group.write_file(path, text);
                }
            }
            Self::Renice { tid, before, .. } => {
                let _ = tasks::set_nice(*tid, *before);
            }
        }
    }
}

impl Change {
    /// Finds the writes after which a cgroup has the wanted values. `known`: the record of the files
    /// that Plimsoll has written so far.
    pub fn plan(group: &CpuGroup, known: &ForeignRestore, wanted: &Wanted) -> Result<Self> {
        let mut change = Self {
            group: group.clone(),
            known: known.clone(),
            steps: Vec::new(),
            files: Vec::new(),
            entries: Vec::new(),
            levels_before: Vec::new(),
            resets_nice: false,
        };
        change.weigh(wanted)?;
        change.limit(wanted.limit)?;
        Ok(change)
    }

    /// Finds the writes as [`Self::plan`] does, for a cgroup of our own, whose quota the headroom
    /// controller may write. None of its values is put back.
    pub fn plan_own(group: &CpuGroup, wanted: &Wanted) -> Result<Self> {
        let (path, _) = group.quota_setting(&CpuMax::unlimited());
        let known = ForeignRestore {
            files: vec![FileRestore::new(&path, "", None)],
            ..ForeignRestore::default()
        };
        Self::plan(group, &known, wanted)
    }

    /// Makes the writes. When the kernel refuses one, those before it are taken back.
    pub fn execute(&self) -> Result<()> {
        for (index, step) in self.steps.iter().enumerate() {
            step.make(&self.group)
                .inspect_err(|_| self.go_back(index))?;
        }
        Ok(())
    }

    /// Takes the first steps back, the last first: the kernel has accepted the states in between on
    /// the way there.
    fn go_back(&self, nr_steps: usize) {
        for step in self.steps[..nr_steps].iter().rev() {
            step.take_back(&self.group);
        }
    }

    /// Lists the files to be written, with their present texts.
    pub fn differences(&self) -> Vec<(&Path, &str)> {
        let mut found: Vec<(&Path, &str)> = Vec::new();
        for step in &self.steps {
            // The first of several writes to a file has the present text.
            if let Step::Write { path, back, .. } = step
                && found.iter().all(|(it, _)| it != path)
                && let Some((_, before)) = back.iter().find(|(it, _)| it == path)
            {
                found.push((path, before));
            }
        }
        found
    }

    /// Returns the files while the change is made: the values from before and the new ones are ours.
    fn both(&self) -> Vec<FileRestore> {
        FileRestore::both(&self.known.files, &self.files)
    }

    /// Returns the entry for these files of the cgroup; `None`: the journal has it.
    fn entry(&self, restores: &Restores, files: Vec<FileRestore>) -> Option<Entry> {
        let held = ForeignRestore {
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

    /// Notes that the change has succeeded. A value that somebody writes from now on is an external
    /// change, also if it was ours once.
    pub fn note_success(self, journal: &mut KeptJournal) {
        let gone = self.resets_nice.then(|| Entry::gone(&self.processes()));
        let after = self.entry(journal.restores(), self.files.clone());
        journal.note(gone.into_iter().chain(after));
    }

    /// Notes, after a failure, that tasks have their levels from before again, which may be from
    /// other groups. Another change since, whose level is yet to come, counts more.
    pub fn note_levels(&self, journal: &mut KeptJournal) {
        let (tasks, path) = (&journal.restores().tasks, self.processes());
        let levels = self.levels_before.iter();
        let ours = levels.filter(|(task, _)| {
            let known = tasks.get(task);
            known.is_some_and(|known| known.last_of(&path).is_some())
        });
        let before: Vec<Entry> = ours.map(|(_, entry)| entry.clone()).collect();
        journal.note(before);
    }

    /// Notes that the change has failed: the journal is to say of each file that holds its value of
    /// before what it said before.
    pub fn note_failure(&self, journal: &mut KeptJournal) {
        let differences = self.differences();
        let is_as_before = |path: &Path| {
            let before = differences.iter().find(|(it, _)| *it == path);
            before.is_none_or(|(_, before)| read_text(path).is_ok_and(|now| now == *before))
        };
        let files = self.both().into_iter();
        let files = files.filter_map(|file| match is_as_before(&file.path) {
            true => self.known.get(&file.path).cloned(),
            false => Some(file),
        });
        let entry = self.entry(journal.restores(), files.collect());
        journal.note(entry);
    }
}

/// Returns a cgroup's folder in the form that the parent of its files has: without a slash at the
/// end.
pub(super) fn folder_of(group: &CpuGroup) -> PathBuf {
    let file = group.cpu_file("cgroup.procs");
    file.parent().map(Path::to_owned).unwrap_or(file)
}
