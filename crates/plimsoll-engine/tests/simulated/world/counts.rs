//! Counters of events in the simulation.

/// Counters of events: a test in which the events do not happen shows nothing.
#[derive(Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub(super) added: u64,
    pub(super) refused: u64,
    pub(super) changed: u64,
    pub(super) changes_of_demand: u64,
    pub(super) removed: u64,
    pub(super) deaths: u64,
    pub(super) deaths_within: u64,
    pub(super) adopted_without_a_write: u64,
    pub(super) stops: u64,
    pub(super) boots: u64,
    pub(super) changes_of_others: u64,
    pub(super) remade_within: u64,
}

impl Counts {
    pub fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.added += more.added;
        self.refused += more.refused;
        self.changed += more.changed;
        self.changes_of_demand += more.changes_of_demand;
        self.removed += more.removed;
        self.deaths += more.deaths;
        self.deaths_within += more.deaths_within;
        self.adopted_without_a_write += more.adopted_without_a_write;
        self.stops += more.stops;
        self.boots += more.boots;
        self.changes_of_others += more.changes_of_others;
        self.remade_within += more.remade_within;
    }

    /// Checks that each event has happened often enough to show anything.
    pub fn check(&self) {
        let all = [
            self.added,
            self.refused,
            self.changed,
            self.changes_of_demand,
            self.removed,
            self.deaths,
            self.deaths_within,
            self.adopted_without_a_write,
            self.stops,
            self.boots,
            self.changes_of_others,
            self.remade_within,
        ];
        assert!(
            all.iter().all(|count| *count > self.steps / 2_000),
            "{self:?}"
        );
    }
}
