//! The groups that a BPF scheduler schedules, each kept by some process.
//!
//! Each is described beside the journal that it is in, so that whoever loads
//! the scheduler again knows them all, and knows whose keeper is gone. A group
//! has a file of its own, or is a line in that of a keeper of many.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, Result};
use crate::journal::{self, Journal, SCHEDULED_EXTENSION};
use crate::knobs::Knobs;
use crate::runtime::{PRIVATE, RuntimeFolder, RuntimeLock, temporary, write_atomically};

/// A list is never written anew for fewer lines.
const LINES_MIN: usize = 256;

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

/// A line of a description.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Group(ScheduledGroup),
    Gone { gone: String },
}

/// The description beside the journal of that name.
fn path_of(runtime: &RuntimeFolder, journal: &str) -> PathBuf {
    let stem = journal::file_stem(journal);
    let file = format!("{stem}.{SCHEDULED_EXTENSION}");
    runtime.path().join(file)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::Journal {
        path: path.to_owned(),
        source,
    }
}

/// The groups that a file describes. What cannot be read is left out: its
/// keeper registers it.
fn read(path: &Path) -> Vec<ScheduledGroup> {
    let bytes = fs::read(path).unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    let mut groups = BTreeMap::new();
    for line in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
        match line {
            Line::Group(group) => drop(groups.insert(group.name.clone(), group)),
            Line::Gone { gone } => drop(groups.remove(&gone)),
        }
    }
    groups.into_values().collect()
}

impl ScheduledGroup {
    /// Announces the group, or what has changed of it. Its journal is there,
    /// and has its name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&self, runtime: &RuntimeFolder, _lock: &RuntimeLock) -> Result<()> {
        let path = path_of(runtime, &self.name);
        write_atomically(&path, self, false).map_err(failed(&path))
    }

    /// The group is not the scheduler's any more.
    pub fn withdraw(runtime: &RuntimeFolder, _lock: &RuntimeLock, name: &str) {
        // Gone already is what is wanted; without its keeper it says nothing.
        let _ = fs::remove_file(path_of(runtime, name));
    }

    /// All groups whose keeper lives, by name.
    pub fn all(runtime: &RuntimeFolder, lock: &RuntimeLock) -> Vec<Self> {
        Self::all_but(runtime, lock, None)
    }

    fn all_but(runtime: &RuntimeFolder, _lock: &RuntimeLock, except: Option<&Path>) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(runtime.path()) else {
            return Vec::new();
        };
        let is_one = |path: &PathBuf| {
            let extension = path.extension();
            extension.is_some_and(|extension| extension == SCHEDULED_EXTENSION)
                && except != Some(path.as_path())
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(is_one);
        let kept = paths.filter(|path| Journal::is_kept(&Journal::beside(path)));
        let mut groups: Vec<Self> = kept.flat_map(|path| read(&path)).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// The group that a cgroup is, if its keeper lives.
    pub fn of_cgroup(runtime: &RuntimeFolder, lock: &RuntimeLock, folder: &Path) -> Option<Self> {
        let mut all = Self::all(runtime, lock).into_iter();
        all.find(|group| same(&group.folder, folder))
    }

    /// Fails if one of `others` has the group's cgroup.
    ///
    /// # Errors
    /// Names the other group.
    pub fn check_free(&self, others: &[Self]) -> Result<()> {
        let is_other = |other: &&Self| other.name != self.name && same(&other.folder, &self.folder);
        match others.iter().find(is_other) {
            Some(other) => Err(EngineError::CgroupTaken {
                target: self.folder.display().to_string(),
                name: other.name.clone(),
            }),
            None => Ok(()),
        }
    }
}

/// The description of many groups that share a journal: what is done for one
/// costs the same however many there are.
#[derive(Debug)]
pub struct ScheduledList {
    path: PathBuf,
    /// As they are in the file.
    lines: BTreeMap<String, String>,
    nr_lines: usize,
}

impl ScheduledList {
    /// Begins it, beside the journal of that name.
    pub fn new(runtime: &RuntimeFolder, journal: &str) -> Self {
        Self {
            path: path_of(runtime, journal),
            lines: BTreeMap::new(),
            nr_lines: 0,
        }
    }

