//! Watch of cgroups that come, go or are written to, by inotify.
//!
//! The kernel reports the children of a watched folder, so every cgroup is watched. It is
//! watched first and listed afterwards; a child that appears in between is found twice and
//! reported once. Cgroups for which the kernel has no watch left, or all if it has no instance
//! left, are read every second. Of cgroups that the caller names, the end of the last process is
//! reported, too (v2; v1 has no event for it).
//!
//! Writes have a queue of their own, which rests after each reading: the headroom loop writes
//! quotas a hundred times a second, and a new cgroup must not wait meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use plimsoll_cgroupfs::events::{EventQueue, Interest, WatchEvent, WatchId};
use plimsoll_cgroupfs::{name, os};

/// Maximum number of reads in one call: more than the kernel's queue has room for, so that a
/// call ends however fast other processes write.
const READS_MAX: usize = 256;
/// Interval of reading cgroups that cannot be watched.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after writes were read: the headroom loop writes quotas all the time, and an audit is
/// not due for longer than that.
const WRITES_REST: Duration = Duration::from_millis(250);
/// Pause after the queue of cgroups that come and go ran over and all cgroups were read.
const OVERFLOW_REST: Duration = Duration::from_millis(100);
/// Prefix of the cpu controller's files. Writes to other files are irrelevant.
const CPU_FILES: &[u8] = b"cpu.";
/// v2: the kernel changes it when the last process leaves the cgroup, and all below, or the first
/// one comes (Documentation/admin-guide/cgroup-v2.rst, "[Un]populated Notification").
const EVENTS: &str = "cgroup.events";
/// v2: a write here gives the cgroups directly below the controller's files, or takes them
/// away, for which the kernel has no event.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Change of a cgroup. Paths are below the mount point, with a `/` in front; the root is `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CgroupChange {
    Appeared(String),
    Gone(String),
    /// A process, perhaps this one, may have written to one of the cgroup's files of the cpu
    /// controller, or have switched the controller on or off.
    Written(String),
    /// The last process of a [followed](CgroupWatch::follow_processes) cgroup may have ended, or the
    /// cgroup is gone: a later one with its path is not followed.
    Emptied(String),
}

/// Changes since the last call.
#[derive(Debug)]
pub struct CgroupChanges {
    pub changes: Vec<CgroupChange>,
    /// Number of overflows of the kernel's queues (`fs.inotify.max_queued_events`). After each all
    /// cgroups count as written to, and after one of the tree they were read again.
    pub lost: u64,
}

/// The changes of one reading. Several writes to a cgroup are one change.
#[derive(Debug, Default)]
struct Changes {
    list: Vec<CgroupChange>,
    written: HashSet<Arc<str>>,
}

impl Changes {
    fn appeared(&mut self, path: &str) {
        self.list.push(CgroupChange::Appeared(path.into()));
    }

    fn gone(&mut self, path: &str) {
        // A later cgroup of that name has changes of its own.
        self.written.remove(path);
        self.list.push(CgroupChange::Gone(path.into()));
    }

