//! One cgroup that is held.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, WEIGHT_DEFAULT, read_text};

use super::change::Change;
use super::values::{HeldFile, Values};
use crate::cgroup::layout::{KERNEL_PERIOD_MAX_NS, fit_below};
use crate::control::headroom::SideDescription;
use crate::enforcer::Sample;
use crate::error::Result;
use crate::journal::{Entry, FileRestore, GroupRestore, TaskRestore};
use crate::knobs::{Bandwidth, Knobs, Nice, Quota};
use crate::tasks::{self, TaskId};
use crate::undo::{self, Lineage, UndoReport};

/// Of what others keep changing, only so many are remembered.
const FOREIGN_CHANGES_MAX: usize = 32;

/// A cgroup that is held.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Below the mount point; `None`: as its name says.
    path: Option<Box<Path>>,
    /// Which cgroup of that path it is: another has nothing of ours.
    identity: Option<u64>,
    pub knobs: Knobs,
    pub values: Values,
    /// Files that were not put back when it was held before: the kernel did
    /// not take that then.
    pub earlier: Vec<FileRestore>,
    pub tasks: Vec<TaskRestore>,
    /// Of what these start; `None`: none has a nice level from us.
    pub descendants: Option<GroupRestore>,
    /// Processes that were moved here, as they are in the journal.
    pub moved: Vec<Entry>,
    pub foreign_changes: Vec<String>,
}

/// What is known of a group before its knobs change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'a> {
    pub values: &'a Values,
    tasks: &'a [TaskRestore],
    descendants: Option<&'a GroupRestore>,
    moved: &'a [Entry],
    nice: Option<Nice>,
}

impl Held {
    pub fn new(name: &str, group: &CpuGroup) -> Self {
        let path = group.path();
        let is_named_so = Path::new(name).strip_prefix("/").is_ok_and(|it| it == path);
        Self {
            path: (!is_named_so).then(|| path.into()),
            identity: group.identity(),
            ..Self::default()
        }
    }

    fn path<'a>(&'a self, name: &'a str) -> &'a Path {
        let name = || Path::new(name.trim_start_matches('/'));
        self.path.as_deref().unwrap_or_else(name)
    }

    pub fn is_at(&self, name: &str, path: &Path) -> bool {
        self.path(name) == path
    }

    pub fn cgroup(&self, hierarchy: &Arc<Hierarchy>, name: &str) -> CpuGroup {
        CpuGroup::at(hierarchy, self.path(name))
    }

    /// Whether it is still there, as an error: another of its path is not.
    pub fn check_is_there(&self, group: &CpuGroup) -> Result<()> {
        Ok(group.check_is(self.identity)?)
    }