    /// All groups of other keepers.
    pub fn others(&self, runtime: &RuntimeFolder, lock: &RuntimeLock) -> Vec<ScheduledGroup> {
        ScheduledGroup::all_but(runtime, lock, Some(&self.path))
    }

    /// Announces a group, or what has changed of it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn announce(&mut self, group: &ScheduledGroup, _lock: &RuntimeLock) -> Result<()> {
        let line = line_of(&Line::Group(group.clone())).map_err(failed(&self.path))?;
        self.append(&line).map_err(failed(&self.path))?;
        self.lines.insert(group.name.clone(), line);
        self.tidy();
        Ok(())
    }

    /// A group is not the scheduler's any more.
    pub fn withdraw(&mut self, name: &str, _lock: &RuntimeLock) {
        if self.lines.remove(name).is_none() {
            return;
        }
        // On a full disk it stays, and says nothing once its cgroup has gone.
        let gone = line_of(&Line::Gone { gone: name.into() });
        let _ = gone.and_then(|line| self.append(&line));
        self.tidy();
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(PRIVATE);
        let mut file = options.open(&self.path)?;
        let length = file.metadata()?.len();
        file.write_all(line.as_bytes()).inspect_err(|_| {
            // Half a line would spoil the next.
            let _ = file.set_len(length);
        })?;
        self.nr_lines += 1;
        Ok(())
    }

    /// Leaves out what has been replaced, if that is most of it.
    fn tidy(&mut self) {
        if self.nr_lines <= LINES_MIN.max(2 * self.lines.len()) {
            return;
        }
        // If it cannot be written, it is tried again much later.
        let _ = self.rewrite();
        self.nr_lines = self.lines.len();
    }

    fn rewrite(&self) -> io::Result<()> {
        let new = temporary(&self.path);
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(true).write(true);
        let mut file: File = options.mode(PRIVATE).open(&new)?;
        let text: String = self.lines.values().map(String::as_str).collect();
        file.write_all(text.as_bytes())?;
        fs::rename(new, &self.path)
    }
}

fn line_of(line: &Line) -> io::Result<String> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    Ok(text)
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
        let others = || ScheduledGroup::all(&runtime, &lock);
        let second = group("second", "/x/");
        let message = second.check_free(&others()).unwrap_err().to_string();
        assert!(message.contains("plimsoll set first"), "{message}");
        assert!(group("first", "/x").check_free(&others()).is_ok());
        assert!(group("second", "/y").check_free(&others()).is_ok());
        drop(first);
        assert!(second.check_free(&others()).is_ok());
    }

    #[test]
    fn groups_that_are_called_by_their_path_share_a_list_that_does_not_grow() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = RuntimeFolder::at(folder.path());
        let lock = runtime.lock().unwrap();
        let (kept, _other) = (journal(&runtime, "d+"), journal(&runtime, "/own"));
        let mut list = ScheduledList::new(&runtime, "d+");
        group("/own", "/x/own").announce(&runtime, &lock).unwrap();
        for name in ["/a", "/b/c"] {
            list.announce(&group(name, name), &lock).unwrap();
        }
        assert_eq!(names(&runtime, &lock), ["/a", "/b/c", "/own"]);
        assert_eq!(list.others(&runtime, &lock), [group("/own", "/x/own")]);
        list.announce(&group("/a", "/elsewhere"), &lock).unwrap();
        list.withdraw("/b/c", &lock);
        list.withdraw("/never", &lock);
        let found = ScheduledGroup::of_cgroup(&runtime, &lock, Path::new("/elsewhere"));
        assert_eq!(found, Some(group("/a", "/elsewhere")));
        for number in 0..2_000 {
            let name = format!("/n{number}");
            list.announce(&group(&name, &name), &lock).unwrap();
            list.withdraw(&name, &lock);
        }
        assert_eq!(names(&runtime, &lock), ["/a", "/own"]);
        let text = fs::read_to_string(&list.path).unwrap();
        assert!(text.lines().count() <= LINES_MIN, "{}", text.len());
        // Half a line, as a crash leaves it, is as good as none.
        fs::write(&list.path, format!("{text}{{\"name\": \"/h")).unwrap();
        assert_eq!(names(&runtime, &lock), ["/a", "/own"]);
        drop(kept);
        assert_eq!(names(&runtime, &lock), ["/own"]);
    }
}