    fn written(&mut self, path: &Arc<str>) {
        if self.written.insert(path.clone()) {
            self.list.push(CgroupChange::Written(path.as_ref().into()));
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Watches {
    tree: WatchId,
    writes: WatchId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Watched(Watches),
    /// The kernel has no watch left for it. The inode tells it from a later one with its path.
    Unwatched {
        inode: u64,
    },
}

/// A queue of the kernel's events.
#[derive(Debug)]
struct Queue {
    /// `Err`: no instance is left, by this limit.
    events: Result<EventQueue, &'static str>,
    paths: HashMap<WatchId, Arc<str>>,
    /// Time before which it is not read.
    rests_until: Instant,
}

fn is_no_more_files<T>(opened: &io::Result<T>) -> bool {
    let error = opened.as_ref().err();
    error.and_then(io::Error::raw_os_error) == Some(Errno::EMFILE as i32)
}

/// Returns the limit that has refused an instance, by whether another file can be opened: the
/// kernel has one error for both.
fn limit_of_instances<T>(another: &io::Result<T>) -> &'static str {
    match is_no_more_files(another) {
        true => "of open files (ulimit -n)",
        false => "fs.inotify.max_user_instances",
    }
}

impl Queue {
    fn new(opened: io::Result<EventQueue>) -> io::Result<Self> {
        let events = match is_no_more_files(&opened) {
            true => Err(limit_of_instances(&File::open("/"))),
            false => Ok(opened?),
        };
        Ok(Self {
            events,
            paths: HashMap::new(),
            rests_until: os::now(),
        })
    }

    fn watch(&mut self, folder: &Path) -> io::Result<WatchId> {
        let events = self.events.as_mut().map_err(|_| Errno::EMFILE)?;
        events.watch(folder)
    }

    fn watch_file(&mut self, file: &Path) -> io::Result<WatchId> {
        let events = self.events.as_mut().map_err(|_| Errno::EMFILE)?;
        events.watch_file(file)
    }

    fn read(&mut self) -> io::Result<Vec<WatchEvent>> {
        self.events
            .as_mut()
            .map_or(Ok(Vec::new()), EventQueue::read)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().ok()?.fd()
    }

    fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    fn end(&mut self, watch: WatchId) {
        if let Ok(events) = &mut self.events {
            events.forget(watch);
        }
    }

    fn forget(&mut self, watch: WatchId) {
        self.paths.remove(&watch);
        self.end(watch);
    }
}

#[derive(Debug)]
pub struct CgroupWatch {
    tree: Queue,
    writes: Queue,
    /// Mount point of the hierarchy.
    root: PathBuf,
    /// All known cgroups.
    watches: BTreeMap<Arc<str>, Known>,
    /// Watches, in the queue of the tree, of the files [`EVENTS`] of followed cgroups, by path.
    followed: BTreeMap<String, WatchId>,
    /// Number of cgroups that are not watched, beyond the kernel's limit.
    unwatched: usize,
    watches_max: usize,
    /// Time at which to read the unwatched cgroups; `None`: there are none.
    due: Option<Instant>,
    /// Number of overflows that were not reported yet.
    lost: u64,
}

impl CgroupWatch {
    /// Begins to watch all cgroups below a mount point. The first changes are the present ones.
    ///
    /// # Errors
    /// When the root does not exist.
    pub fn start(root: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        Self::start_with(root, EventQueue::new, usize::MAX)
    }

    fn start_with(
        root: &Path,
        open: impl Fn(Interest) -> io::Result<EventQueue>,
        watches_max: usize,
    ) -> io::Result<(Self, Vec<CgroupChange>)> {
        let mut watch = Self {
            tree: Queue::new(open(Interest::Folders))?,
            writes: Queue::new(open(Interest::Writes))?,
            root: root.to_owned(),
            watches: BTreeMap::new(),
            followed: BTreeMap::new(),
            unwatched: 0,
            watches_max,
            due: None,
            lost: 0,
        };
        let mut changes = Changes::default();
        watch.add_tree("/".into(), &mut changes);
        if watch.watches.is_empty() {
            watch.tree.watch(&watch.root)?;
        }
        watch.set_due();
        Ok((watch, changes.list))
    }

    /// Reads the queues that do not rest, without waiting. The queue of cgroups that come and go
    /// rests after it ran over, and the queue of writes after each reading.
    pub fn changes(&mut self, now: Instant) -> io::Result<CgroupChanges> {
        let mut changes = Vec::new();
        if !self.writes.rests(now)
            && let Some(writes) = self.read_writes()?
        {
            self.writes.rests_until = now + WRITES_REST;
            changes = writes;
        }
        if !self.tree.rests(now) {
            let before = self.lost;
            changes.extend(self.read_tree(now)?);
            if self.lost > before {
                self.tree.rests_until = now + OVERFLOW_REST;
            }
        }
        let lost = mem::take(&mut self.lost);
        Ok(CgroupChanges { changes, lost })
    }

    pub fn end_rest(&mut self, now: Instant) {
        self.tree.rests_until = now;
        self.writes.rests_until = now;
    }

    /// Returns the time at which [`changes`](Self::changes) has to be called without an event.
    /// `None`: never.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let resting = [&self.tree, &self.writes].into_iter();
        let resting = resting.filter(|queue| queue.rests(now));
        let ends = resting.map(|queue| queue.rests_until);
        let unwatched = self.due.map(|due| due.max(self.tree.rests_until));
        ends.chain(unwatched).min()
    }

    /// Returns the queues that do not rest, readable when there is something to read.
    pub fn awake(&self, now: Instant) -> impl Iterator<Item = BorrowedFd<'_>> {
        let queues = [&self.tree, &self.writes].into_iter();
        let awake = queues.filter(move |queue| !queue.rests(now));
        awake.filter_map(Queue::fd)
    }