    pub fn known(&self) -> Known<'_> {
        Known {
            values: &self.values,
            tasks: &self.tasks,
            descendants: self.descendants.as_ref(),
            moved: &self.moved,
            nice: self.knobs.nice,
        }
    }

    /// Puts all but the files back.
    pub fn restore_tasks(&self, group: &CpuGroup, report: &mut UndoReport) {
        for restore in &self.tasks {
            undo::restore_nice(restore, report);
        }
        if let Some(group) = &self.descendants {
            undo::restore_group(group, &self.tasks, report);
        }
        if self.moved.is_empty() {
            return;
        }
        // Of those that are still here.
        let here = Entry::Hold {
            folder: folder_of(group),
            inode: self.identity.unwrap_or(0),
        };
        let entries = [&[here], &self.moved[..]].concat();
        undo::undo_entries(&entries, report);
    }

    /// How to put its files back: as they were before it was held the first
    /// time. None, if it is not there any more.
    pub fn restores(&self, group: &CpuGroup) -> Vec<FileRestore> {
        if self.check_is_there(group).is_err() {
            return Vec::new();
        }
        let mut all = self.values.restores(group);
        for earlier in &self.earlier {
            match all.iter_mut().find(|file| file.path == earlier.path) {
                Some(file) => {
                    file.old.clone_from(&earlier.old);
                    file.ours.extend(earlier.ours.iter().cloned());
                    file.driven |= earlier.driven;
                }
                None => all.push(earlier.clone()),
            }
        }
        all
    }

    /// A change has failed, and the kernel has not taken back all of it: what it left is ours.
    pub fn keep_unreverted(&mut self, tried: &Values, group: &CpuGroup) {
        for file in tried.restores(group) {
            let is_known =
                |known: &HeldFile| file.ours.last().is_some_and(|it| **it == *known.ours);
            let is_left = read_text(&file.path).is_ok_and(|now| file.ours.contains(&now));
            if is_left && !self.values.get(&file.path).is_some_and(is_known) {
                self.earlier.push(file);
            }
        }
    }

    /// That it is put back.
    pub fn released(&self, group: &CpuGroup) -> Entry {
        Entry::Released {
            paths: vec![folder_of(group)],
            tasks: self.tasks.iter().map(|restore| restore.task.tid).collect(),
            processes: moved_pids(&self.moved).collect(),
        }
    }

    /// How it shares the allowance of side work, if it asks for headroom.
    pub fn side(&self, name: &str, group: &CpuGroup) -> Option<SideDescription> {
        let knobs = &self.knobs;
        let headroom = knobs.headroom?;
        let weight = knobs.weight.map(|weight| weight.weight);
        Some(SideDescription {
            name: name.into(),
            weight: weight.unwrap_or(WEIGHT_DEFAULT),
            headroom,
            tolerance: knobs.tolerance,
            version: group.hierarchy().version(),
            group: group.path().to_owned(),
            identity: self.identity,
            quota_max_ns: quota_max_ns(group),
        })
    }

    pub fn audit(&mut self, group: &CpuGroup) -> Result<Vec<String>> {
        let found = self.values.audit(group)?;
        self.foreign_changes.extend(found.iter().cloned());
        let surplus = self
            .foreign_changes
            .len()
            .saturating_sub(FOREIGN_CHANGES_MAX);
        self.foreign_changes.drain(..surplus);
        Ok(found)
    }

    pub fn sample(&self, group: &CpuGroup) -> Result<Sample> {
        let stat = |wanted: bool| wanted.then(|| group.stat()).transpose();
        Ok(Sample {
            usage_usec: group.usage_usec()?,
            processes: group.all_processes()?.len() as u64,
            quota: stat(self.knobs.quota.is_some())?,
            cap: stat(self.knobs.cap.is_some())?,
            foreign_changes: self.foreign_changes.clone(),
            ..Sample::default()
        })
    }
}

/// The most that the headroom controller may write: v1 refuses a rate above
/// those of the cgroups around it.
fn quota_max_ns(group: &CpuGroup) -> u64 {
    let mut most = Bandwidth {
        quota: Quota {
            quota_ns: Some(plimsoll_policy::RUNTIME_MAX_NS),
            period_ns: KERNEL_PERIOD_MAX_NS,
        },
        burst_ns: 0,
    };
    let mut above = group.parent();
    while let Some(parent) = above {
        // The root has no quota to read.
        if let Ok(outer) = parent.read_cpu_max() {
            most = fit_below(&outer.into(), most, group.hierarchy().version());
        }
        above = parent.parent();
    }
    let quota_ns = most.quota.quota_ns;
    quota_ns.unwrap_or(plimsoll_policy::RUNTIME_MAX_NS)
}

/// The processes of such entries.
fn moved_pids(moved: &[Entry]) -> impl Iterator<Item = i32> {
    moved.iter().filter_map(|entry| match entry {
        Entry::Move { pid, .. } => Some(*pid),
        _ => None,
    })
}

/// Its folder, as the parent of its files is written.
pub(super) fn folder_of(group: &CpuGroup) -> PathBuf {
    let file = group.cpu_file("cgroup.procs");
    file.parent().map(Path::to_owned).unwrap_or(file)
}

/// A change of knobs that is worked out and not done yet.
#[derive(Debug)]
pub(super) struct Prepared {
    pub name: Box<str>,
    pub group: CpuGroup,
    pub held: Held,
    pub knobs: Knobs,
    change: Change,
    /// What it comes to.
    pub values: Values,
    /// The same for the nice levels of tasks.
    pub tasks: Vec<TaskRestore>,
    /// And of what these start.
    pub descendants: Option<GroupRestore>,
    /// What had a level from us that is asked for no more.
    let_go: Option<(GroupRestore, Vec<TaskRestore>)>,
    /// Tasks with the level that they are to get and that they had.
    renice: Vec<(i32, i32, i32)>,
    /// To be on disk before.
    pub entries: Vec<Entry>,
    /// To be written down after.
    pub afterwards: Vec<Entry>,
}

impl Prepared {
    /// Looks at what is there now, and works out what has to be done.
    pub fn new(group: CpuGroup, known: Known<'_>, knobs: &Knobs) -> Result<Self> {
        let mut change = Change::plan(&group, known.values, knobs)?;
        let mut prepared = Self {
            name: "".into(),
            group,
            held: Held::default(),
            knobs: knobs.clone(),
            values: std::mem::take(&mut change.values),
            tasks: Vec::new(),
            descendants: None,
            let_go: None,
            renice: Vec::new(),
            entries: std::mem::take(&mut change.entries),
            afterwards: std::mem::take(&mut change.afterwards),
            change,
        };
        match knobs.nice {
            Some(nice) => prepared.set_nice(nice, known)?,
            None if known.nice.is_some() => prepared.reset_nice(known),
            None => (),
        }
        Ok(prepared)
    }

