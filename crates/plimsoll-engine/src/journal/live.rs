//! Reduction of a journal to the changes still to be undone.
//!
//! A file may be written many times during the life of a group. Undo needs its first
//! value, and the values that Plimsoll wrote, to detect external changes.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::os;

use super::entry::Entry;
use crate::tasks::TaskId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileRestore {
    pub path: PathBuf,
    /// Inode of the cgroup's folder, if known, to detect that the cgroup was recreated.
    pub inode: Option<u64>,
    /// First value, before any write by Plimsoll.
    pub old: String,
    /// Values that Plimsoll wrote, the last at the end. Any other value is an external change and
    /// stays.
    pub ours: Vec<String>,
    /// Whether a control loop wrote the file, so that external changes cannot be detected.
    pub driven: bool,
}

impl FileRestore {
    /// Returns the one entry with the same meaning; of `ours` it has only the last value.
    pub fn entry(&self) -> Entry {
        let (path, old) = (self.path.clone(), self.old.clone());
        match self.ours.last() {
            Some(new) if !self.driven => Entry::Write {
                path,
                old,
                new: new.clone(),
            },
            _ => Entry::Control { path, old },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRestore {
    pub task: TaskId,
    /// First nice level, before any change by Plimsoll.
    pub old: i32,
    /// Levels that Plimsoll set, as in [`FileRestore::ours`]. Empty: `old` is restored
    /// unconditionally.
    pub ours: Vec<i32>,
}

/// Data to restore the nice level of tasks that inherited it in a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRestore {
    /// File `cgroup.procs` of the cgroup.
    pub processes: PathBuf,
    /// First nice level of most tasks.
    pub old: i32,
    pub ours: Vec<i32>,
}

impl GroupRestore {
    /// Returns the one entry with nearly the same meaning; of the levels it has only the last.
    pub fn entry(&self) -> Entry {
        Entry::ReniceGroup {
            processes: self.processes.clone(),
            old: self.old,
            new: self.ours.last().copied().unwrap_or(self.old),
        }
    }
}

/// Data to restore everything, in the order of the first change.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    pub files: Vec<FileRestore>,
    pub tasks: Vec<TaskRestore>,
    pub groups: Vec<GroupRestore>,
    pub others: Vec<Entry>,
}

/// Removes entries that a later `Released` entry makes obsolete.
fn unreleased(entries: Vec<Entry>) -> Vec<Entry> {
    let mut paths: HashSet<PathBuf> = HashSet::new();
    let mut tasks: HashSet<i32> = HashSet::new();
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries.into_iter().rev() {
        let is_released = |path: &Path| {
            paths.contains(path) || path.parent().is_some_and(|parent| paths.contains(parent))
        };
        let released = match &entry {
            Entry::Released {
                paths: more,
                tasks: tids,
            } => {
                paths.extend(more.iter().cloned());
                tasks.extend(tids);
                true
            }
            Entry::Write { path, .. } | Entry::Control { path, .. } | Entry::Publish { path } => {
                is_released(path)
            }
            Entry::ReniceGroup { processes, .. } => is_released(processes),
            Entry::Hold { folder, .. } => paths.contains(folder),
            Entry::Renice { tid, .. } => tasks.contains(tid),
            _ => false,
        };
        if !released {
            kept.push(entry);
        }
    }
    kept.reverse();
    kept
}

/// Collects the data to restore everything.
pub(crate) fn restores(entries: Vec<Entry>) -> Restores {
    let mut restores = Restores::default();
    let Restores {
        files,
        tasks,
        groups,
        others,
    } = &mut restores;
    let mut file_of: HashMap<PathBuf, usize> = HashMap::new();
    let mut task_of: HashMap<TaskId, usize> = HashMap::new();
    for entry in unreleased(entries) {
        let (path, old, new) = match entry {
            Entry::Write { path, old, new } => (path, old, Some(new)),
            Entry::Control { path, old } => (path, old, None),
            Entry::Renice {
                tid,
                start_time,
                old,
                new,
            } => {
                let task = TaskId { tid, start_time };
                let index = *task_of.entry(task).or_insert_with(|| {
                    let ours = Vec::new();
                    tasks.push(TaskRestore { task, old, ours });
                    tasks.len() - 1
                });
                tasks[index].ours.push(new);
                continue;
            }
            Entry::ReniceGroup {
                processes,
                old,
                new,
            } => {
                match groups.iter_mut().find(|it| it.processes == processes) {
                    Some(known) => known.ours.push(new),
                    None => groups.push(GroupRestore {
                        processes,
                        old,
                        ours: vec![new],
                    }),
                }
                continue;
            }
            other => {
                others.push(other);
                continue;
            }
        };
        let index = *file_of.entry(path).or_insert_with_key(|path| {
            files.push(FileRestore {
                path: path.clone(),
                inode: None,
                old,
                ours: Vec::new(),
                driven: false,
            });
            files.len() - 1
        });
        files[index].driven |= new.is_none();
        files[index].ours.extend(new);
    }
    let held = others.iter().filter_map(|entry| match entry {
        Entry::Hold { folder, inode } => Some((folder.as_path(), *inode)),
        _ => None,
    });
    let inodes: HashMap<&Path, u64> = held.collect();
    for file in files {
        let folder = file.path.parent();
        file.inode = folder.and_then(|folder| inodes.get(folder)).copied();
    }
    restores
}

/// Returns whether an entry still has something to undo; asked only for entries in `others`.
fn is_live(entry: &Entry) -> bool {
    match entry {
        Entry::Publish { path } => os::exists(path),
        Entry::Move {
            pid, start_time, ..
        } => TaskId {
            tid: *pid,
            start_time: *start_time,
        }
        .exists(),
        _ => true,
    }
}

/// Keeps only the last of entries that replace earlier ones.
fn keep_last(entries: &mut Vec<Entry>) {
    let mut seen = HashSet::new();
    let mut is_last = |entry: &Entry| match entry {
        Entry::Hold { folder, .. } => seen.insert((Some(folder.clone()), 0)),
        Entry::Change { generation, .. } => seen.insert((None, *generation)),
        _ => true,
    };
    let mut kept: Vec<bool> = entries.iter().rev().map(&mut is_last).collect();
    entries.retain(|_| kept.pop().unwrap_or(true));
}

/// Reduces entries to the shortest list that undoes the same.
pub(crate) fn live(entries: Vec<Entry>) -> Vec<Entry> {
    let Restores {
        files,
        tasks,
        groups,
        others: mut live,
    } = restores(entries);
    live.retain(is_live);
    keep_last(&mut live);
    let groups = groups.iter().filter(|group| os::exists(&group.processes));
    live.extend(groups.map(GroupRestore::entry));
    live.extend(files.iter().map(FileRestore::entry));
    let tasks = tasks.into_iter().filter(|restore| restore.task.exists());
    live.extend(tasks.map(|restore| Entry::Renice {
        tid: restore.task.tid,
        start_time: restore.task.start_time,
        old: restore.old,
        new: restore.ours.last().copied().unwrap_or(restore.old),
    }));
    live
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str, old: &str, new: &str) -> Entry {
        Entry::Write {
            path: path.into(),
            old: old.into(),
            new: new.into(),
        }
    }

