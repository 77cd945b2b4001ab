//! Foreign cgroups that an earlier owner has limited and that no group has taken over yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, name, read_text};

use crate::cgroup::group::foreign::{Foreign, folder_of};
use crate::cgroup::values::{Keeping, TrackedFile, Values};
use crate::error::Result;
use crate::journal::{self, Entry, FileRestore, Restores};
use crate::knobs::{Bandwidth, Nice};

/// Foreign cgroups in the journal, by their folders.
#[derive(Debug, Default)]
pub(super) struct Left {
    root: PathBuf,
    groups: BTreeMap<PathBuf, OneLeft>,
}

#[derive(Debug, Default)]
struct OneLeft {
    inode: u64,
    files: Vec<FileRestore>,
    /// Tasks; the values are in `files`.
    foreign: Foreign,
    /// Nice level that its tasks were given.
    nice: Option<Nice>,
}

impl Left {
    /// Sorts the entries of a journal by cgroup. Also returns late files: those whose cgroup is put
    /// back except for them, because the kernel has refused them.
    pub fn of(hierarchy: &Hierarchy, entries: Vec<Entry>) -> (Self, Vec<FileRestore>) {
        let mut left = Self {
            root: hierarchy.mount_point().to_owned(),
            groups: BTreeMap::new(),
        };
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
        (left, late)
    }

    fn with_folder(&mut self, folder: Option<&Path>) -> Option<&mut OneLeft> {
        self.groups.get_mut(folder?)
    }

    /// Returns the innermost of these cgroups that a task is in now.
    fn around(&mut self, hierarchy: &Hierarchy, tid: i32) -> Option<&mut OneLeft> {
        let places = hierarchy.folders_of(tid).ok()?;
        let mut above = places.first()?.ancestors();
        let folder = above.find(|folder| self.groups.contains_key(*folder))?;
        self.groups.get_mut(folder)
    }

    /// Returns whether a removed cgroup is here whose path this one has now.
    pub fn has_another(&self, group: &CpuGroup) -> bool {
        let one = self.groups.get(&folder_of(group));
        one.is_some_and(|one| Some(one.inode) != group.inode())
    }

    /// Returns the state of a cgroup and the nice level of its tasks; `None`: the cgroup is not
    /// here. It stays here until it is [forgotten](Self::forget): a failed attempt loses no original
    /// value.
    pub fn adopt(&self, group: &CpuGroup) -> Result<Option<(Foreign, Option<Nice>)>> {
        let Some(one) = self.same(group) else {
            return Ok(None);
        };
        let mut foreign = Foreign::default().with_tasks_of(&one.foreign);
        foreign.values = values(group, &one.files)?;
        Ok(Some((foreign, one.nice)))
    }

    /// Forgets a cgroup that was taken over, and a removed one whose path it has.
    pub fn forget(&mut self, group: &CpuGroup) {
        self.groups.remove(&folder_of(group));
    }

    fn same(&self, group: &CpuGroup) -> Option<&OneLeft> {
        let one = self.groups.get(&folder_of(group));
        one.filter(|one| Some(one.inode) == group.inode())
    }

    /// Notes the files of a failed attempt that may not have been put back: they are still ours.
    pub fn note_tried(&mut self, group: &CpuGroup, tried: Vec<FileRestore>) {
        let Some(one) = self.groups.get_mut(&folder_of(group)) else {
            return;
        };
        for file in tried {
            match one.files.iter_mut().find(|known| known.path == file.path) {
                Some(known) => known.ours.extend(file.ours),
                None => one.files.push(file),
            }
        }
    }

    pub fn contains(&self, group: &CpuGroup) -> bool {
        self.same(group).is_some()
    }

    /// Returns whether a cgroup of this shown path is here.
    pub fn has(&self, shown: &str) -> bool {
        let path = name::path_of(shown.trim_start_matches('/'));
        self.groups.contains_key(&self.root.join(path))
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Removes those of these cgroups whose shown path `is_meant`, and returns them to be put back.
    pub fn take(
        &mut self,
        hierarchy: &Arc<Hierarchy>,
        is_meant: impl Fn(&str) -> bool,
    ) -> Vec<(CpuGroup, Foreign)> {
        let root = self.root.clone();
        let is_taken = |folder: &Path| {
            let path = folder.strip_prefix(&root);
            path.is_ok_and(|path| is_meant(&name::shown(path)))
        };
        let taken = self.groups.extract_if(.., |folder, _| is_taken(folder));
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

/// Returns the text that we wrote last to a file. The journal may end with the value of a failed
/// change, so the file's present text counts if it is one of ours.
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

/// Returns the tracked files of a cgroup, as the journal has them.
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
