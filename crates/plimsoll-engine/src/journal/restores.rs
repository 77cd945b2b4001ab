//! The changes of a journal that are still to be undone.
//!
//! A journal is a list of changes; this is their sum. The owner keeps it in memory and adds each
//! entry as it is written, so that an owner that reads the journal later has the same.
//!
//! A file may be written many times during the life of a group. Undo needs its first value, and the
//! values that Plimsoll wrote, to detect external changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::read_text;

use super::entry::Entry;
use crate::tasks::TaskId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileRestore {
    pub path: PathBuf,
    /// Inode of the cgroup's folder, if known, to detect that the cgroup was recreated.
    pub inode: Option<u64>,
    /// First value, before any write by Plimsoll.
    pub old: String,
    /// Values that Plimsoll wrote, or tried to, the last at the end. Any other value is an external
    /// change and stays.
    pub ours: Vec<String>,
    /// Whether a control loop wrote the file, so that external changes cannot be detected.
    pub driven: bool,
}

impl FileRestore {
    fn new(path: PathBuf, inode: Option<u64>, old: String) -> Self {
        Self {
            path,
            inode,
            old,
            ours: Vec::new(),
            driven: false,
        }
    }

    /// Returns the one entry with the same meaning. Of the values it has the one that the file
    /// holds, or else the last.
    pub fn entry(&self) -> Entry {
        let (path, old) = (self.path.clone(), self.old.clone());
        let present = if self.ours.len() > 1 {
            read_text(&path).ok()
        } else {
            None
        };
        let ours = present.filter(|now| self.ours.contains(now));
        match ours.or_else(|| self.ours.last().cloned()) {
            Some(new) if !self.driven => Entry::Write { path, old, new },
            _ => Entry::Control { path, old },
        }
    }

    fn add(&mut self, new: Option<String>) {
        self.driven |= new.is_none();
        if let Some(new) = new {
            self.ours.retain(|ours| *ours != new);
            self.ours.push(new);
        }
    }

    /// Adds the values of an earlier time.
    fn precede(&mut self, earlier: &Self) {
        self.old.clone_from(&earlier.old);
        self.driven |= earlier.driven;
        let later = std::mem::replace(&mut self.ours, earlier.ours.clone());
        later.into_iter().for_each(|new| self.add(Some(new)));
    }
}

/// Files of a foreign cgroup that is in a group, or was in one of an earlier owner.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Inode of the cgroup's folder.
    pub inode: Option<u64>,
    pub files: Vec<FileRestore>,
    /// Files that the kernel refused to put back when the cgroup was in a group before.
    earlier: Vec<FileRestore>,
}

impl Held {
    /// Returns a cgroup of which a loop of ours writes one file, and none is put back.
    pub fn with_driven(path: PathBuf) -> Self {
        let mut file = FileRestore::new(path, None, String::new());
        file.driven = true;
        Self {
            files: vec![file],
            ..Self::default()
        }
    }

    pub fn get(&self, path: &Path) -> Option<&FileRestore> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns the data to put the files back as they were before the cgroup was in a group for the
    /// first time.
    pub fn restores(&self) -> Vec<FileRestore> {
        let mut all = self.files.clone();
        for earlier in &self.earlier {
            match all.iter_mut().find(|file| file.path == earlier.path) {
                Some(file) => file.precede(earlier),
                None => all.push(earlier.clone()),
            }
        }
        all
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRestore {
    /// First nice level, before any change by Plimsoll.
    pub old: i32,
    /// Levels that Plimsoll set, as in [`FileRestore::ours`].
    pub ours: Vec<i32>,
    /// File `cgroup.procs` of the cgroup whose group gave the task its present level.
    pub processes: PathBuf,
}

/// Data to restore the nice level of tasks that inherited it in a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupRestore {
    /// First nice level of most tasks.
    pub old: i32,
    pub ours: Vec<i32>,
    /// Tasks that were given a level.
    pub tasks: Vec<TaskId>,
}

/// Data to restore everything.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    /// Files that are in no held cgroup, in the order of the first change.
    pub files: Vec<FileRestore>,
    /// Foreign cgroups, by folder.
    pub held: BTreeMap<PathBuf, Held>,
    /// Held cgroups that are in no group any more, and that the kernel refused to put back.
    pub refused: BTreeSet<PathBuf>,
    pub tasks: BTreeMap<TaskId, TaskRestore>,
    /// Nice levels of cgroups, by their files `cgroup.procs`.
    pub groups: BTreeMap<PathBuf, GroupRestore>,
    pub others: Vec<Entry>,
}

/// Returns whether a path is released with another one.
fn is_of(path: &Path, released: &Path) -> bool {
    path == released || path.parent() == Some(released)
}

