//! The changes of a journal that are still to be undone: the last record of each key.
//!
//! The owner keeps them in memory and applies each entry as it is written, so that an owner that
//! reads the journal later has the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::record::{FileRestore, ForeignRestore, OwnRestore};
use crate::tasks::TaskId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRestore {
    /// First nice level, before any change by Plimsoll.
    pub old: i32,
    /// Levels that groups gave it, the last at the end, each with the file `cgroup.procs` of the
    /// group's cgroup.
    given: Vec<(PathBuf, i32)>,
}

impl TaskRestore {
    /// Returns whether a level is one that Plimsoll set. Any other is an external change and stays.
    pub fn is_ours(&self, level: i32) -> bool {
        self.given.iter().any(|(_, given)| *given == level)
    }

    /// Returns whether a group, by its file `cgroup.procs`, gave it the last level, and that level.
    pub fn last_of(&self, processes: &Path) -> Option<i32> {
        let last = self.given.last().filter(|(of, _)| of == processes);
        last.map(|(_, level)| *level)
    }

    /// Returns the entries with the same meaning.
    pub fn entries(&self, task: TaskId) -> impl Iterator<Item = Entry> {
        self.given
            .iter()
            .map(move |(processes, new)| Entry::Renice {
                task,
                old: self.old,
                new: *new,
                processes: processes.clone(),
            })
    }
}

/// Data to restore the nice level of tasks that inherited it in a cgroup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GroupRestore {
    /// First nice level of most tasks.
    pub old: i32,
    pub ours: Vec<i32>,
    /// Tasks that were given a level.
    pub tasks: BTreeSet<TaskId>,
}

impl GroupRestore {
    fn add(&mut self, new: i32) {
        self.ours.retain(|ours| *ours != new);
        self.ours.push(new);
    }
}

/// Data to restore everything.
#[derive(Debug, Default)]
pub(crate) struct Restores {
    /// Foreign cgroups, by folder.
    pub held: BTreeMap<PathBuf, ForeignRestore>,
    /// Folders of the refused ones.
    pub refused: BTreeSet<PathBuf>,
    /// Groups of our own, by name.
    pub own: BTreeMap<String, OwnRestore>,
    pub tasks: BTreeMap<TaskId, TaskRestore>,
    /// Nice levels of cgroups, by their files `cgroup.procs`.
    pub groups: BTreeMap<PathBuf, GroupRestore>,
    /// Folders of parents of groups of our own.
    pub parents: Vec<PathBuf>,
    /// Files `cgroup.subtree_control` to which the cpu controller was added, each with the inode of
    /// its cgroup, the last at the end.
    pub enabled: Vec<(PathBuf, Option<u64>)>,
    /// Settings of the kernel that hold for the whole machine.
    pub settings: Vec<FileRestore>,
}

