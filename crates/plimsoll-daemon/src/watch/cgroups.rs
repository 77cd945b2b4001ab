//! Cgroups that come, go, or get other attributes, by inotify.
//!
//! The kernel tells about the children of a folder that is watched. So each
//! cgroup is: one is watched first and listed afterwards, and what appeared
//! in between is found twice and counted once.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};

/// What is wanted of a folder.
const MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::ONLYDIR);
/// Room for some hundred events at once.
const BUFFER_BYTES: usize = 64 * 1024;

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
}

/// Watches a hierarchy of cgroups.
#[derive(Debug)]
pub struct CgroupWatch {
    inotify: Inotify,
    /// The mount point.
    root: PathBuf,
    paths: HashMap<WatchDescriptor, String>,
    watches: BTreeMap<String, WatchDescriptor>,
    /// Cgroups that could not be watched: too many for the kernel's limit.
    unwatched: u64,
    buffer: Vec<u8>,
}

impl CgroupWatch {
    /// Begins to watch what is below a mount point. The first changes are the
    /// cgroups that are there.
    ///
    /// # Errors
    /// When the kernel has no inotify to give, or the root cannot be watched.
    pub fn start(root: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        let mut watch = Self {
            inotify: Inotify::init()?,
            root: root.to_owned(),
            paths: HashMap::new(),
            watches: BTreeMap::new(),
            unwatched: 0,
            buffer: vec![0; BUFFER_BYTES],
        };
        let mut changes = Vec::new();
        watch.add_tree("/".into(), &mut changes);
        if watch.watches.is_empty() {
            watch.inotify.watches().add(&watch.root, MASK)?;
        }
        Ok((watch, changes))
    }

    /// How many cgroups could not be watched so far, because the kernel's
    /// limit (`fs.inotify.max_user_watches`) is reached.
    #[must_use]
    pub fn unwatched(&self) -> u64 {
        self.unwatched
    }

    /// What has happened since the last call, in order. Does not wait.
    ///
    /// # Errors
    /// When the kernel's queue cannot be read.
    pub fn changes(&mut self) -> io::Result<Vec<CgroupChange>> {
        let mut changes = Vec::new();
        loop {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.inotify.read_events(&mut buffer);
            let events =
                read.map(|events| events.map(|event| event.to_owned()).collect::<Vec<_>>());
            self.buffer = buffer;
            match events {
                Ok(events) if events.is_empty() => return Ok(changes),
                Ok(events) => events
                    .iter()
                    .for_each(|event| self.follow(event, &mut changes)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(changes),
                Err(error) => return Err(error),
            }
        }
    }

    fn follow(&mut self, event: &inotify::EventOwned, changes: &mut Vec<CgroupChange>) {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.look_again(changes);
            return;
        }
        let Some(path) = self.paths.get(&event.wd).cloned() else {
            return;
        };
        if event.mask.contains(EventMask::IGNORED) {
            self.remove_tree(&path, changes);
            return;
        }
        let child = event.name.as_deref().and_then(|name| child_of(&path, name));
        let is_folder = event.mask.contains(EventMask::ISDIR);
        match child {
            Some(child)
                if is_folder
                    && event
                        .mask
                        .intersects(EventMask::CREATE | EventMask::MOVED_TO) =>
            {
                self.add_tree(child, changes);
            }
            Some(child)
                if is_folder
                    && event
                        .mask
                        .intersects(EventMask::DELETE | EventMask::MOVED_FROM) =>
            {
                self.remove_tree(&child, changes);
            }
            // A folder tells of its own attributes, and its parent does, too.
            None if event.mask.contains(EventMask::ATTRIB) => {
                changes.push(CgroupChange::Attributes(path));
            }
            _ => (),
        }
    }

