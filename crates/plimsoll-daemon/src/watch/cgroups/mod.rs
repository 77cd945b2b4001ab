//! Cgroups that come, go, are written to, or get other attributes, by inotify.
//!
//! The kernel tells about the children of a folder that is watched. So each
//! cgroup is: one is watched first and listed afterwards, and what appeared
//! in between is found twice and counted once. Those for which the kernel has
//! no watch left are looked at again every second.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask};

/// What is wanted of a folder.
const MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::MODIFY)
    .union(WatchMask::ONLYDIR);
/// Room for some thousand events at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// More than the kernel's queue has room for: whoever reads comes to an end,
/// however fast others write.
const READS_MAX: usize = 256;
/// How often those that cannot be watched are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// What the names of the cpu controller's files begin with. Writes to other
/// files are no business of Plimsoll's.
const CPU_FILES: &[u8] = b"cpu.";
/// v2: whoever writes here gives the cgroups directly below the controller's
/// files, or takes them away, which the kernel tells nobody.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// What happened to a cgroup. Paths are below the mount point, with a `/` in
/// front; the root is `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CgroupChange {
    /// It is there.
    Appeared(String),
    /// It is not there any more.
    Gone(String),
    /// Its attributes may have changed, extended ones too.
    Attributes(String),
    /// Somebody, perhaps this process, may have written to one of its files
    /// of the cpu controller, or have given or taken it the controller.
    Written(String),
}

/// The changes of one call. What may have changed is told once of a cgroup,
/// however often it did.
#[derive(Debug, Default)]
struct News {
    changes: Vec<CgroupChange>,
    attributes: HashSet<Arc<str>>,
    written: HashSet<Arc<str>>,
}

impl News {
    fn appeared(&mut self, path: &str) {
        self.changes.push(CgroupChange::Appeared(path.into()));
    }

    fn gone(&mut self, path: &str) {
        // Another of that name may have some of its own.
        self.attributes.remove(path);
        self.written.remove(path);
        self.changes.push(CgroupChange::Gone(path.into()));
    }

    fn attributes(&mut self, path: &Arc<str>) {
        if self.attributes.insert(path.clone()) {
            let path = path.as_ref().into();
            self.changes.push(CgroupChange::Attributes(path));
        }
    }

    fn written(&mut self, path: &Arc<str>) {
        if self.written.insert(path.clone()) {
            self.changes
                .push(CgroupChange::Written(path.as_ref().into()));
        }
    }

    /// It may have changed unseen.
    fn unseen(&mut self, path: &Arc<str>) {
        self.attributes(path);
        self.written(path);
    }
}

/// Watches a hierarchy of cgroups.
#[derive(Debug)]
pub struct CgroupWatch {
    inotify: Inotify,
    /// The mount point.
    root: PathBuf,
    paths: HashMap<WatchDescriptor, Arc<str>>,
    /// All cgroups that are known; `None`: not watched.
    watches: BTreeMap<Arc<str>, Option<WatchDescriptor>>,
    /// How many of them are not watched: too many for the kernel's limit.
    unwatched: usize,
    /// No more are watched than this.
    watches_max: usize,
    /// When to look at those that are not.
    due: Option<Instant>,
    overflows: u64,
    buffer: Vec<u8>,
}

impl CgroupWatch {
    /// Begins to watch what is below a mount point. The first changes are the
    /// cgroups that are there.
    ///
    /// # Errors
    /// When the kernel has no inotify to give, or the root is not there.
    pub fn start(root: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        Self::start_with(root, usize::MAX)
    }

    fn start_with(root: &Path, watches_max: usize) -> io::Result<(Self, Vec<CgroupChange>)> {
        let mut watch = Self {
            inotify: Inotify::init()?,
            root: root.to_owned(),
            paths: HashMap::new(),
            watches: BTreeMap::new(),
            unwatched: 0,
            watches_max,
            due: None,
            overflows: 0,
            buffer: vec![0; BUFFER_BYTES],
        };
        let mut news = News::default();
        watch.add_tree("/".into(), &mut news);
        if watch.watches.is_empty() {
            watch.inotify.watches().add(&watch.root, MASK)?;
        }
        watch.set_due();
        Ok((watch, news.changes))
    }