    fn released(path: &str) -> Entry {
        Entry::Released {
            paths: vec![path.into()],
            tasks: vec![7],
        }
    }

    #[test]
    fn the_first_old_value_counts_and_the_chain_does_not_grow() {
        let mut entries = vec![write("/g/w", "50", "1")];
        entries.extend((2..10).map(|n| write("/g/w", "50", &n.to_string())));
        assert_eq!(live(entries.clone()), [write("/g/w", "50", "9")]);
        let control = Entry::Control {
            path: "/g/w".into(),
            old: "50".into(),
        };
        entries.push(control.clone());
        assert_eq!(live(entries), [control]);
    }

    #[test]
    fn the_first_level_of_a_group_counts_and_it_goes_with_its_cgroup() {
        let folder = tempfile::tempdir().unwrap();
        let processes = folder.path().join("cgroup.procs");
        std::fs::write(&processes, "").unwrap();
        let renice = |old, new| Entry::ReniceGroup {
            processes: processes.clone(),
            old,
            new,
        };
        let all = vec![renice(2, 5), renice(4, 7)];
        let found = restores(all.clone()).groups;
        assert_eq!((found[0].old, &*found[0].ours), (2, &[5, 7][..]));
        assert_eq!(live(all.clone()), [renice(2, 7)]);
        for path in [&processes, folder.path()] {
            let all = [all.clone(), vec![released(path.to_str().unwrap())]].concat();
            assert!(restores(all).groups.is_empty());
        }
        std::fs::remove_file(&processes).unwrap();
        assert!(live(all).is_empty());
    }

    #[test]
    fn what_was_put_back_is_forgotten_and_what_came_after_is_not() {
        let renice = |old| Entry::Renice {
            tid: 7,
            start_time: 1,
            old,
            new: 5,
        };
        let pinned = Entry::Pin {
            folder: "/sys/fs/bpf/plimsoll".into(),
        };
        let moved = Entry::Move {
            pid: 7,
            start_time: 1,
            from: vec!["/h".into()],
        };
        let before = vec![
            pinned.clone(),
            write("/g/a/w", "1", "2"),
            write("/g/w", "1", "2"),
            moved.clone(),
            renice(0),
            released("/g/a"),
            write("/g/a/w", "3", "4"),
            renice(1),
        ];
        let Restores {
            files,
            tasks,
            groups,
            others,
        } = restores(before.clone());
        assert!(groups.is_empty());
        let found: Vec<_> = files.iter().map(|file| (&*file.path, &*file.old)).collect();
        assert_eq!(
            found,
            [(Path::new("/g/w"), "1"), (Path::new("/g/a/w"), "3")]
        );
        assert_eq!((tasks.len(), tasks[0].old), (1, 1));
        assert_eq!(others, [pinned, moved]);
        let one_file = [before, vec![released("/g/w")]].concat();
        assert_eq!(restores(one_file).files.len(), 1);
    }
}
