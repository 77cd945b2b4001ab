//! Life time of the service: when it started, was last used, and ends.

use std::time::{Duration, Instant};

use super::super::options::LINGER;

pub(in crate::service) struct Lifetime {
    started: Instant,
    /// Time at which there last was a group, a request, or a configuration file.
    last_used: Instant,
    is_ending: bool,
    /// At the end, groups stay limited for the next owner.
    leaves_groups: bool,
    /// A command has started it.
    is_on_demand: bool,
}

impl Lifetime {
    pub fn begin(now: Instant, is_on_demand: bool) -> Self {
        Self {
            started: now,
            last_used: now,
            is_ending: false,
            leaves_groups: false,
            is_on_demand,
        }
    }

    pub fn is_on_demand(&self) -> bool {
        self.is_on_demand
    }

    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn note_use(&mut self, now: Instant) {
        self.last_used = now;
    }

    /// Returns when the service ends unless it is used before: [`LINGER`] after its last use.
    pub fn unused_due(&self) -> Instant {
        self.last_used + LINGER
    }

    pub fn end_if_unused(&mut self, now: Instant) {
        self.is_ending |= now >= self.unused_due();
    }

    /// Ends the service; `leaves_groups`: without restoring them.
    pub fn end(&mut self, leaves_groups: bool) {
        self.is_ending = true;
        self.leaves_groups = leaves_groups;
    }

    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    pub fn leaves_groups(&self) -> bool {
        self.leaves_groups
    }
}