impl Restores {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut restores = Self::default();
        entries.into_iter().for_each(|entry| restores.apply(entry));
        restores
    }

    /// Adds a change.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Write { path, old, new } => self.file(path, old).add(Some(new)),
            Entry::Control { path, old } => self.file(path, old).add(None),
            Entry::Hold { folder, inode } => {
                self.refused.remove(&folder);
                let held = self.held.entry(folder).or_default();
                if held.inode.is_some_and(|known| known != inode) {
                    // Values of a removed cgroup are not the originals of this one.
                    *held = Held::default();
                }
                held.inode = Some(inode);
            }
            Entry::Refused { folder } => {
                let held = self.held.entry(folder.clone()).or_default();
                held.earlier = held.restores();
                held.files.clear();
                self.refused.insert(folder);
            }
            Entry::Renice {
                tid,
                start_time,
                old,
                new,
                processes,
            } => self.renice(TaskId { tid, start_time }, old, new, processes),
            Entry::ReniceGroup {
                processes,
                old,
                new,
            } => {
                let group = self.group(processes, old);
                group.ours.retain(|ours| *ours != new);
                group.ours.push(new);
            }
            Entry::Released { paths } => paths.iter().for_each(|path| self.release(path)),
            other => self.others.push(other),
        }
    }

    fn file(&mut self, path: PathBuf, old: String) -> &mut FileRestore {
        let held = path.parent().and_then(|folder| self.held.get_mut(folder));
        let (files, inode) = match held {
            Some(held) => (&mut held.files, held.inode),
            None => (&mut self.files, None),
        };
        let index = files.iter().position(|file| file.path == path);
        let index = index.unwrap_or_else(|| {
            files.push(FileRestore::new(path, inode, old));
            files.len() - 1
        });
        &mut files[index]
    }

    fn group(&mut self, processes: PathBuf, old: i32) -> &mut GroupRestore {
        self.groups
            .entry(processes)
            .or_insert_with(|| GroupRestore {
                old,
                ..GroupRestore::default()
            })
    }

    /// Adds a level of a task, which leaves the group that gave it the last one.
    fn renice(&mut self, task: TaskId, old: i32, new: i32, processes: PathBuf) {
        if let Some(before) = self.tasks.get(&task)
            && let Some(group) = self.groups.get_mut(&before.processes)
        {
            group.tasks.retain(|it| *it != task);
        }
        self.group(processes.clone(), old).tasks.push(task);
        let known = self.tasks.entry(task).or_insert_with(|| TaskRestore {
            old,
            ours: Vec::new(),
            processes: PathBuf::new(),
        });
        known.processes = processes;
        known.ours.retain(|ours| *ours != new);
        known.ours.push(new);
    }

    /// Removes all that was changed in a file, or in a cgroup.
    fn release(&mut self, path: &Path) {
        if let Some(held) = path.parent().and_then(|folder| self.held.get_mut(folder)) {
            held.files.retain(|file| file.path != path);
        }
        self.held.remove(path);
        self.refused.remove(path);
        self.files.retain(|file| !is_of(&file.path, path));
        for processes in [path.to_owned(), path.join("cgroup.procs")] {
            let group = self.groups.remove(&processes);
            for task in group.into_iter().flat_map(|group| group.tasks) {
                self.tasks.remove(&task);
            }
        }
        self.others.retain(|entry| match entry {
            Entry::Publish { path: published } => !is_of(published, path),
            _ => true,
        });
    }

    /// Returns the data to put all files back.
    pub fn all_files(&self) -> Vec<FileRestore> {
        let held = self.held.values().flat_map(Held::restores);
        self.files.iter().cloned().chain(held).collect()
    }

    /// Returns a short list of entries that undoes the same, without tasks that are gone.
    pub fn entries(&self) -> Vec<Entry> {
        let mut all = self.others.clone();
        all.extend(self.files.iter().map(FileRestore::entry));
        for (folder, held) in &self.held {
            let folder = folder.clone();
            let hold = held.inode.map(|inode| Entry::Hold {
                folder: folder.clone(),
                inode,
            });
            all.extend(hold.clone());
            if !held.earlier.is_empty() {
                let is_refused = self.refused.contains(&folder);
                all.extend(held.earlier.iter().map(FileRestore::entry));
                all.push(Entry::Refused { folder });
                all.extend(hold.filter(|_| !is_refused));
            }
            all.extend(held.files.iter().map(FileRestore::entry));
        }
        for (processes, group) in &self.groups {
            all.extend(group.ours.iter().map(|new| Entry::ReniceGroup {
                processes: processes.clone(),
                old: group.old,
                new: *new,
            }));
        }
        for (task, restore) in self.tasks.iter().filter(|(task, _)| task.exists()) {
            all.extend(restore.ours.iter().map(|new| Entry::Renice {
                tid: task.tid,
                start_time: task.start_time,
                old: restore.old,
                new: *new,
                processes: restore.processes.clone(),
            }));
        }
        all
    }
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

    fn hold(folder: &str) -> Entry {
        Entry::Hold {
            folder: folder.into(),
            inode: 7,
        }
    }

    fn released(path: &str) -> Entry {
        Entry::Released {
            paths: vec![path.into()],
        }
    }

    fn renice(tid: i32, old: i32, new: i32, group: &str) -> Entry {
        Entry::Renice {
            tid,
            start_time: 1,
            old,
            new,
            processes: Path::new(group).join("cgroup.procs"),
        }
    }

    fn live(entries: &[Entry]) -> Vec<Entry> {
        Restores::of(entries.to_vec()).entries()
    }

    #[test]
    fn the_first_old_value_counts_and_the_chain_does_not_grow() {
        let mut entries = vec![write("/g/w", "50", "1")];
        entries.extend((2..10).map(|n| write("/g/w", "50", &n.to_string())));
        assert_eq!(live(&entries), [write("/g/w", "50", "9")]);
        let control = Entry::Control {
            path: "/g/w".into(),
            old: "50".into(),
        };
        entries.push(control.clone());
        assert_eq!(live(&entries), [control]);
    }

    #[test]
    fn the_first_level_counts_and_a_task_is_of_the_group_that_gave_it_the_last() {
        let processes = |group: &str| Path::new(group).join("cgroup.procs");
        let level = |group: &str, old, new| Entry::ReniceGroup {
            processes: processes(group),
            old,
            new,
        };
        let id = |tid| TaskId { tid, start_time: 1 };
        let mut all = vec![
            level("/g", 2, 5),
            level("/g", 4, 7),
            renice(1, 2, 5, "/g"),
            renice(2, 2, 5, "/g"),
            level("/h", 0, 9),
            renice(1, 5, 9, "/h"),
        ];
        let found = Restores::of(all.clone());
        let group = &found.groups[&processes("/g")];
        assert_eq!((group.old, &*group.ours), (2, &[5, 7][..]));
        assert_eq!(group.tasks, [id(2)]);
        let moved = &found.tasks[&id(1)];
        assert_eq!((moved.old, &*moved.ours), (2, &[5, 9][..]));
        assert_eq!(found.groups[&processes("/h")].tasks, [id(1)]);
        for path in [processes("/g"), PathBuf::from("/g")] {
            all.push(released(path.to_str().unwrap()));
            let found = Restores::of(all.clone());
            assert_eq!(found.tasks.keys().collect::<Vec<_>>(), [&id(1)]);
            assert_eq!(found.groups.len(), 1);
        }
    }

    #[test]
    fn what_was_put_back_is_forgotten_and_what_came_after_is_not() {
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
            released("/g/a"),
            write("/g/a/w", "3", "4"),
        ];
        let Restores { files, others, .. } = Restores::of(before.clone());
        let found: Vec<_> = files.iter().map(|file| (&*file.path, &*file.old)).collect();
        assert_eq!(
            found,
            [(Path::new("/g/w"), "1"), (Path::new("/g/a/w"), "3")]
        );
        assert_eq!(others, [pinned, moved]);
        let one_file = [before, vec![released("/g/w")]].concat();
        assert_eq!(Restores::of(one_file).files.len(), 1);
    }

    #[test]
    fn a_file_that_could_not_be_put_back_keeps_its_first_value_in_the_next_group() {
        let all = [
            hold("/g"),
            write("/g/w", "1", "2"),
            Entry::Refused {
                folder: "/g".into(),
            },
            hold("/g"),
            write("/g/w", "2", "5"),
        ];
        let late = Restores::of(all[..3].to_vec());
        assert!(late.refused.contains(Path::new("/g")));
        assert_eq!(live(&live(&all[..3])), all[..3]);
        let found = Restores::of(all.clone());
        assert!(found.refused.is_empty());
        let held = &found.held[Path::new("/g")];
        assert_eq!(held.get(Path::new("/g/w")).unwrap().old, "2");
        let file = &held.restores()[0];
        assert_eq!(
            (&*file.old, &*file.ours),
            ("1", &["2".into(), "5".into()][..])
        );
        assert_eq!((file.inode, found.all_files().len()), (Some(7), 1));
        assert_eq!(live(&live(&all)), live(&all));
        // Also where only the file of the second time is put back.
        let again = [&all[..], &[released("/g/w")]].concat();
        assert_eq!(Restores::of(again).all_files()[0].old, "1");
    }
}