    /// Reports the end of the last process of a cgroup from now on. Returns false if the kernel
    /// does not tell it: then the caller has to look.
    pub fn follow_processes(&mut self, path: &str) -> bool {
        let file = self.folder(path).join(EVENTS);
        let Ok(watch) = self.tree.watch_file(&file) else {
            return false;
        };
        let before = self.followed.insert(path.to_owned(), watch.clone());
        // That of an earlier cgroup with its path.
        if let Some(before) = before.filter(|before| *before != watch) {
            self.tree.end(before);
        }
        true
    }

    /// Ends the watch of a cgroup that is gone: the kernel keeps it.
    fn unfollow(&mut self, path: &str, changes: &mut Changes) {
        if let Some(watch) = self.followed.remove(path) {
            self.tree.end(watch);
            changes.list.push(CgroupChange::Emptied(path.to_owned()));
        }
    }

    /// Returns the paths of all known cgroups.
    #[must_use]
    pub fn paths(&self) -> Vec<Arc<str>> {
        self.watches.keys().cloned().collect()
    }

    /// Returns the problem for the operator where the kernel has too few watches or instances.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let mut queues = [&self.tree, &self.writes].into_iter();
        let lacking = queues.find_map(|queue| queue.events.as_ref().err());
        let limit = lacking.copied().unwrap_or("fs.inotify.max_user_watches");
        let unwatched = self.unwatched;
        (unwatched > 0).then(|| {
            format!(
                "{unwatched} cgroups cannot be watched and are looked at once a second: the \
                 kernel's limit {limit} is reached"
            )
        })
    }

    /// Reads which cgroups came and went, in order. Cgroups that may have been written to without
    /// an event are reported as written.
    fn read_tree(&mut self, now: Instant) -> io::Result<Vec<CgroupChange>> {
        let mut changes = Changes::default();
        self.read(|watch| &mut watch.tree, Self::follow_tree, &mut changes)?;
        if self.due.is_some_and(|due| due <= now) {
            self.look_at_unwatched(&mut changes);
            self.due = None;
        }
        self.set_due();
        Ok(changes.list)
    }

    /// Reads which cgroups were written to. `None`: there was no event, not even an irrelevant one.
    fn read_writes(&mut self) -> io::Result<Option<Vec<CgroupChange>>> {
        let mut changes = Changes::default();
        let any = self.read(|watch| &mut watch.writes, Self::follow_write, &mut changes)?;
        Ok(any.then_some(changes.list))
    }

    /// Reads one of the two queues. Returns whether there was an event.
    fn read(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut Queue,
        follow: impl Fn(&mut Self, WatchEvent, &mut Changes),
        changes: &mut Changes,
    ) -> io::Result<bool> {
        let mut any = false;
        for _ in 0..READS_MAX {
            match queue(self).read() {
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    any = true;
                    for event in events {
                        follow(self, event, changes);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(any)
    }

    fn set_due(&mut self) {
        self.due = match self.unwatched {
            0 => None,
            _ => self.due.or_else(|| Some(os::now() + LOOK_INTERVAL)),
        };
    }

    fn follow_tree(&mut self, event: WatchEvent, changes: &mut Changes) {
        let path_of = |watch: &WatchId| self.tree.paths.get(watch).cloned();
        match event {
            WatchEvent::Lost => {
                self.lost += 1;
                self.look_again(changes);
            }
            WatchEvent::Ended(watch) => {
                if let Some(path) = path_of(&watch) {
                    self.remove_tree(&path, changes);
                }
            }
            WatchEvent::Changed(watch) => {
                let mut followed = self.followed.iter();
                let path = followed.find(|(_, followed)| **followed == watch);
                let emptied = path.map(|(path, _)| CgroupChange::Emptied(path.clone()));
                changes.list.extend(emptied);
            }
            WatchEvent::Came(watch, name) => {
                if let Some(path) = path_of(&watch) {
                    self.add_tree(child_of(&path, &name), changes);
                }
            }
            WatchEvent::Went(watch, name) => {
                if let Some(path) = path_of(&watch) {
                    self.remove_tree(&child_of(&path, &name), changes);
                }
            }
            WatchEvent::Written(..) | WatchEvent::Other => (),
        }
    }

    fn follow_write(&mut self, event: WatchEvent, changes: &mut Changes) {
        match event {
            WatchEvent::Lost => {
                self.lost += 1;
                self.watches.keys().for_each(|path| changes.written(path));
            }
            WatchEvent::Written(watch, name) => {
                let Some(path) = self.writes.paths.get(&watch).cloned() else {
                    return;
                };
                if is_of_cpu(&name) {
                    changes.written(&path);
                } else if name == SUBTREE_CONTROL {
                    self.children_may_differ(&path, changes);
                }
            }
            _ => (),
        }
    }

    /// Reports the cgroups directly below, whose controller may have been switched on or off.
    fn children_may_differ(&self, path: &str, changes: &mut Changes) {
        let (first, end) = bounds_below(path);
        let below = (Bound::Excluded(&*first), Bound::Excluded(&*end));
        let below = self.watches.range::<str, _>(below).map(|(path, _)| path);
        let is_child = |other: &&Arc<str>| !other[first.len()..].contains('/');
        below
            .filter(is_child)
            .for_each(|child| changes.written(child));
    }

    /// Watches a cgroup and all below it.
    fn add_tree(&mut self, path: String, changes: &mut Changes) {
        let mut ahead = vec![path];
        while let Some(path) = ahead.pop() {
            if self.add(&path, changes) {
                ahead.extend(self.children(&path));
            }
        }
    }

    /// Watches a cgroup, if that is possible. Returns whether it exists.
    fn add(&mut self, path: &str, changes: &mut Changes) -> bool {
        let Some(watch) = self.watch(path) else {
            return false;
        };
        match self.watches.get_key_value(path) {
            // inotify has one watch for a folder, so the cgroup is known.
            Some((_, known)) if *known == watch => return true,
            Some((path, Known::Unwatched { inode })) if self.inode(path) == Some(*inode) => {
                let path = path.clone();
                // A write may have been missed.
                changes.written(&path);
                self.insert(path, watch);
                self.unwatched -= 1;
                return true;
            }
            // The cgroup was removed and made again.
            Some(_) => self.remove_tree(path, changes),
            None => (),
        }
        let path: Arc<str> = path.into();
        changes.appeared(&path);
        self.unwatched += usize::from(matches!(watch, Known::Unwatched { .. }));
        self.insert(path, watch);
        true
    }

    fn insert(&mut self, path: Arc<str>, known: Known) {
        if let Known::Watched(Watches { tree, writes }) = known.clone() {
            self.tree.paths.insert(tree, path.clone());
            self.writes.paths.insert(writes, path.clone());
        }
        self.watches.insert(path, known);
    }

    /// The inode of a folder; `None`: the folder does not exist.
    fn inode(&self, path: &str) -> Option<u64> {
        let found = os::look(&self.folder(path)).ok()?;
        found.is_folder.then_some(found.inode)
    }

    /// Watches a folder, unless the kernel has no watch left; `None`: the folder does not exist.
    fn watch(&mut self, path: &str) -> Option<Known> {
        let folder = self.folder(path);
        let unwatched = |watch: &Self| {
            Some(Known::Unwatched {
                inode: watch.inode(path)?,
            })
        };
        let is_watched = matches!(self.watches.get(path), Some(Known::Watched(_)));
        if !is_watched && self.watches.len() - self.unwatched >= self.watches_max {
            return unwatched(self);
        }
        match self.watches_of(&folder) {
            Ok(watches) => Some(Known::Watched(watches)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => None,
                _ => unwatched(self),
            },
        }
    }

    /// Adds the two watches of a folder, or none.
    fn watches_of(&mut self, folder: &Path) -> io::Result<Watches> {
        let tree = self.tree.watch(folder)?;
        match self.writes.watch(folder) {
            Ok(writes) => Ok(Watches { tree, writes }),
            Err(error) => {
                self.tree.end(tree);
                Err(error)
            }
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let entries = os::list(&self.folder(path)).unwrap_or_default();
        let folders = entries.iter().filter(|entry| entry.is_folder);
        let names = folders.filter_map(|entry| entry.path.file_name());
        names.map(|name| child_of(path, name)).collect()
    }

    /// Forgets a cgroup and all below it.
    fn remove_tree(&mut self, path: &str, changes: &mut Changes) {
        let path = path.trim_end_matches('/');
        if !self.watches.contains_key(path) && self.followed.contains_key(path) {
            // It has come and gone before its beginning was read.
            changes.gone(path);
            self.unfollow(path, changes);
        }
        let (first, end) = bounds_below(path);
        let below = (Bound::Included(&*first), Bound::Excluded(&*end));
        let below = self.watches.range::<str, _>(below);
        let own = self.watches.get_key_value(path);
        let gone = own.into_iter().chain(below);
        let gone: Vec<Arc<str>> = gone.map(|(path, _)| path.clone()).collect();
        for path in gone.into_iter().rev() {
            match self.watches.remove(&path) {
                Some(Known::Watched(Watches { tree, writes })) => {
                    self.tree.forget(tree);
                    self.writes.forget(writes);
                }
                Some(Known::Unwatched { .. }) => self.unwatched -= 1,
                None => continue,
            }
            changes.gone(&path);
            self.unfollow(&path, changes);
        }
    }

    /// Compares the known cgroups with the present ones, after events were lost.
    fn look_again(&mut self, changes: &mut Changes) {
        let known: Vec<Arc<str>> = self.watches.keys().cloned().collect();
        for path in known {
            if !os::is_folder(&self.folder(&path)) {
                self.remove_tree(&path, changes);
            }
        }
        self.add_tree("/".into(), changes);
        for path in self.watches.keys() {
            changes.written(path);
        }
        let followed = self.followed.keys().cloned();
        changes.list.extend(followed.map(CgroupChange::Emptied));
    }

    /// Reads the cgroups that are not watched.
    fn look_at_unwatched(&mut self, changes: &mut Changes) {
        let is_unwatched = |known: &Known| matches!(known, Known::Unwatched { .. });
        let unwatched = self.watches.iter().filter(|(_, known)| is_unwatched(known));
        let unwatched: Vec<Arc<str>> = unwatched.map(|(path, _)| path.clone()).collect();
        for path in unwatched {
            if !self.add(&path, changes) {
                self.remove_tree(&path, changes);
                continue;
            }
            changes.written(&path);
            for child in self.children(&path) {
                if !self.watches.contains_key(child.as_str()) {
                    self.add_tree(child, changes);
                }
            }
        }
    }

    fn folder(&self, path: &str) -> PathBuf {
        self.root.join(name::path_of(path.trim_start_matches('/')))
    }
}

/// Bounds of the paths of all cgroups below one.
fn bounds_below(path: &str) -> (String, String) {
    let path = path.trim_end_matches('/');
    // `0` is the character after `/`.
    (format!("{path}/"), format!("{path}0"))
}

fn is_of_cpu(file: &OsStr) -> bool {
    file.as_encoded_bytes().starts_with(CPU_FILES)
}

fn child_of(path: &str, name: &OsStr) -> String {
    format!("{}/{}", path.trim_end_matches('/'), name::text_of(name))
}

#[cfg(test)]
mod tests;
