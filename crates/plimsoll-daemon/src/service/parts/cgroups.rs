//! The cgroups of the host, as the watch reports them.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::os;

use crate::watch::{CgroupChange, CgroupWatch};

/// Pause after writes were read: the headroom loop writes quotas all the time, and an audit is
/// not due for longer than that.
const WRITES_REST: Duration = Duration::from_millis(250);
/// Pause of the watch after the kernel's queue ran over and all cgroups were read.
const OVERFLOW_REST: Duration = Duration::from_millis(100);

pub(in crate::service) struct ObservedCgroups {
    watch: CgroupWatch,
    /// Overflows of the kernel's queues that were reported so far.
    overflows: u64,
    /// Time before which cgroups that come and go are not read.
    rests_until: Instant,
    /// Time before which writes are not read.
    writes_rest_until: Instant,
    paths: BTreeSet<String>,
}

/// Changes since the last call.
pub(in crate::service) struct CgroupChanges {
    pub changes: Vec<CgroupChange>,
    /// Number of overflows of the kernel's queues.
    pub lost: u64,
}

impl ObservedCgroups {
    /// Begins to watch. The changes are the cgroups that are there.
    pub fn watch(mount_point: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        let (watch, changes) = CgroupWatch::start(mount_point)?;
        let now = os::now();
        let observed = Self {
            watch,
            overflows: 0,
            rests_until: now,
            writes_rest_until: now,
            paths: BTreeSet::new(),
        };
        Ok((observed, changes))
    }

    /// Reads the queues that do not rest. The queue of cgroups that come and go rests after it ran
    /// over, and the queue of writes after each reading.
    pub fn changes(&mut self, now: Instant) -> io::Result<CgroupChanges> {
        let mut changes = Vec::new();
        if now >= self.writes_rest_until
            && let Some(writes) = self.watch.writes()?
        {
            self.writes_rest_until = now + WRITES_REST;
            changes = writes;
        }
        if now >= self.rests_until {
            let before = self.watch.overflows();
            changes.extend(self.watch.changes()?);
            if self.watch.overflows() > before {
                self.rests_until = now + OVERFLOW_REST;
            }
        }
        let overflows = self.watch.overflows();
        let lost = overflows - self.overflows;
        self.overflows = overflows;
        Ok(CgroupChanges { changes, lost })
    }

    pub fn end_rest(&mut self, now: Instant) {
        self.rests_until = now;
        self.writes_rest_until = now;
    }

    /// The first end of a rest, if a queue rests.
    pub fn resumes_at(&self, now: Instant) -> Option<Instant> {
        let rests = [self.rests_until, self.writes_rest_until];
        rests.into_iter().filter(|until| now < *until).min()
    }

    /// The queues that do not rest.
    pub fn awake(&self, now: Instant) -> impl Iterator<Item = BorrowedFd<'_>> {
        let queues = [
            (self.rests_until, self.watch.tree_fd()),
            (self.writes_rest_until, self.watch.writes_fd()),
        ];
        let awake = queues.into_iter().filter(move |(until, _)| now >= *until);
        awake.filter_map(|(_, fd)| fd)
    }

    /// Returns the time at which the watch has to be read without an event.
    pub fn due(&self) -> Option<Instant> {
        self.watch.due()
    }

    pub fn appeared(&mut self, path: String) {
        self.paths.insert(path);
    }

    pub fn gone(&mut self, path: &str) {
        self.paths.remove(path);
    }

    pub fn paths(&self) -> Vec<String> {
        self.paths.iter().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// The problem for the operator where the kernel has too few watches or instances.
    pub fn problem(&self) -> Option<String> {
        let (unwatched, limit) = (self.watch.unwatched(), self.watch.limit());
        (unwatched > 0).then(|| {
            format!(
                "{unwatched} cgroups cannot be watched and are looked at once a second: the \
                 kernel's limit {limit} is reached"
            )
        })
    }
}
