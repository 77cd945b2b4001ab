//! The changes of a journal that are still to be undone.
//!
//! A journal is a list of changes; this is their sum. The owner keeps it in memory and adds each
//! entry as it is written, so that an owner that reads the journal later has the same.
//!
//! A file may be written many times during the life of a group. Undo needs its first value, and the
//! values that Plimsoll wrote, to detect external changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::os;

use super::entry::Entry;
use crate::knobs::Knobs;
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

    /// Returns the entries with the same meaning.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let written = self.ours.iter().map(|new| Entry::Write {
            path: self.path.clone(),
            old: self.old.clone(),
            new: new.clone(),
        });
        written.chain(self.driven.then(|| Entry::Control {
            path: self.path.clone(),
            old: self.old.clone(),
        }))
    }

    /// Returns the entries with the same meaning for a setting.
    fn setting_entries(&self) -> impl Iterator<Item = Entry> {
        self.ours.iter().map(|new| Entry::Setting {
            path: self.path.clone(),
            old: self.old.clone(),
            new: new.clone(),
        })
    }

    fn add(&mut self, new: Option<String>) {
        self.driven |= new.is_none();
        if let Some(new) = new {
            self.ours.retain(|ours| *ours != new);
            // Nearly all of thousands have one value.
            self.ours.reserve_exact(1);
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
    /// Cgroup that is not held.
    const NONE: Self = Self {
        inode: None,
        files: Vec::new(),
        earlier: Vec::new(),
    };

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
                tid: task.tid,
                start_time: task.start_time,
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

/// Group of our own.
#[derive(Debug)]
pub(crate) struct OwnRestore {
    /// Command of a `run`, or target of a `set`.
    pub subject: String,
    /// Folders to which its processes go in the end, one a hierarchy.
    pub evacuate_to: Vec<PathBuf>,
    /// Nice level of its first process before.
    pub nice: i32,
    /// Knobs of its layouts, by generation.
    knobs: BTreeMap<u32, Knobs>,
    /// Outermost cgroups of its layouts, by generation, each one folder a hierarchy.
    pub created: BTreeMap<u32, Vec<PathBuf>>,
    /// Processes that were moved into it, by pid.
    pub moved: BTreeMap<i32, MoveRestore>,
}

#[derive(Debug)]
pub(crate) struct MoveRestore {
    pub start_time: u64,
    /// Folders to which the process goes in the end, one a hierarchy.
    pub from: Vec<PathBuf>,
}

impl OwnRestore {
    /// Returns the number for the next layout.
    pub fn next_generation(&self) -> u32 {
        let last = self.created.keys().next_back();
        last.map_or(0, |last| last + 1)
    }

    /// Returns the knobs of a layout.
    pub fn knobs_of(&self, generation: u32) -> Knobs {
        let knobs = self.knobs.get(&generation);
        let knobs = knobs.or_else(|| self.knobs.values().next());
        knobs.cloned().unwrap_or_default()
    }

    /// Lists the layouts but one whose cgroups are gone.
    pub fn gone(&self, but: u32) -> Vec<u32> {
        let others = self.created.iter().filter(|(it, _)| **it != but);
        let gone = others.filter(|(_, folders)| !folders.iter().any(|folder| os::exists(folder)));
        gone.map(|(generation, _)| *generation).collect()
    }

    /// Returns whether a cgroup is one of this group.
    fn has(&self, folder: &Path) -> bool {
        let mut tops = self.created.values().flatten();
        tops.any(|top| folder.starts_with(top))
    }

    /// Lists the files that the nice levels of its cgroups are known by.
    pub fn processes(&self) -> impl Iterator<Item = PathBuf> {
        let tops = self.created.values().flatten();
        tops.map(|top| top.join("cgroup.procs"))
    }

    fn entries(&self, name: &str) -> Vec<Entry> {
        let group = || name.to_owned();
        let mut all = vec![Entry::Group {
            name: group(),
            subject: self.subject.clone(),
            knobs: self.knobs_of(0),
            evacuate_to: self.evacuate_to.clone(),
            nice: self.nice,
        }];
        let rebuilt = self.knobs.iter().filter(|(generation, _)| **generation > 0);
        all.extend(rebuilt.map(|(generation, knobs)| Entry::Change {
            group: group(),
            knobs: knobs.clone(),
            generation: *generation,
        }));
        let created = self.created.iter();
        all.extend(created.map(|(generation, folders)| Entry::Create {
            group: group(),
            generation: *generation,
            folders: folders.clone(),
        }));
        let id = |pid: &i32, moved: &MoveRestore| TaskId {
            tid: *pid,
            start_time: moved.start_time,
        };
        let moved = self.moved.iter();
        let moved = moved.filter(|(pid, moved)| id(pid, moved).exists());
        all.extend(moved.map(|(pid, moved)| Entry::Move {
            group: group(),
            pid: *pid,
            start_time: moved.start_time,
            from: moved.from.clone(),
        }));
        all
    }
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
    pub others: Vec<Entry>,
}

/// Returns whether a path is released with another one.
fn is_of(path: &Path, released: &Path) -> bool {
    path == released || path.parent() == Some(released)
}

fn find_or_add(
    files: &mut Vec<FileRestore>,
    path: PathBuf,
    inode: Option<u64>,
    old: String,
) -> &mut FileRestore {
    let index = files.iter().position(|file| file.path == path);
    let index = index.unwrap_or_else(|| {
        // There may be thousands of cgroups with two or three files each.
        files.reserve_exact(1);
        files.push(FileRestore::new(path, inode, old));
        files.len() - 1
    });
    &mut files[index]
}

impl Restores {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut restores = Self::default();
        entries.into_iter().for_each(|entry| restores.apply(entry));
        restores
    }

    /// Returns the files of a cgroup, by its folder; none if it is not held.
    pub fn held(&self, folder: &Path) -> &Held {
        static NONE: Held = Held::NONE;
        self.held.get(folder).unwrap_or(&NONE)
    }

    /// Returns the folders to which a process goes in the end that is in a cgroup of a group of our
    /// own, by folder. `None`: the cgroup is of none.
    pub fn home_of(&self, task: TaskId, folder: &Path) -> Option<&[PathBuf]> {
        let own = self.own.values().find(|own| own.has(folder))?;
        let moved = own.moved.get(&task.tid);
        let moved = moved.filter(|moved| moved.start_time == task.start_time);
        Some(moved.map_or(&own.evacuate_to, |moved| &moved.from))
    }

    /// Adds a change.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Write { path, old, new } => self.file(path, old).add(Some(new)),
            Entry::Control { path, old } => self.file(path, old).add(None),
            Entry::Setting { path, old, new } => {
                find_or_add(&mut self.settings, path, None, old).add(Some(new));
            }
            Entry::Hold { folder, inode } => {
                self.refused.remove(&folder);
                self.held.entry(folder).or_default().inode = Some(inode);
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
                let group = self.groups.entry(processes).or_default();
                if group.ours.is_empty() {
                    group.old = old;
                }
                group.add(new);
            }
            Entry::Group {
                name,
                subject,
                knobs,
                evacuate_to,
                nice,
            } => {
                let own = OwnRestore {
                    subject,
                    knobs: BTreeMap::from([(0, knobs)]),
                    evacuate_to,
                    nice,
                    created: BTreeMap::new(),
                    moved: BTreeMap::new(),
                };
                self.own.insert(name, own);
            }
            Entry::Create {
                group,
                generation,
                folders,
            } => {
                // Its tasks will come from the layouts before, with the levels of these.
                self.inherit_levels(&group, &folders);
                if let Some(own) = self.own.get_mut(&group) {
                    own.created.insert(generation, folders);
                }
            }
            Entry::Replaced { group, generation } => self.replace(&group, generation),
            Entry::Change {
                group,
                knobs,
                generation,
            } => {
                if let Some(own) = self.own.get_mut(&group) {
                    own.knobs.insert(generation, knobs);
                }
            }
            Entry::Move {
                group,
                pid,
                start_time,
                from,
            } => {
                if let Some(own) = self.own.get_mut(&group) {
                    own.moved.insert(pid, MoveRestore { start_time, from });
                }
            }
            Entry::Ended { group } => {
                let own = self.own.remove(&group);
                for processes in own.iter().flat_map(OwnRestore::processes) {
                    self.release_levels(&processes);
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
        find_or_add(files, path, inode, old)
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

    /// Gives a new cgroup of a group of our own the levels of those before.
    fn inherit_levels(&mut self, group: &str, folders: &[PathBuf]) {
        let own = self.own.get(group).into_iter();
        let before = own.flat_map(|own| own.processes().zip(std::iter::repeat(own.nice)));
        let before: Vec<(PathBuf, i32)> = before.collect();
        for (processes, nice) in before {
            let Some(levels) = self.groups.get(&processes).map(|it| it.ours.clone()) else {
                continue;
            };
            for folder in folders {
                let group = self.groups.entry(folder.join("cgroup.procs")).or_default();
                group.old = nice;
                levels.iter().for_each(|level| group.add(*level));
            }
        }
    }

    /// Forgets a layout of a group of our own that is gone. Its tasks are those of the last one.
    fn replace(&mut self, group: &str, generation: u32) {
        let Some(own) = self.own.get_mut(group) else {
            return;
        };
        own.knobs.remove(&generation);
        let gone = own.created.remove(&generation).unwrap_or_default();
        let last = own.created.values().next_back().cloned();
        for (gone, last) in gone.iter().zip(last.iter().flatten()) {
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
            self.groups
                .entry(last)
                .or_default()
                .tasks
                .extend(group.tasks);
        }
    }

    /// Removes all that was changed in a file, or in a cgroup.
    fn release(&mut self, path: &Path) {
        if let Some(held) = path.parent().and_then(|folder| self.held.get_mut(folder)) {
            held.files.retain(|file| file.path != path);
        }
        self.held.remove(path);
        self.refused.remove(path);
        self.files.retain(|file| !is_of(&file.path, path));
        self.settings.retain(|setting| setting.path != path);
        self.parents.retain(|folder| folder != path);
        self.enabled.retain(|(file, _)| file != path);
        self.release_levels(path);
        self.release_levels(&path.join("cgroup.procs"));
        self.others.retain(|entry| match entry {
            Entry::Publish { path: published } => !is_of(published, path),
            _ => true,
        });
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

    /// Returns whether there is anything but groups of our own, what these share, and settings.
    pub fn has_more_than_own(&self) -> bool {
        !(self.files.is_empty() && self.held.is_empty() && self.others.is_empty())
    }

    /// Returns the data to put all files back.
    pub fn all_files(&self) -> Vec<FileRestore> {
        let held = self.held.values().flat_map(Held::restores);
        self.files.iter().cloned().chain(held).collect()
    }

    /// Returns a short list of entries that undoes the same, without tasks that are gone.
    pub fn entries(&self) -> Vec<Entry> {
        let mut all = self.others.clone();
        let settings = self.settings.iter();
        all.extend(settings.flat_map(FileRestore::setting_entries));
        let parents = self.parents.iter().cloned();
        all.extend(parents.map(|folder| Entry::Parent { folder }));
        let enabled = self.enabled.iter().cloned();
        all.extend(enabled.map(|(path, inode)| Entry::Enable { path, inode }));
        all.extend(self.files.iter().flat_map(FileRestore::entries));
        for (folder, held) in &self.held {
            let folder = folder.clone();
            let hold = held.inode.map(|inode| Entry::Hold {
                folder: folder.clone(),
                inode,
            });
            all.extend(hold.clone());
            if !held.earlier.is_empty() {
                let is_refused = self.refused.contains(&folder);
                all.extend(held.earlier.iter().flat_map(FileRestore::entries));
                all.push(Entry::Refused { folder });
                all.extend(hold.filter(|_| !is_refused));
            }
            all.extend(held.files.iter().flat_map(FileRestore::entries));
        }
        for (name, own) in &self.own {
            all.extend(own.entries(name));
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
        entries.extend((2..10).map(|n| write("/g/w", "50", &n.to_string())));
        assert_eq!(live(&entries), entries[..9]);
        let control = Entry::Control {
            path: "/g/w".into(),
            old: "50".into(),
        };
        entries.push(control.clone());
        assert_eq!(live(&entries).last(), Some(&control));
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
    #[test]
    fn a_process_goes_home_from_the_group_in_which_it_is_and_an_ended_group_is_forgotten() {
        let group = |name: &str, home: &str| Entry::Group {
            name: name.into(),
            subject: String::new(),
            knobs: Knobs::default(),
            evacuate_to: vec![home.into()],
            nice: 0,
        };
        let create = |name: &str| Entry::Create {
            group: name.into(),
            generation: 0,
            folders: vec![Path::new("/p").join(name)],
        };
        let moved = |name: &str, home: &str| Entry::Move {
            group: name.into(),
            pid: 7,
            start_time: 1,
            from: vec![home.into()],
        };
        let mut all = vec![
            group("a", "/h"),
            create("a"),
            moved("a", "/i"),
            renice(7, 0, 5, "/p/a"),
            group("b", "/i"),
            create("b"),
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
        all.push(Entry::Ended { group: "a".into() });
        let found = Restores::of(all.clone());
        assert_eq!(found.own.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(found.tasks.keys().collect::<Vec<_>>(), [&id(8)]);
        // A rebuilt group has the levels and the tasks of the layout before.
        all.push(Entry::Create {
            group: "b".into(),
            generation: 1,
            folders: vec!["/p/b+1".into()],
        });
        all.push(Entry::Replaced {
            group: "b".into(),
            generation: 0,
        });
        let found = Restores::of(all);
        let processes = Path::new("/p/b+1/cgroup.procs");
        assert_eq!(found.tasks[&id(8)].last_of(processes), Some(3));
        assert_eq!(found.groups[processes].tasks, BTreeSet::from([id(8)]));
        assert_eq!((found.groups.len(), found.own["b"].created.len()), (1, 1));
        assert_eq!(live(&found.entries()), found.entries());
    }
}
