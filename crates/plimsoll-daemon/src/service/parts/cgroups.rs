//! The cgroups of the host, as the watch reports them.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::watch::{CgroupChange, CgroupWatch};

/// Pause of the watch after irrelevant events: long enough that a process that writes in a loop
/// does not wake the service each time, and short enough that the kernel's queue has room for
/// other events meanwhile.
const REST: Duration = Duration::from_millis(10);
/// Pause of the watch after the kernel's queue ran over and all cgroups were read.
const OVERFLOW_REST: Duration = Duration::from_millis(100);

/// Cgroups of the host and their watch.
pub(in crate::service) struct ObservedCgroups {
    watch: CgroupWatch,
    /// Overflows of the kernel's queue that are counted.
    overflows: u64,
    /// The watch is not read before.
    rests_until: Instant,
    paths: BTreeSet<String>,
}

/// Changes since the last call.
pub(in crate::service) struct CgroupChanges {
    pub changes: Vec<CgroupChange>,
    /// Overflows of the kernel's queue.
    pub lost: u64,
}

impl ObservedCgroups {
    /// Begins to watch, and returns the cgroups that are there.
    ///
    /// # Errors
    /// When the kernel refuses a watch.
    pub fn watch(mount_point: &Path) -> io::Result<(Self, Vec<CgroupChange>)> {
        let (watch, changes) = CgroupWatch::start(mount_point)?;
        let observed = Self {
            watch,
            overflows: 0,
            rests_until: Instant::now(),
            paths: BTreeSet::new(),
        };
        Ok((observed, changes))
    }

    /// Reads the watch.
    ///
    /// # Errors
    /// When the kernel's queue cannot be read.
    pub fn changes(&mut self) -> io::Result<CgroupChanges> {
        let changes = self.watch.changes()?;
        let overflows = self.watch.overflows();
        let lost = overflows - self.overflows;
        self.overflows = overflows;
        Ok(CgroupChanges { changes, lost })
    }

    pub fn rest_after_overflow(&mut self) {
        self.rests_until = Instant::now() + OVERFLOW_REST;
    }

    pub fn rest(&mut self, now: Instant) {
        self.rests_until = now + REST;
    }

    pub fn end_rest(&mut self) {
        self.rests_until = Instant::now();
    }

    /// The end of the rest, if the watch rests.
    pub fn resumes_at(&self, now: Instant) -> Option<Instant> {
        (now < self.rests_until).then_some(self.rests_until)
    }

    /// When the watch has to be read without an event.
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

    /// The problem for the operator where the kernel has too few watches.
    pub fn problem(&self) -> Option<String> {
        let unwatched = self.watch.unwatched();
        (unwatched > 0).then(|| {
            format!(
                "{unwatched} cgroups cannot be watched and are looked at once a second: the \
                 kernel's limit fs.inotify.max_user_watches is reached"
            )
        })
    }
}

impl AsFd for ObservedCgroups {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