    /// Watches a cgroup and all below it.
    fn add_tree(&mut self, path: String, changes: &mut Vec<CgroupChange>) {
        let folder = self.folder(&path);
        match self.inotify.watches().add(&folder, MASK) {
            Ok(watch) => {
                // The same folder has the same watch; one that was removed
                // and made again has another.
                self.paths.insert(watch.clone(), path.clone());
                if self.watches.insert(path.clone(), watch).is_none() {
                    changes.push(CgroupChange::Appeared(path.clone()));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => {
                self.unwatched += 1;
                changes.push(CgroupChange::Appeared(path.clone()));
            }
        }
        let Ok(entries) = std::fs::read_dir(folder) else {
            return;
        };
        let folders = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for entry in folders {
            if let Some(child) = child_of(&path, &entry.file_name()) {
                self.add_tree(child, changes);
            }
        }
    }

    /// Forgets a cgroup and all below it.
    fn remove_tree(&mut self, path: &str, changes: &mut Vec<CgroupChange>) {
        // `0` is what comes behind `/`.
        let below = (
            Bound::Included(format!("{path}/")),
            Bound::Excluded(format!("{path}0")),
        );
        let below = self.watches.range(below).map(|(path, _)| path.clone());
        let gone: Vec<String> = std::iter::once(path.to_owned()).chain(below).collect();
        for path in gone.into_iter().rev() {
            if let Some(watch) = self.watches.remove(&path) {
                self.paths.remove(&watch);
                // Gone with its folder, if that is gone.
                let _ = self.inotify.watches().remove(watch);
                changes.push(CgroupChange::Gone(path));
            }
        }
    }

    /// Events were lost: what is known is compared with what is there.
    fn look_again(&mut self, changes: &mut Vec<CgroupChange>) {
        let known: Vec<String> = self.watches.keys().cloned().collect();
        for path in known {
            if !self.folder(&path).is_dir() {
                self.remove_tree(&path, changes);
            }
        }
        self.add_tree("/".into(), changes);
        // Attributes may have changed unseen.
        let all = self.watches.keys().cloned();
        changes.extend(all.map(CgroupChange::Attributes));
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

/// A child's path. One whose name is no text is nobody's target.
fn child_of(path: &str, name: &OsStr) -> Option<String> {
    let name = name.to_str()?;
    Some(format!("{}/{name}", path.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn appeared(path: &str) -> CgroupChange {
        CgroupChange::Appeared(path.into())
    }

    fn gone(path: &str) -> CgroupChange {
        CgroupChange::Gone(path.into())
    }

    fn start(folder: &Path) -> CgroupWatch {
        CgroupWatch::start(folder).unwrap().0
    }

    #[test]
    fn what_is_there_at_first_has_appeared() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let (mut watch, changes) = CgroupWatch::start(folder.path()).unwrap();
        assert_eq!(changes, [appeared("/"), appeared("/a"), appeared("/a/b")]);
        assert_eq!(watch.changes().unwrap(), []);
    }

    #[test]
    fn a_tree_that_is_made_at_once_appears_once_and_goes_from_the_inside() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = start(folder.path());
        fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
        fs::create_dir(folder.path().join("ab")).unwrap();
        let mut changes = watch.changes().unwrap();
        changes.sort();
        assert_eq!(
            changes,
            [
                appeared("/a"),
                appeared("/a/b"),
                appeared("/a/b/c"),
                appeared("/ab")
            ]
        );
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        let changes = watch.changes().unwrap();
        assert_eq!(changes, [gone("/a/b/c"), gone("/a/b"), gone("/a")]);
        fs::create_dir(folder.path().join("a")).unwrap();
        assert_eq!(watch.changes().unwrap(), [appeared("/a")]);
    }

    #[test]
    fn a_renamed_one_is_another() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let mut watch = start(folder.path());
        fs::rename(folder.path().join("a"), folder.path().join("x")).unwrap();
        let changes = watch.changes().unwrap();
        assert_eq!(
            changes,
            [gone("/a/b"), gone("/a"), appeared("/x"), appeared("/x/b")]
        );
    }

    #[test]
    fn attributes_are_told_of_the_cgroup_that_has_them() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("a");
        fs::create_dir(&own).unwrap();
        let mut watch = start(folder.path());
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&own, permissions).unwrap();
        let changes = watch.changes().unwrap();
        assert_eq!(changes, [CgroupChange::Attributes("/a".into())]);
    }

    #[test]
    fn after_lost_events_it_is_as_if_none_were() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("old/below")).unwrap();
        let mut watch = start(folder.path());
        fs::remove_dir_all(folder.path().join("old")).unwrap();
        fs::create_dir(folder.path().join("new")).unwrap();
        let mut changes = Vec::new();
        watch.look_again(&mut changes);
        changes.retain(|change| !matches!(change, CgroupChange::Attributes(_)));
        assert_eq!(
            changes,
            [gone("/old/below"), gone("/old"), appeared("/new")]
        );
        // The events that were not lost after all change nothing.
        let late = watch.changes().unwrap();
        assert!(
            late.iter()
                .all(|change| matches!(change, CgroupChange::Attributes(_))),
            "{late:?}"
        );
    }
}