    /// How many cgroups cannot be watched, because the kernel's limit
    /// (`fs.inotify.max_user_watches`) is reached. They are looked at every
    /// second.
    #[must_use]
    pub fn unwatched(&self) -> u64 {
        self.unwatched as u64
    }

    /// How often the kernel's queue was full (`fs.inotify.max_queued_events`),
    /// so that all cgroups had to be looked at again.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// When to ask for changes though nothing is readable. `None`: never.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What has happened since the last call, in order. Does not wait.
    ///
    /// # Errors
    /// When the kernel's queue cannot be read.
    pub fn changes(&mut self) -> io::Result<Vec<CgroupChange>> {
        self.changes_at(Instant::now())
    }

    fn changes_at(&mut self, now: Instant) -> io::Result<Vec<CgroupChange>> {
        let mut news = News::default();
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.read(&mut buffer, &mut news);
        self.buffer = buffer;
        read?;
        if self.due.is_some_and(|due| due <= now) {
            self.look_at_unwatched(&mut news);
            self.due = None;
        }
        self.set_due();
        Ok(news.changes)
    }

    fn read(&mut self, buffer: &mut [u8], news: &mut News) -> io::Result<()> {
        for _ in 0..READS_MAX {
            match self.inotify.read_events(buffer) {
                Ok(events) => {
                    let mut is_empty = true;
                    for event in events {
                        is_empty = false;
                        self.follow(&event, news);
                    }
                    if is_empty {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set_due(&mut self) {
        self.due = match self.unwatched {
            0 => None,
            _ => self.due.or_else(|| Some(Instant::now() + LOOK_INTERVAL)),
        };
    }

    fn follow(&mut self, event: &Event<&OsStr>, news: &mut News) {
        const COMES: EventMask = EventMask::CREATE.union(EventMask::MOVED_TO);
        const GOES: EventMask = EventMask::DELETE.union(EventMask::MOVED_FROM);
        let mask = event.mask;
        if mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows += 1;
            self.look_again(news);
            return;
        }
        let Some(path) = self.paths.get(&event.wd).cloned() else {
            return;
        };
        match event.name {
            _ if mask.contains(EventMask::IGNORED) => self.remove_tree(&path, news),
            // Anybody may cause very many of these: see `follow_child`.
            Some(_) if mask.contains(EventMask::ATTRIB) && self.unwatched == 0 => (),
            Some(name) if mask.contains(EventMask::ISDIR) => {
                let Some(child) = child_of(&path, name) else {
                    return;
                };
                if mask.intersects(COMES) {
                    self.add_tree(child, news);
                } else if mask.intersects(GOES) {
                    self.remove_tree(&child, news);
                } else if mask.contains(EventMask::ATTRIB) {
                    self.follow_child(&child, news);
                }
            }
            Some(name) if mask.contains(EventMask::MODIFY) && is_of_cpu(name) => {
                news.written(&path);
            }
            Some(name) if mask.contains(EventMask::MODIFY) && name == SUBTREE_CONTROL => {
                self.children_may_differ(&path, news);
            }
            None if mask.contains(EventMask::ATTRIB) => news.attributes(&path),
            _ => (),
        }
    }

    /// A folder tells of its own attributes, and its parent does, too: that is
    /// of interest where the folder itself is not watched.
    fn follow_child(&self, child: &str, news: &mut News) {
        if let Some((path, None)) = self.watches.get_key_value(child) {
            news.attributes(path);
        }
    }

    /// The cgroups directly below one may have other files of the controller.
    fn children_may_differ(&self, path: &str, news: &mut News) {
        let (first, end) = bounds_below(path);
        let below = (Bound::Excluded(&*first), Bound::Excluded(&*end));
        let below = self.watches.range::<str, _>(below).map(|(path, _)| path);
        let is_child = |other: &&Arc<str>| !other[first.len()..].contains('/');
        below.filter(is_child).for_each(|child| news.written(child));
    }

    /// Watches a cgroup and all below it.
    fn add_tree(&mut self, path: String, news: &mut News) {
        let mut ahead = vec![path];
        while let Some(path) = ahead.pop() {
            if self.add(&path, news) {
                ahead.extend(self.children(&path));
            }
        }
    }

    /// Watches a cgroup, if that is possible. Returns whether it is there.
    fn add(&mut self, path: &str, news: &mut News) -> bool {
        let Some(watch) = self.watch(path) else {
            return false;
        };
        match self.watches.get_key_value(path) {
            // The same folder has the same watch.
            Some((_, known)) if *known == watch => return true,
            Some((path, None)) => {
                let path = path.clone();
                news.unseen(&path);
                self.watches.insert(path.clone(), watch.clone());
                self.paths.extend(watch.map(|watch| (watch, path)));
                self.unwatched -= 1;
                return true;
            }
            // It was removed and made again.
            Some((_, Some(_))) => self.remove_tree(path, news),
            None => (),
        }
        let path: Arc<str> = path.into();
        news.appeared(&path);
        self.unwatched += usize::from(watch.is_none());
        self.watches.insert(path.clone(), watch.clone());
        self.paths.extend(watch.map(|watch| (watch, path)));
        true
    }

    /// The watch of a folder; `Some(None)`: there is none to be had. `None`:
    /// it is not there.
    fn watch(&self, path: &str) -> Option<Option<WatchDescriptor>> {
        let folder = self.folder(path);
        let is_watched = matches!(self.watches.get(path), Some(Some(_)));
        if !is_watched && self.paths.len() >= self.watches_max {
            return folder.is_dir().then_some(None);
        }
        match self.inotify.watches().add(folder, MASK) {
            Ok(watch) => Some(Some(watch)),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => None,
                _ => Some(None),
            },
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder(path)) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| child_of(path, &entry.file_name()))
            .collect()
    }

    /// Forgets a cgroup and all below it.
    fn remove_tree(&mut self, path: &str, news: &mut News) {
        let path = path.trim_end_matches('/');
        let (first, end) = bounds_below(path);
        let below = (Bound::Included(&*first), Bound::Excluded(&*end));
        let below = self.watches.range::<str, _>(below);
        let own = self.watches.get_key_value(path);
        let gone = own.into_iter().chain(below);
        let gone: Vec<Arc<str>> = gone.map(|(path, _)| path.clone()).collect();
        for path in gone.into_iter().rev() {
            match self.watches.remove(&path) {
                Some(Some(watch)) => {
                    self.paths.remove(&watch);
                    // Gone with its folder, if that is gone.
                    let _ = self.inotify.watches().remove(watch);
                }
                Some(None) => self.unwatched -= 1,
                None => continue,
            }
            news.gone(&path);
        }
    }

    /// Events were lost: what is known is compared with what is there.
    fn look_again(&mut self, news: &mut News) {
        let known: Vec<Arc<str>> = self.watches.keys().cloned().collect();
        for path in known {
            if !self.folder(&path).is_dir() {
                self.remove_tree(&path, news);
            }
        }
        self.add_tree("/".into(), news);
        for path in self.watches.keys() {
            news.unseen(path);
        }
    }

    /// Nobody tells of those that are not watched.
    fn look_at_unwatched(&mut self, news: &mut News) {
        let unwatched = self.watches.iter().filter(|(_, watch)| watch.is_none());
        let unwatched: Vec<Arc<str>> = unwatched.map(|(path, _)| path.clone()).collect();
        for path in unwatched {
            if !self.add(&path, news) {
                self.remove_tree(&path, news);
                continue;
            }
            news.unseen(&path);
            for child in self.children(&path) {
                if !self.watches.contains_key(child.as_str()) {
                    self.add_tree(child, news);
                }
            }
        }
    }

    fn folder(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl AsFd for CgroupWatch {
    /// Readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Between these are the paths of all cgroups below one.
fn bounds_below(path: &str) -> (String, String) {
    let path = path.trim_end_matches('/');
    // `0` is what comes behind `/`.
    (format!("{path}/"), format!("{path}0"))
}

fn is_of_cpu(file: &OsStr) -> bool {
    file.as_encoded_bytes().starts_with(CPU_FILES)
}

/// A child's path. One whose name is no text is nobody's target.
fn child_of(path: &str, name: &OsStr) -> Option<String> {
    let name = name.to_str()?;
    Some(format!("{}/{name}", path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests;