impl Restores {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut restores = Self::default();
        entries.into_iter().for_each(|entry| restores.apply(entry));
        restores
    }

    /// Returns the files of a cgroup, by its folder; none if it is not held.
    pub fn held(&self, folder: &Path) -> &ForeignRestore {
        static NONE: ForeignRestore = ForeignRestore {
            inode: None,
            files: Vec::new(),
            earlier: Vec::new(),
            refused: false,
        };
        self.held.get(folder).unwrap_or(&NONE)
    }

    /// Returns the entry for a new record of a cgroup; `None`: it is the present one.
    pub fn hold(&self, folder: &Path, held: ForeignRestore) -> Option<Entry> {
        let is_new = self.held.get(folder) != Some(&held);
        is_new.then(|| Entry::Held {
            folder: folder.to_owned(),
            held,
        })
    }

    /// Returns the entry for a change of the record of a group of our own; `None`: there is none.
    pub fn change_own(&self, group: &str, change: impl FnOnce(&mut OwnRestore)) -> Option<Entry> {
        let mut own = self.own.get(group)?.clone();
        change(&mut own);
        Some(Entry::Own {
            name: group.into(),
            own: Some(own),
        })
    }

    /// Returns the folders to which a process goes in the end that is in a cgroup of a group of our
    /// own, by folder. `None`: the cgroup is of none.
    pub fn home_of(&self, task: TaskId, folder: &Path) -> Option<&[PathBuf]> {
        let has = |own: &&OwnRestore| own.tops().any(|top| folder.starts_with(top));
        let own = self.own.values().find(has)?;
        Some(own.moved.get(&task).unwrap_or(&own.evacuate_to))
    }

    /// Replaces the record of a key.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Held { folder, held } => {
                self.refused.remove(&folder);
                if held.refused {
                    self.release_levels(&folder.join("cgroup.procs"));
                    self.refused.insert(folder.clone());
                }
                self.held.insert(folder, held);
            }
            Entry::Own { name, own } => self.set_own(name, own),
            Entry::Move {
                group,
                process,
                from,
            } => {
                if let Some(own) = self.own.get_mut(&group) {
                    own.moved.insert(process, from);
                }
            }
            Entry::Parent { folder } => {
                self.parents.retain(|known| *known != folder);
                self.parents.push(folder);
            }
            Entry::Enable { path, inode } => {
                // A cgroup that was made again is another.
                self.enabled.retain(|(known, _)| *known != path);
                self.enabled.push((path, inode));
            }
            Entry::Setting(setting) => {
                self.settings.retain(|known| known.path != setting.path);
                self.settings.push(setting);
            }
            Entry::Renice {
                task,
                old,
                new,
                processes,
            } => self.renice(task, old, new, processes),
            Entry::ReniceGroup {
                processes,
                old,
                new,
            } => {
                let group = self.groups.entry(processes).or_default();
                if group.ours.is_empty() {
                    group.old = old;
                }
                group.add(new);
            }
            Entry::Gone { path } => self.forget(&path),
        }
    }

    fn set_own(&mut self, name: String, own: Option<OwnRestore>) {
        let before = self.own.remove(&name);
        let Some(mut own) = own else {
            for processes in before.iter().flat_map(OwnRestore::processes) {
                self.release_levels(&processes);
            }
            return;
        };
        // Each has a line of its own.
        own.moved.clear();
        if let Some(before) = before {
            let is_new = |top: &&PathBuf| !before.tops().any(|it| it == *top);
            for top in own.tops().filter(is_new) {
                self.inherit_levels(&before, top);
            }
            let is_gone = |(it, _): &(u32, _)| !own.layouts.contains_key(it);
            for (_, gone) in before.made().filter(is_gone) {
                self.pass_levels(gone, &own);
            }
            own.moved = before.moved;
        }
        self.own.insert(name, own);
    }

    /// Adds a level of a task.
    fn renice(&mut self, task: TaskId, old: i32, new: i32, processes: PathBuf) {
        let group = self.groups.entry(processes.clone()).or_default();
        group.tasks.insert(task);
        let given = (processes, new);
        let known = self.tasks.entry(task).or_insert_with(|| TaskRestore {
            old,
            given: Vec::new(),
        });
        known.old = old;
        known.given.retain(|it| *it != given);
        known.given.push(given);
    }

    /// Gives a new cgroup of a group of our own the levels of those before: its tasks will come from
    /// there, with these levels.
    fn inherit_levels(&mut self, before: &OwnRestore, top: &Path) {
        let groups = &self.groups;
        let known = before.processes().filter_map(|it| groups.get(&it));
        let levels: Vec<i32> = known.flat_map(|group| group.ours.clone()).collect();
        for level in levels {
            let group = self.groups.entry(top.join("cgroup.procs")).or_default();
            group.old = before.nice;
            group.add(level);
        }
    }

    /// Gives the last layout of a group of our own the tasks of one that is gone.
    fn pass_levels(&mut self, gone: &[PathBuf], own: &OwnRestore) {
        let last = own.made().next_back().into_iter();
        for (gone, last) in gone.iter().zip(last.flat_map(|(_, last)| last)) {
            let last = last.join("cgroup.procs");
            let gone = gone.join("cgroup.procs");
            let Some(group) = self.groups.remove(&gone) else {
                continue;
            };
            for task in &group.tasks {
                let known = self.tasks.get_mut(task);
                let given = known.into_iter().flat_map(|task| &mut task.given);
                for (processes, _) in given.filter(|(processes, _)| *processes == gone) {
                    processes.clone_from(&last);
                }
            }
            let tasks = &mut self.groups.entry(last).or_default().tasks;
            tasks.extend(group.tasks);
        }
    }

    /// Removes all that is recorded of a path.
    fn forget(&mut self, path: &Path) {
        self.held.remove(path);
        self.refused.remove(path);
        self.settings.retain(|setting| setting.path != path);
        self.parents.retain(|folder| folder != path);
        self.enabled.retain(|(file, _)| file != path);
        self.release_levels(path);
        self.release_levels(&path.join("cgroup.procs"));
    }

    fn release_levels(&mut self, processes: &Path) {
        let group = self.groups.remove(processes);
        for task in group.into_iter().flat_map(|group| group.tasks) {
            let Some(known) = self.tasks.get_mut(&task) else {
                continue;
            };
            known.given.retain(|(of, _)| of != processes);
            if known.given.is_empty() {
                self.tasks.remove(&task);
            }
        }
    }

    /// Returns an entry for each key, without tasks that are gone.
    pub fn entries(&self) -> Vec<Entry> {
        let settings = self.settings.iter().cloned();
        let mut all: Vec<Entry> = settings.map(Entry::Setting).collect();
        let parents = self.parents.iter().cloned();
        all.extend(parents.map(|folder| Entry::Parent { folder }));
        let enabled = self.enabled.iter().cloned();
        all.extend(enabled.map(|(path, inode)| Entry::Enable { path, inode }));
        let held = self.held.clone().into_iter();
        all.extend(held.map(|(folder, held)| Entry::Held { folder, held }));
        for (group, own) in &self.own {
            all.extend(self.change_own(group, |_| ()));
            let moved = own.moved.iter().filter(|(process, _)| process.exists());
            all.extend(moved.map(|(process, from)| Entry::Move {
                group: group.clone(),
                process: *process,
                from: from.clone(),
            }));
        }
        for (processes, group) in &self.groups {
            all.extend(group.ours.iter().map(|new| Entry::ReniceGroup {
                processes: processes.clone(),
                old: group.old,
                new: *new,
            }));
        }
        for (task, restore) in self.tasks.iter().filter(|(task, _)| task.exists()) {
            all.extend(restore.entries(*task));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::LayoutRestore;

    fn written(new: &str) -> FileRestore {
        FileRestore::new(Path::new("/g/w"), "50", Some(new))
    }

    fn renice(tid: i32, old: i32, new: i32, group: &str) -> Entry {
        Entry::Renice {
            task: TaskId { tid, start_time: 1 },
            old,
            new,
            processes: Path::new(group).join("cgroup.procs"),
        }
    }

    fn live(entries: &[Entry]) -> Vec<Entry> {
        Restores::of(entries.to_vec()).entries()
    }

    #[test]
    fn the_first_old_value_counts_and_any_value_is_ours_once_a_loop_has_written() {
        let mut files = vec![written("1")];
        let mut sum_with = |new| {
            let path = Path::new("/g/w");
            files = FileRestore::both(&files, &[FileRestore::new(path, "9", new)]);
            (files[0].old.clone(), files[0].ours.join(" "))
        };
        let sums = ["2", "1", "2"].map(|new| sum_with(Some(new)));
        assert_eq!(sums[2], ("50".to_owned(), "1 2".to_owned()));
        let sums = [None, Some("3")].map(sum_with);
        assert_eq!(sums[1], ("50".to_owned(), String::new()));
    }

    #[test]
    fn a_process_goes_home_from_the_group_in_which_it_is_and_an_ended_group_is_forgotten() {
        let own = |home: &str, tops: &[(u32, &str)]| {
            let layout = |(generation, top): &(u32, &str)| {
                let mut layout = LayoutRestore::default();
                layout.folders.push(top.into());
                (*generation, layout)
            };
            Some(OwnRestore {
                subject: String::new(),
                evacuate_to: vec![home.into()],
                nice: 0,
                layouts: tops.iter().map(layout).collect(),
                moved: BTreeMap::new(),
            })
        };
        let group = |name: &str, own| Entry::Own {
            name: name.into(),
            own,
        };
        let moved = Entry::Move {
            group: "a".into(),
            process: TaskId {
                tid: 7,
                start_time: 1,
            },
            from: vec!["/i".into()],
        };
        let mut all = vec![
            group("a", own("/h", &[(0, "/p/a")])),
            moved,
            renice(7, 0, 5, "/p/a"),
            group("b", own("/i", &[(0, "/p/b")])),
            renice(8, 0, 3, "/p/b"),
        ];
        let id = |tid| TaskId { tid, start_time: 1 };
        let found = Restores::of(all.clone());
        let home = |tid, folder: &str| {
            let home = found.home_of(id(tid), Path::new(folder));
            home.map(|home| home[0].to_str().unwrap().to_owned())
        };
        assert_eq!(home(7, "/p/a/quota").as_deref(), Some("/i"));
        assert_eq!(home(8, "/p/a").as_deref(), Some("/h"));
        assert_eq!(home(7, "/p/ab"), None);
        all.push(group("a", None));
        let found = Restores::of(all.clone());
        assert_eq!(found.own.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(found.tasks.keys().collect::<Vec<_>>(), [&id(8)]);
        // A rebuilt group has the levels and the tasks of the layout before.
        all.push(group("b", own("/i", &[(0, "/p/b"), (1, "/p/b+1")])));
        all.push(group("b", own("/i", &[(1, "/p/b+1")])));
        let found = Restores::of(all);
        let processes = Path::new("/p/b+1/cgroup.procs");
        assert_eq!(found.tasks[&id(8)].last_of(processes), Some(3));
        assert_eq!(found.groups[processes].tasks, BTreeSet::from([id(8)]));
        assert_eq!((found.groups.len(), found.own["b"].layouts.len()), (1, 1));
        assert_eq!(live(&found.entries()), found.entries());
    }
}
