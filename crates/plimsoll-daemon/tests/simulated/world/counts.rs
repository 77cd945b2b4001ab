//! Counters of events in the simulation.

use std::collections::BTreeMap;

/// Kinds of events, each with a name.
const KINDS: usize = 17;

/// Counters of events: a test in which the events do not happen shows nothing.
#[derive(Debug, Default)]
pub struct Counts {
    pub steps: u64,
    events: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub(super) fn note(&mut self, event: &'static str) {
        *self.events.entry(event).or_default() += 1;
    }

    pub(super) fn of(&self, event: &str) -> u64 {
        self.events.get(event).copied().unwrap_or_default()
    }

    pub fn add(&mut self, more: Self) {
        self.steps += more.steps;
        for (event, count) in more.events {
            *self.events.entry(event).or_default() += count;
        }
    }

    /// Checks that each event has happened often enough to show anything.
    pub fn check(&self) {
        let least = self.steps / 2_000;
        let is_rare = self.events.values().any(|count| *count <= least);
        assert!(self.events.len() == KINDS && !is_rare, "{self:?}");
    }
}
