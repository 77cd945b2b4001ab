//! Records of a journal: files and groups of our own, with the data to put them back.
//!
//! A file may be written many times during the life of a group. Undo needs its first value, and the
//! values that Plimsoll wrote, to detect external changes.

use std::collections::BTreeMap;
use std::ops::Not;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::name::{path_text, path_texts};
use plimsoll_cgroupfs::os;
use serde::{Deserialize, Serialize};

use crate::knobs::Knobs;
use crate::tasks::TaskId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRestore {
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Inode of the cgroup's folder, if known, to detect that the cgroup was recreated. In a journal
    /// the cgroup has it.
    #[serde(skip)]
    pub inode: Option<u64>,
    /// First value, before any write by Plimsoll.
    pub old: String,
    /// Values that Plimsoll wrote, or tried to, the last at the end. Any other value is an external
    /// change and stays. None: a control loop writes the file, so that external changes cannot be
    /// detected, and it is put back whatever it holds.
    pub ours: Vec<String>,
}

impl FileRestore {
    /// Creates the record of a file that is to hold `new`; `None`: that a loop writes.
    pub fn new(path: &Path, old: &str, new: Option<&str>) -> Self {
        Self {
            path: path.to_owned(),
            inode: None,
            old: old.into(),
            ours: new.map(str::to_owned).into_iter().collect(),
        }
    }

    pub fn is_driven(&self) -> bool {
        self.ours.is_empty()
    }

    /// Returns the records of both times: of each file the first value, and all that are ours.
    pub fn both(earlier: &[Self], later: &[Self]) -> Vec<Self> {
        let mut all = earlier.to_vec();
        for later in later {
            match all.iter_mut().find(|file| file.path == later.path) {
                None => all.push(later.clone()),
                Some(file) if file.is_driven() || later.is_driven() => file.ours.clear(),
                Some(file) => {
                    file.ours.retain(|ours| !later.ours.contains(ours));
                    file.ours.extend_from_slice(&later.ours);
                }
            }
        }
        all
    }
}

/// Files of a foreign cgroup that is in a group, or was in one of an earlier owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignRestore {
    /// Inode of the cgroup's folder: its files are put back there, not in a cgroup recreated at the
    /// same path.
    pub inode: Option<u64>,
    pub files: Vec<FileRestore>,
    /// Files that the kernel refused to put back when the cgroup was in a group before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<FileRestore>,
    /// Whether the cgroup is in no group any more, and the earlier files are tried again.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub refused: bool,
}

impl ForeignRestore {
    pub fn get(&self, path: &Path) -> Option<&FileRestore> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the data to put the files back as they were before the cgroup was in a group for the
    /// first time.
    pub fn restores(&self) -> Vec<FileRestore> {
        let mut all = FileRestore::both(&self.earlier, &self.files);
        all.iter_mut().for_each(|file| file.inode = self.inode);
        all
    }
}

/// Group of our own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnRestore {
    /// Command of a `run`, or target of a `set`.
    pub subject: String,
    /// Folders to which its processes go in the end, one a hierarchy.
    #[serde(with = "path_texts")]
    pub evacuate_to: Vec<PathBuf>,
    /// Nice level of its first process before.
    pub nice: i32,
    /// Its layouts, by generation; 0: the first one.
    pub layouts: BTreeMap<u32, LayoutRestore>,
    /// Processes that were moved into it, each with the folders to which it goes in the end, one a
    /// hierarchy. In a journal each is a line.
    #[serde(skip)]
    pub moved: BTreeMap<TaskId, Vec<PathBuf>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutRestore {
    /// All of the group's knobs.
    pub knobs: Knobs,
    /// Outermost cgroup, one folder a hierarchy; none: it is not made yet. Undone by moving the
    /// processes that still run in it to the group's `evacuate_to` and removing it.
    #[serde(with = "path_texts")]
    pub folders: Vec<PathBuf>,
}

impl OwnRestore {
    /// Lists the layouts that were made, by generation, each with its outermost cgroup.
    pub fn made(&self) -> impl DoubleEndedIterator<Item = (u32, &Vec<PathBuf>)> {
        let layouts = self.layouts.iter();
        let all = layouts.map(|(generation, layout)| (*generation, &layout.folders));
        all.filter(|(_, folders)| !folders.is_empty())
    }

    /// Returns the number for the next layout.
    pub fn next_generation(&self) -> u32 {
        self.made().next_back().map_or(0, |(last, _)| last + 1)
    }

    /// Returns the knobs of a layout.
    pub fn knobs_of(&self, generation: u32) -> Knobs {
        let layout = self.layouts.get(&generation);
        let layout = layout.or_else(|| self.layouts.values().next());
        layout.map(|it| it.knobs.clone()).unwrap_or_default()
    }

    /// Lists the layouts but one whose cgroups are gone.
    pub fn gone(&self, but: u32) -> Vec<u32> {
        let others = self.made().filter(|(it, _)| *it != but);
        let gone = others.filter(|(_, folders)| !folders.iter().any(|folder| os::exists(folder)));
        gone.map(|(generation, _)| generation).collect()
    }

    /// Lists the outermost cgroups of its layouts.
    pub fn tops(&self) -> impl Iterator<Item = &PathBuf> {
        self.made().flat_map(|(_, folders)| folders)
    }

    /// Lists the files that the nice levels of its cgroups are known by.
    pub fn processes(&self) -> impl Iterator<Item = PathBuf> {
        self.tops().map(|top| top.join("cgroup.procs"))
    }
}
