//! Events of folders, and of the files `cgroup.events`, as inotify reports them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::error::error;
use crate::entry::{Interest, WatchEvent, WatchId};

#[derive(Debug)]
struct Queue {
    interest: Interest,
    /// Numbers of the watches, by the inode of their folder.
    watches: BTreeMap<u64, u64>,
    /// Numbers of the watches of `cgroup.events`, by the inode of its folder.
    files: BTreeMap<u64, u64>,
    ready: Vec<WatchEvent>,
}

#[derive(Debug)]
pub struct SimulatedEvents {
    queues: BTreeMap<usize, Queue>,
    nr_queues: usize,
    nr_watches: u64,
    /// Number of events for which a queue has room; one more and it runs over.
    pub room: usize,
    /// Number of watches that all queues may have.
    pub watches_max: usize,
}

impl Default for SimulatedEvents {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            nr_queues: 0,
            nr_watches: 0,
            room: usize::MAX,
            watches_max: usize::MAX,
        }
    }
}

impl Queue {
    fn nr_watches(&self) -> usize {
        self.watches.len() + self.files.len()
    }

    fn push(&mut self, event: WatchEvent, room: usize) {
        // The kernel merges an event with an equal one before it.
        if self.ready.last() == Some(&event) {
            return;
        }
        if self.ready.len() < room {
            self.ready.push(event);
        } else if self.ready.last() != Some(&WatchEvent::Lost) {
            self.ready.push(WatchEvent::Lost);
        }
    }
}

impl SimulatedEvents {
    pub(crate) fn begin_queue(&mut self, interest: Interest) -> usize {
        self.nr_queues += 1;
        let queue = Queue {
            interest,
            watches: BTreeMap::new(),
            files: BTreeMap::new(),
            ready: Vec::new(),
        };
        self.queues.insert(self.nr_queues, queue);
        self.nr_queues
    }

    pub(super) fn end_queue(&mut self, number: usize) {
        self.queues.remove(&number);
    }

    pub(super) fn watch(&mut self, number: usize, inode: u64) -> io::Result<WatchId> {
        self.add(number, inode, |queue| &mut queue.watches)
    }

    /// Watches the file `cgroup.events` of a folder.
    pub(super) fn watch_file(&mut self, number: usize, folder: u64) -> io::Result<WatchId> {
        self.add(number, folder, |queue| &mut queue.files)
    }

    fn add(
        &mut self,
        number: usize,
        inode: u64,
        watches: fn(&mut Queue) -> &mut BTreeMap<u64, u64>,
    ) -> io::Result<WatchId> {
        let nr_used: usize = self.queues.values().map(Queue::nr_watches).sum();
        let queue = self.queues.get_mut(&number).ok_or(error(libc::EBADF))?;
        let watches = watches(queue);
        if let Some(watch) = watches.get(&inode) {
            return Ok(WatchId::simulated(*watch));
        }
        if nr_used >= self.watches_max {
            return Err(error(libc::ENOSPC));
        }
        self.nr_watches += 1;
        watches.insert(inode, self.nr_watches);
        Ok(WatchId::simulated(self.nr_watches))
    }

    pub(crate) fn forget(&mut self, number: usize, watch: u64) {
        let room = self.room;
        if let Some(queue) = self.queues.get_mut(&number) {
            let before = queue.nr_watches();
            queue.watches.retain(|_, other| *other != watch);
            queue.files.retain(|_, other| *other != watch);
            if queue.nr_watches() < before {
                queue.push(WatchEvent::Ended(WatchId::simulated(watch)), room);
            }
        }
    }

    pub(crate) fn take(&mut self, number: usize) -> Vec<WatchEvent> {
        let queue = self.queues.get_mut(&number);
        queue.map_or_else(Vec::new, |queue| std::mem::take(&mut queue.ready))
    }

    /// Inodes of the folders of whose files there is a watch.
    pub fn watched_files(&self) -> impl Iterator<Item = u64> {
        let queues = self.queues.values();
        queues.flat_map(|queue| queue.files.keys().copied())
    }

    /// Whether a queue has an event.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.queues.values().any(|queue| !queue.ready.is_empty())
    }

    /// Reports an event to the queues of one interest that watch a folder.
    fn tell(&mut self, interest: Interest, inode: u64, event: impl Fn(WatchId) -> WatchEvent) {
        for queue in self.queues.values_mut() {
            if queue.interest == interest
                && let Some(watch) = queue.watches.get(&inode)
            {
                queue.push(event(WatchId::simulated(*watch)), self.room);
            }
        }
    }

    pub(super) fn came(&mut self, parent: u64, name: &OsStr) {
        self.tell(Interest::Folders, parent, |watch| {
            WatchEvent::Came(watch, name.to_owned())
        });
    }

    pub(super) fn went(&mut self, parent: u64, inode: u64, name: &OsStr) {
        let went = |events: &mut Self| {
            events.tell(Interest::Folders, parent, |watch| {
                WatchEvent::Went(watch, name.to_owned())
            });
        };
        // The kernel may report the two in either order.
        let is_told_first = inode.is_multiple_of(2);
        if is_told_first {
            went(self);
        }
        for queue in self.queues.values_mut() {
            // The watch of a file stays.
            if let Some(watch) = queue.watches.remove(&inode) {
                queue.push(WatchEvent::Ended(WatchId::simulated(watch)), self.room);
            }
        }
        if !is_told_first {
            went(self);
        }
    }

    pub(super) fn renamed(&mut self, parent: u64, old: &OsStr, new: &OsStr) {
        self.tell(Interest::Folders, parent, |watch| {
            WatchEvent::Went(watch, old.to_owned())
        });
        self.came(parent, new);
    }

    /// Reports that no process is left in a folder or below.
    pub(super) fn emptied(&mut self, folder: u64) {
        for queue in self.queues.values_mut() {
            if let Some(watch) = queue.files.get(&folder) {
                queue.push(WatchEvent::Changed(WatchId::simulated(*watch)), self.room);
            }
        }
    }

    pub(super) fn written(&mut self, folder: u64, file: &Path) {
        let name = file.file_name().unwrap_or_default();
        self.tell(Interest::Writes, folder, |watch| {
            WatchEvent::Written(watch, name.to_owned())
        });
    }
}
