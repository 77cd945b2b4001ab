//! Watch of cgroups that come, go or are written to, by inotify.
//!
//! The kernel reports the children of a watched folder, so every cgroup is watched. It is
//! watched first and listed afterwards; a child that appears in between is found twice and
//! reported once. Cgroups for which the kernel has no watch left are read every second.
//!
//! Writes have a queue of their own, which the caller may leave unread for a while: the headroom
//! loop writes quotas a hundred times a second, and a new cgroup must not wait meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask};
use plimsoll_cgroupfs::name;

/// Events of a folder in which cgroups come and go.
const TREE: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::ONLYDIR);
/// Events of a folder's files.
const WRITES: WatchMask = WatchMask::MODIFY.union(WatchMask::ONLYDIR);
/// Room for some thousand events at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum number of reads in one call: more than the kernel's queue has room for, so that a
/// call ends however fast other processes write.
const READS_MAX: usize = 256;
/// Interval of reading cgroups that cannot be watched.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Prefix of the cpu controller's files. Writes to other files are irrelevant.
const CPU_FILES: &[u8] = b"cpu.";
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
}

/// The changes of one call. Several writes to a cgroup are one change.
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
    tree: WatchDescriptor,
    writes: WatchDescriptor,
}

/// A queue of the kernel's events.
#[derive(Debug)]
struct Queue {
    inotify: Inotify,
    paths: HashMap<WatchDescriptor, Arc<str>>,
}

impl Queue {
    fn new() -> io::Result<Self> {
        Ok(Self {
            inotify: Inotify::init()?,
            paths: HashMap::new(),
        })
    }

    fn forget(&mut self, watch: WatchDescriptor) {
        self.paths.remove(&watch);
        // The kernel removes the watch of a removed folder itself.
        let _ = self.inotify.watches().remove(watch);
    }
}

#[derive(Debug)]
pub struct CgroupWatch {
    tree: Queue,
    writes: Queue,
    /// Mount point of the hierarchy.
    root: PathBuf,
    /// All known cgroups; `None`: the cgroup is not watched.
    watches: BTreeMap<Arc<str>, Option<Watches>>,
    /// Number of cgroups that are not watched, beyond the kernel's limit.
    unwatched: usize,
    watches_max: usize,
    /// Time at which to read the unwatched cgroups; `None`: there are none.
    due: Option<Instant>,
    overflows: u64,
    buffer: Vec<u8>,
}

impl CgroupWatch {
    /// Begins to watch all cgroups below a mount point. The first changes are the present ones.
    ///
    /// # Errors
    /// When the kernel refuses an inotify instance, or the root does not exist.
    pub fn start(root: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        Self::start_with(root, usize::MAX)
    }

    fn start_with(root: &Path, watches_max: usize) -> io::Result<(Self, Vec<CgroupChange>)> {
        let mut watch = Self {
            tree: Queue::new()?,
            writes: Queue::new()?,
            root: root.to_owned(),
            watches: BTreeMap::new(),
            unwatched: 0,
            watches_max,
            due: None,
            overflows: 0,
            buffer: vec![0; BUFFER_BYTES],
        };
        let mut changes = Changes::default();
        watch.add_tree("/".into(), &mut changes);
        if watch.watches.is_empty() {
            watch.tree.inotify.watches().add(&watch.root, TREE)?;
        }
        watch.set_due();
        Ok((watch, changes.list))
    }

    /// Number of cgroups that cannot be watched, because the kernel's limit
    /// (`fs.inotify.max_user_watches`) is reached. They are read every second.
    #[must_use]
    pub fn unwatched(&self) -> u64 {
        self.unwatched as u64
    }

