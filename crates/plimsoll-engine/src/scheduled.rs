//! The groups that a BPF scheduler schedules, each kept by a process of its
//! own.
//!
//! Each leaves a description beside its journal, so that whoever loads the
//! scheduler again knows them all, and knows whose keeper is gone.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::journal::{Journal, SCHEDULED_EXTENSION};
use crate::knobs::Knobs;
use crate::runtime::{RuntimeFolder, RuntimeLock, write_atomically};

/// A group, as its keeper describes it to whoever loads the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledGroup {
    /// Its name.
    pub name: String,
    /// The folder of its cgroup.
    pub folder: PathBuf,
    /// What is asked of it.
    pub knobs: Knobs,
}

fn path_of(runtime: &RuntimeFolder, name: &str) -> PathBuf {
    let file = format!("{name}.{SCHEDULED_EXTENSION}");
    runtime.path().join(file)
}

impl ScheduledGroup {
    /// Announces the group, or what has changed of it. Its journal is there.
    ///
    /// # Errors
    /// When the cgroup is in another group already, or the file cannot be
    /// written.
    pub fn announce(&self, runtime: &RuntimeFolder, lock: &RuntimeLock) -> Result<()> {
        let other = Self::of_cgroup(runtime, lock, &self.folder);
        if let Some(other) = other.filter(|other| other.name != self.name) {
            return Err(EngineError::CgroupTaken {
                target: self.folder.display().to_string(),
                name: other.name,
            });
        }
        let path = path_of(runtime, &self.name);
        write_atomically(&path, self, false).map_err(|source| EngineError::Journal { path, source })
    }

    /// The group is not the scheduler's any more.
    pub fn withdraw(runtime: &RuntimeFolder, _lock: &RuntimeLock, name: &str) {
        // Gone already is what is wanted; without its keeper it says nothing.
        let _ = fs::remove_file(path_of(runtime, name));
    }

    /// All groups whose keeper lives, by name. Unreadable ones are left out:
    /// their keepers register them.
    pub fn all(runtime: &RuntimeFolder, _lock: &RuntimeLock) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(runtime.path()) else {
            return Vec::new();
        };
        let is_one = |path: &PathBuf| {
            let extension = path.extension();
            extension.is_some_and(|extension| extension == SCHEDULED_EXTENSION)
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(is_one);
        let mut groups: Vec<Self> = paths
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
            .filter(|group: &Self| Journal::is_kept(&Journal::path_of(runtime.path(), &group.name)))
            .collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// The group that a cgroup is, if its keeper lives.
    pub fn of_cgroup(runtime: &RuntimeFolder, lock: &RuntimeLock, folder: &Path) -> Option<Self> {
        let mut all = Self::all(runtime, lock).into_iter();
        all.find(|group| same(&group.folder, folder))
    }
}

/// Whether two paths are the same, with or without a slash at the end.
fn same(a: &Path, b: &Path) -> bool {
    a.components().eq(b.components())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Header, VERSION};

    fn journal(runtime: &RuntimeFolder, name: &str) -> Journal {
        let header = Header {
            version: VERSION,
            name: name.into(),
            pid: 1,
            persistent: false,
            subject: String::new(),
            knobs: Knobs::default(),
        };
        Journal::create(runtime.path(), &header).unwrap()
    }

    fn group(name: &str, folder: &str) -> ScheduledGroup {
        ScheduledGroup {
            name: name.into(),
            folder: folder.into(),
            knobs: Knobs::default(),
        }
    }

    fn names(runtime: &RuntimeFolder, lock: &RuntimeLock) -> Vec<String> {
        let all = ScheduledGroup::all(runtime, lock).into_iter();
        all.map(|group| group.name).collect()
    }

    #[test]
    fn a_group_is_known_as_long_as_its_keeper_lives() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let lock = runtime.lock().unwrap();
        let (a, b) = (journal(&runtime, "a"), journal(&runtime, "b.1"));
        group("a", "/x/a/").announce(&runtime, &lock).unwrap();
        group("b.1", "/x/b").announce(&runtime, &lock).unwrap();
        assert_eq!(names(&runtime, &lock), ["a", "b.1"]);
        let found = ScheduledGroup::of_cgroup(&runtime, &lock, Path::new("/x/a"));
        assert_eq!(found, Some(group("a", "/x/a/")));
        // Killed: its journal is there, and free.
        drop(a);
        assert_eq!(names(&runtime, &lock), ["b.1"]);
        // Ended: nothing is left.
        b.finish().unwrap();
        assert!(names(&runtime, &lock).is_empty());
        assert!(!path_of(&runtime, "b.1").exists());
    }

    #[test]
    fn a_cgroup_is_in_one_group() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let lock = runtime.lock().unwrap();
        let first = journal(&runtime, "first");
        let _second = journal(&runtime, "second");
        group("first", "/x").announce(&runtime, &lock).unwrap();
        group("first", "/x").announce(&runtime, &lock).unwrap();
        let taken = group("second", "/x").announce(&runtime, &lock);
        let message = taken.unwrap_err().to_string();
        assert!(message.contains("plimsoll set first"), "{message}");
        drop(first);
        group("second", "/x").announce(&runtime, &lock).unwrap();
    }
}
