//! New processes of the host, watched if a group is made of processes.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::watch::{ProcessChanges, ProcessWatch};

/// Interval of reading the watch: a thousand processes may start in a second.
const INTERVAL: Duration = Duration::from_millis(10);

/// The watch of processes.
pub(in crate::service) struct ObservedProcesses {
    watch: Option<ProcessWatch>,
    read_at: Instant,
    /// All processes have to be matched again: a group of processes is new.
    needs_rescan: bool,
}

impl ObservedProcesses {
    pub fn unwatched(now: Instant) -> Self {
        Self {
            watch: None,
            read_at: now,
            needs_rescan: false,
        }
    }

    /// Begins to watch. Returns the watch if it is new.
    pub fn watch(&mut self) -> Option<&ProcessWatch> {
        if self.watch.is_some() {
            return None;
        }
        self.watch = Some(ProcessWatch::start());
        self.watch.as_ref()
    }

    pub fn unwatch(&mut self) {
        self.watch = None;
    }

    /// The changes since the last call. `None`: processes are not watched, or were read just
    /// now.
    pub fn changes(&mut self, now: Instant) -> Option<ProcessChanges> {
        if self.resumes_at(now).is_some() {
            return None;
        }
        let watch = self.watch.as_mut()?;
        self.read_at = now;
        Some(watch.changes())
    }

    /// When the watch is read again, if it was read just now.
    pub fn resumes_at(&self, now: Instant) -> Option<Instant> {
        let at = self.read_at + INTERVAL;
        (self.watch.is_some() && now < at).then_some(at)
    }

    /// When the watch has to be read without an event.
    pub fn due(&self) -> Option<Instant> {
        self.watch.as_ref().and_then(ProcessWatch::due)
    }

    /// The file that becomes readable when there are changes, unless they were read just now.
    pub fn fd(&self, now: Instant) -> Option<BorrowedFd<'_>> {
        match self.resumes_at(now) {
            Some(_) => None,
            None => self.watch.as_ref()?.fd(),
        }
    }

    pub fn request_rescan(&mut self) {
        self.needs_rescan = true;
    }

    pub fn needs_rescan(&self) -> bool {
        self.needs_rescan
    }

    /// All processes are being matched.
    pub fn rescanned(&mut self) {
        self.needs_rescan = false;
    }

    /// The source of changes, in words.
    pub fn method(&self) -> &'static str {
        self.watch
            .as_ref()
            .map_or("not watched", ProcessWatch::method)
    }
}