    /// Number of overflows of the kernel's queues (`fs.inotify.max_queued_events`). After each all
    /// cgroups count as written to, and after one of the tree they were read again.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Readable when [`changes`](Self::changes) has something to read.
    #[must_use]
    pub fn tree_fd(&self) -> BorrowedFd<'_> {
        self.tree.inotify.as_fd()
    }

    /// Readable when [`writes`](Self::writes) has something to read.
    #[must_use]
    pub fn writes_fd(&self) -> BorrowedFd<'_> {
        self.writes.inotify.as_fd()
    }

    /// Returns the time at which to read changes without an event. `None`: never.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Reads which cgroups came and went since the last call, in order, without waiting. Cgroups
    /// that may have been written to without an event are reported as written.
    pub fn changes(&mut self) -> io::Result<Vec<CgroupChange>> {
        self.changes_at(Instant::now())
    }

    fn changes_at(&mut self, now: Instant) -> io::Result<Vec<CgroupChange>> {
        let mut changes = Changes::default();
        self.read(|watch| &mut watch.tree, Self::follow_tree, &mut changes)?;
        if self.due.is_some_and(|due| due <= now) {
            self.look_at_unwatched(&mut changes);
            self.due = None;
        }
        self.set_due();
        Ok(changes.list)
    }

    /// Reads which cgroups were written to since the last call, without waiting. `None`: there was
    /// no event, not even an irrelevant one.
    pub fn writes(&mut self) -> io::Result<Option<Vec<CgroupChange>>> {
        let mut changes = Changes::default();
        let any = self.read(|watch| &mut watch.writes, Self::follow_write, &mut changes)?;
        Ok(any.then_some(changes.list))
    }

    /// Reads one of the two queues. Returns whether there was an event.
    fn read(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut Queue,
        follow: impl Fn(&mut Self, &Event<&OsStr>, &mut Changes),
        changes: &mut Changes,
    ) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut nr_events = 0;
        let mut result = Ok(());
        for _ in 0..READS_MAX {
            let before = nr_events;
            match queue(self).inotify.read_events(&mut buffer) {
                Ok(events) => {
                    for event in events {
                        nr_events += 1;
                        follow(self, &event, changes);
                    }
                    if nr_events == before {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.buffer = buffer;
        result.map(|()| nr_events > 0)
    }

    fn set_due(&mut self) {
        self.due = match self.unwatched {
            0 => None,
            _ => self.due.or_else(|| Some(Instant::now() + LOOK_INTERVAL)),
        };
    }

    fn follow_tree(&mut self, event: &Event<&OsStr>, changes: &mut Changes) {
        const COMES: EventMask = EventMask::CREATE.union(EventMask::MOVED_TO);
        const GOES: EventMask = EventMask::DELETE.union(EventMask::MOVED_FROM);
        let mask = event.mask;
        if mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows += 1;
            self.look_again(changes);
            return;
        }
        let Some(path) = self.tree.paths.get(&event.wd).cloned() else {
            return;
        };
        match event.name {
            _ if mask.contains(EventMask::IGNORED) => self.remove_tree(&path, changes),
            Some(name) if mask.contains(EventMask::ISDIR) => {
                let child = child_of(&path, name);
                if mask.intersects(COMES) {
                    self.add_tree(child, changes);
                } else if mask.intersects(GOES) {
                    self.remove_tree(&child, changes);
                }
            }
            _ => (),
        }
    }

    fn follow_write(&mut self, event: &Event<&OsStr>, changes: &mut Changes) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows += 1;
            self.watches.keys().for_each(|path| changes.written(path));
            return;
        }
        let Some(path) = self.writes.paths.get(&event.wd).cloned() else {
            return;
        };
        match event.name {
            Some(name) if is_of_cpu(name) => changes.written(&path),
            Some(name) if name == SUBTREE_CONTROL => self.children_may_differ(&path, changes),
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
            Some((path, None)) => {
                let path = path.clone();
                // A write may have been missed.
                changes.written(&path);
                self.insert(path, watch);
                self.unwatched -= 1;
                return true;
            }
            // The cgroup was removed and made again.
            Some((_, Some(_))) => self.remove_tree(path, changes),
            None => (),
        }
        let path: Arc<str> = path.into();
        changes.appeared(&path);
        self.unwatched += usize::from(watch.is_none());
        self.insert(path, watch);
        true
    }

    fn insert(&mut self, path: Arc<str>, watches: Option<Watches>) {
        if let Some(Watches { tree, writes }) = watches.clone() {
            self.tree.paths.insert(tree, path.clone());
            self.writes.paths.insert(writes, path.clone());
        }
        self.watches.insert(path, watches);
    }

    /// The watches of a folder; `Some(None)`: the kernel has none left; `None`: the folder does
    /// not exist.
    fn watch(&self, path: &str) -> Option<Option<Watches>> {
        let folder = self.folder(path);
        let is_watched = matches!(self.watches.get(path), Some(Some(_)));
        if !is_watched && self.watches.len() - self.unwatched >= self.watches_max {
            return folder.is_dir().then_some(None);
        }
        match self.watches_of(&folder) {
            Ok(watches) => Some(Some(watches)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => None,
                _ => Some(None),
            },
        }
    }

    /// Adds the two watches of a folder, or none.
    fn watches_of(&self, folder: &Path) -> io::Result<Watches> {
        let tree = self.tree.inotify.watches().add(folder, TREE)?;
        match self.writes.inotify.watches().add(folder, WRITES) {
            Ok(writes) => Ok(Watches { tree, writes }),
            Err(error) => {
                // Gone with its folder already, if the error is that the folder is gone.
                let _ = self.tree.inotify.watches().remove(tree);
                Err(error)
            }
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder(path)) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| child_of(path, &entry.file_name()))
            .collect()
    }

    /// Forgets a cgroup and all below it.
    fn remove_tree(&mut self, path: &str, changes: &mut Changes) {
        let path = path.trim_end_matches('/');
        let (first, end) = bounds_below(path);
        let below = (Bound::Included(&*first), Bound::Excluded(&*end));
        let below = self.watches.range::<str, _>(below);
        let own = self.watches.get_key_value(path);
        let gone = own.into_iter().chain(below);
        let gone: Vec<Arc<str>> = gone.map(|(path, _)| path.clone()).collect();
        for path in gone.into_iter().rev() {
            match self.watches.remove(&path) {
                Some(Some(Watches { tree, writes })) => {
                    self.tree.forget(tree);
                    self.writes.forget(writes);
                }
                Some(None) => self.unwatched -= 1,
                None => continue,
            }
            changes.gone(&path);
        }
    }

    /// Compares the known cgroups with the present ones, after events were lost.
    fn look_again(&mut self, changes: &mut Changes) {
        let known: Vec<Arc<str>> = self.watches.keys().cloned().collect();
        for path in known {
            if !self.folder(&path).is_dir() {
                self.remove_tree(&path, changes);
            }
        }
        self.add_tree("/".into(), changes);
        for path in self.watches.keys() {
            changes.written(path);
        }
    }

    /// Reads the cgroups that are not watched.
    fn look_at_unwatched(&mut self, changes: &mut Changes) {
        let unwatched = self.watches.iter().filter(|(_, watch)| watch.is_none());
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
