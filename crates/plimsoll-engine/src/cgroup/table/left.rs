//! Foreign cgroups that an earlier owner has limited and that no group has taken over yet.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, read_text};

use crate::cgroup::group::foreign::{Foreign, folder_of};
use crate::cgroup::values::{Keeping, TrackedFile, Values};
use crate::error::Result;
use crate::journal::{self, Entry, FileRestore, Restores};
use crate::knobs::{Bandwidth, Nice};

/// What the journal says of foreign cgroups, by their folders.
#[derive(Debug, Default)]
pub(super) struct Left {
    groups: HashMap<PathBuf, OneLeft>,
}

/// The same of one cgroup.
#[derive(Debug, Default)]
struct OneLeft {
    /// The group that is to go on with it, once that has failed.
    wanted_by: Option<Box<str>>,
    inode: u64,
    files: Vec<FileRestore>,
    /// Without values.
    foreign: Foreign,
    /// The level that its tasks were given.
    nice: Option<Nice>,
}

impl Left {
    /// Sorts the entries of a journal by cgroup. Returns the files, too, whose cgroup was put back
    /// but for them: the kernel has refused that.
    pub fn of(hierarchy: &Hierarchy, entries: Vec<Entry>) -> (Self, Vec<FileRestore>) {
        let mut left = Self::default();
        let mut late = Vec::new();
        let Restores {
            files,
            tasks,
            groups,
            others,
        } = journal::restores(entries);
        for entry in &others {
            if let Entry::Hold { folder, inode } = entry {
                left.groups.entry(folder.clone()).or_default().inode = *inode;
            }
        }
        for file in files {
            match left.with_folder(file.path.parent()) {
                Some(one) => one.files.push(file),
                None => late.push(file),
            }
        }
        for group in groups {
            if let Some(one) = left.with_folder(group.processes.parent()) {
                let nice = group.ours.last().map(|nice| Nice { nice: *nice });
                one.nice = nice;
                one.foreign.descendants = Some(group);
            }
        }
        for task in tasks {
            if let Some(one) = left.around(hierarchy, task.task.tid) {
                one.foreign.tasks.push(task);
            }
        }
        for entry in others {
            if let Entry::Move { pid, .. } = entry
                && let Some(one) = left.around(hierarchy, pid)
            {
                one.foreign.moved.push(entry);
            }
        }
        (left, late)
    }

    fn with_folder(&mut self, folder: Option<&Path>) -> Option<&mut OneLeft> {
        self.groups.get_mut(folder?)
    }

    /// The nearest of them that a task is in now.
    fn around(&mut self, hierarchy: &Hierarchy, tid: i32) -> Option<&mut OneLeft> {
        let places = hierarchy.folders_of(tid).ok()?;
        let mut above = places.first()?.ancestors();
        let folder = above.find(|folder| self.groups.contains_key(*folder))?;
        self.groups.get_mut(folder)
    }

    /// Forgets a cgroup that is gone, in whose place there is another of its path. Returns whether
    /// there was one.
    pub fn forget_another(&mut self, group: &CpuGroup) -> bool {
        let folder = folder_of(group);
        let is_another = |one: &OneLeft| Some(one.inode) != group.inode();
        self.groups.get(&folder).is_some_and(is_another) && self.groups.remove(&folder).is_some()
    }

    /// The state of a cgroup and the nice level of its tasks, if it is among them. It stays among
    /// them until it is [settled](Self::settle): an attempt that fails loses no original value.
    ///
    /// # Errors
    /// When its files cannot be read.
    pub fn adopt(&self, group: &CpuGroup) -> Result<Option<(Foreign, Option<Nice>)>> {
        let Some(one) = self.groups.get(&folder_of(group)) else {
            return Ok(None);
        };
        let mut foreign = Foreign::default().with_tasks_of(&one.foreign);
        foreign.values = values(group, &one.files)?;
        Ok(Some((foreign, one.nice)))
    }

    /// A cgroup was taken over, or put back. Returns whether it was among them.
    pub fn settle(&mut self, group: &CpuGroup) -> bool {
        let folder = folder_of(group);
        self.groups.remove(&folder).is_some()
    }

    /// A group could not go on with a cgroup: it stays as it was left, until that is tried again
    /// or the group is removed.
    pub fn want(&mut self, name: &str, group: &CpuGroup) {
        if let Some(one) = self.groups.get_mut(&folder_of(group)) {
            one.wanted_by = Some(name.into());
        }
    }

    /// Whether a cgroup is among them.
    pub fn contains(&self, group: &CpuGroup) -> bool {
        self.groups.contains_key(&folder_of(group))
    }

    /// Whether a process was moved into one of them.
    pub fn has_moved(&self, pid: i32) -> bool {
        self.groups.values().any(|one| one.foreign.has_moved(pid))
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a group has failed to go on with one of them.
    pub fn is_wanted_by(&self, name: &str) -> bool {
        let mut groups = self.groups.values();
        groups.any(|one| one.wanted_by.as_deref() == Some(name))
    }

    /// Of all that were not taken over, those that such a group wants, to be put back.
    pub fn take(
        &mut self,
        hierarchy: &Arc<Hierarchy>,
        is_meant: impl Fn(Option<&str>) -> bool,
    ) -> Vec<(CpuGroup, Foreign)> {
        let root = hierarchy.mount_point().to_owned();
        let taken = self
            .groups
            .extract_if(|_, one| is_meant(one.wanted_by.as_deref()));
        let there = taken.filter_map(|(folder, one)| {
            let path = folder.strip_prefix(&root).ok()?;
            let group = CpuGroup::at(hierarchy, path).bound_to(Some(one.inode));
            let mut foreign = Foreign::default();
            if group.check_exists().is_ok() {
                foreign = foreign.with_tasks_of(&one.foreign);
                foreign.earlier = one.files;
            }
            Some((group, foreign))
        });
        there.collect()
    }
}

/// What we wrote last to a file. Of a change that failed the journal has a value that never came
/// to be.
fn ours_of(file: &FileRestore) -> String {
    let last = file.ours.last().unwrap_or(&file.old);
    let is_ours = |now: &String| file.ours.contains(now);
    let present = if file.ours.len() > 1 {
        read_text(&file.path).ok().filter(is_ours)
    } else {
        None
    };
    present.unwrap_or_else(|| last.clone())
}

/// The files of a cgroup, as the journal knows them.
fn values(group: &CpuGroup, files: &[FileRestore]) -> Result<Values> {
    let name_of = |file: &FileRestore| {
        let name = file.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let is_marked = files
        .iter()
        .any(|file| name_of(file) == "cpu.idle" && file.ours.last().is_some_and(|it| it == "1"));
    let mut bandwidth = group.read_cpu_max()?;
    let mut has_bandwidth = false;
    let mut values = Values::default();
    for file in files {
        let name = name_of(file);
        has_bandwidth |= bandwidth.take_text(&name, &file.old);
        let is_weight = matches!(&*name, "cpu.weight" | "cpu.shares");
        values.files.push(TrackedFile {
            name: name.into(),
            old: file.old.as_str().into(),
            ours: ours_of(file).into(),
            keeping: match (file.driven, is_weight && is_marked) {
                (true, _) => Keeping::Driven,
                (false, true) => Keeping::Remembered,
                (false, false) => Keeping::Written,
            },
            reported: None,
        });
    }
    values.bandwidth = has_bandwidth.then(|| Bandwidth::from(bandwidth));
    Ok(values)
}
