//! The groups that a BPF scheduler schedules, each kept by a process of its
//! own.
//!
//! Each leaves a description in the runtime folder, named as its cgroup, so
//! that whoever loads the scheduler again knows them all, and knows whose
//! keeper is gone. Whether a cgroup is in a group is one look, however many
//! there are.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::journal::{Journal, SCHEDULED_EXTENSION, file_stem};
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
    /// The name of the journal that its keeper keeps; `None`: its own name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
}

impl ScheduledGroup {
    /// The file that describes the group of a cgroup, to be in the journal as
    /// [`Entry::Publish`] before it is written.
    ///
    /// [`Entry::Publish`]: crate::journal::Entry::Publish
    pub fn file(runtime: &RuntimeFolder, folder: &Path) -> PathBuf {
        // With or without a slash at the end.
        let folder: PathBuf = folder.components().collect();
        let stem = file_stem(&folder.to_string_lossy());
        runtime.path().join(format!("{stem}.{SCHEDULED_EXTENSION}"))
    }

    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    fn is_kept(&self, runtime: &RuntimeFolder) -> bool {
        let name = self.journal.as_ref().unwrap_or(&self.name);
        Journal::is_kept(&Journal::path_of(runtime.path(), name))
    }

    /// Whether the cgroup is in no other group.
    ///
    /// # Errors
    /// Names the group that it is in.
    pub fn check_free(&self, runtime: &RuntimeFolder, lock: &RuntimeLock) -> Result<()> {
        let other = Self::of_cgroup(runtime, lock, &self.folder);
        match other.filter(|other| other.name != self.name) {
            None => Ok(()),
            Some(other) => Err(EngineError::CgroupTaken {
                target: self.folder.display().to_string(),
                name: other.name,
            }),
        }
    }

    /// Announces the group, or what has changed of it. Its journal is there.
    ///
    /// # Errors
    /// When the cgroup is in another group already, or the file cannot be
    /// written.
    pub fn announce(&self, runtime: &RuntimeFolder, lock: &RuntimeLock) -> Result<()> {
        self.check_free(runtime, lock)?;
        let path = Self::file(runtime, &self.folder);
        write_atomically(&path, self, false).map_err(|source| EngineError::Journal { path, source })
    }

    /// The group is not the scheduler's any more.
    pub fn withdraw(runtime: &RuntimeFolder, _lock: &RuntimeLock, folder: &Path) {
        // Gone already is what is wanted; without its keeper it says nothing.
        let _ = fs::remove_file(Self::file(runtime, folder));
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
        // Thousands may share one journal.
        let mut kept: HashMap<String, bool> = HashMap::new();
        let is_kept = |group: &Self| {
            let name = group.journal.as_ref().unwrap_or(&group.name);
            *kept
                .entry(name.clone())
                .or_insert_with(|| group.is_kept(runtime))
        };
        let read = paths.filter_map(|path| Self::read(&path));
        let mut groups: Vec<Self> = read.filter(is_kept).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// The group that a cgroup is, if its keeper lives.
    pub fn of_cgroup(runtime: &RuntimeFolder, _lock: &RuntimeLock, folder: &Path) -> Option<Self> {
        let group = Self::read(&Self::file(runtime, folder))?;
        group.is_kept(runtime).then_some(group)
    }
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
            journal: None,
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
        ScheduledGroup::withdraw(&runtime, &lock, Path::new("/x/b/"));
        b.finish().unwrap();
        assert!(names(&runtime, &lock).is_empty());
        assert!(!ScheduledGroup::file(&runtime, Path::new("/x/b")).exists());
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
        let shared = ScheduledGroup {
            journal: Some("second".into()),
            ..group("/y", "/y")
        };
        shared.announce(&runtime, &lock).unwrap();
        assert_eq!(names(&runtime, &lock), ["/y", "first"]);
        drop(first);
        group("second", "/x").announce(&runtime, &lock).unwrap();
    }
}