    /// Every task that is there now gets the level. One that has come since
    /// the last time may have had that from us already, from whoever started
    /// it.
    fn set_nice(&mut self, nice: Nice, known: Known<'_>) -> Result<()> {
        let mut known_tasks: HashMap<TaskId, &TaskRestore> = HashMap::new();
        known_tasks.extend(known.tasks.iter().map(|restore| (restore.task, restore)));
        let mut lineage = known
            .descendants
            .map(|group| Lineage::new(group, known.tasks));
        lineage.iter_mut().for_each(Lineage::look);
        let moved: HashSet<i32> = moved_pids(known.moved).collect();
        let processes = self.group.all_processes()?;
        for tid in processes.into_iter().flat_map(tasks::threads) {
            let (Some(task), Ok(now)) = (TaskId::of(tid), tasks::nice(tid)) else {
                continue;
            };
            let restore = known_tasks.get(&task);
            let inherited = || match &lineage {
                Some(lineage) if !moved.contains(&tid) => lineage.inherited(tid, now),
                _ => None,
            };
            let old = match restore {
                Some(restore) => restore.old,
                None => inherited().unwrap_or(now),
            };
            if restore.is_none_or(|restore| restore.ours != [nice.nice]) {
                self.entries.push(Entry::Renice {
                    tid,
                    start_time: task.start_time,
                    old,
                    new: Some(nice.nice),
                });
            }
            let ours = vec![nice.nice];
            self.tasks.push(TaskRestore { task, old, ours });
            if now != nice.nice {
                self.renice.push((tid, nice.nice, now));
            }
        }
        self.descendants = known.descendants.cloned();
        self.note_descendants(nice.nice);
        Ok(())
    }

    /// What these tasks start from now on has the level, too.
    fn note_descendants(&mut self, nice: i32) {
        let before = self.descendants.take();
        let is_known = before
            .as_ref()
            .is_some_and(|group| group.ours.last() == Some(&nice));
        self.descendants = before.or_else(|| {
            Some(GroupRestore {
                processes: self.group.cpu_file("cgroup.procs"),
                old: undo::commonest_level(&self.tasks)?,
                ours: Vec::new(),
            })
        });
        if let Some(group) = self.descendants.as_mut().filter(|_| !is_known) {
            group.ours.retain(|level| *level != nice);
            group.ours.push(nice);
            self.entries.push(group.entry());
        }
    }

    fn reset_nice(&mut self, known: Known<'_>) {
        let mut back = Vec::new();
        for restore in known.tasks.iter().filter(|restore| restore.task.exists()) {
            let tid = restore.task.tid;
            back.push(tid);
            match tasks::nice(tid) {
                Ok(now) if restore.ours.contains(&now) && now != restore.old => {
                    self.renice.push((tid, restore.old, now));
                }
                _ => (),
            }
        }
        self.let_go = known
            .descendants
            .map(|group| (group.clone(), known.tasks.to_vec()));
        let descendants = known.descendants.map(|group| group.processes.clone());
        self.afterwards.push(Entry::Released {
            paths: descendants.into_iter().collect(),
            tasks: back,
            processes: Vec::new(),
        });
    }

    /// Does it. When the kernel refuses, everything is as it was before.
    pub fn execute(&self) -> Result<()> {
        self.change.execute()?;
        for (tid, nice, _) in &self.renice {
            if let Err(error) = tasks::set_nice(*tid, *nice) {
                self.revert();
                return Err(error);
            }
        }
        if let Some((group, tasks)) = &self.let_go {
            // What is refused here was not refused above.
            undo::restore_group(group, tasks, &mut UndoReport::default());
        }
        Ok(())
    }

    /// Goes back to what was there before.
    pub fn revert(&self) {
        self.change.revert();
        for (tid, _, before) in &self.renice {
            // As far as it goes: what was refused may be refused again.
            let _ = tasks::set_nice(*tid, *before);
        }
    }

    /// That a new group has not come to be.
    pub fn released(&self) -> Entry {
        Entry::Released {
            paths: vec![folder_of(&self.group)],
            tasks: self.tasks.iter().map(|restore| restore.task.tid).collect(),
            processes: Vec::new(),
        }
    }
}
