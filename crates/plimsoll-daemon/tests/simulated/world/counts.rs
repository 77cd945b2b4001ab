//! Counters of events in the simulation.

/// Counters of events: a test in which the events do not happen shows nothing.
#[derive(Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub(super) granted: u64,
    pub(super) refused: u64,
    pub(super) groups_begun: u64,
    pub(super) groups_ended: u64,
    pub(super) in_force: u64,
    pub(super) failing: u64,
    pub(super) reloads: u64,
    pub(super) deaths: u64,
    pub(super) deaths_within: u64,
    pub(super) panics: u64,
    pub(super) adopted_without_a_write: u64,
    pub(super) stops: u64,
    pub(super) boots: u64,
    pub(super) changes_of_others: u64,
    pub(super) remade_within: u64,
    pub(super) renamed: u64,
    pub(super) events_lost: u64,
}

impl Counts {
    fn all(&mut self) -> [&mut u64; 17] {
        [
            &mut self.granted,
            &mut self.refused,
            &mut self.groups_begun,
            &mut self.groups_ended,
            &mut self.in_force,
            &mut self.failing,
            &mut self.reloads,
            &mut self.deaths,
            &mut self.deaths_within,
            &mut self.panics,
            &mut self.adopted_without_a_write,
            &mut self.stops,
            &mut self.boots,
            &mut self.changes_of_others,
            &mut self.remade_within,
            &mut self.renamed,
            &mut self.events_lost,
        ]
    }

    pub fn add(&mut self, mut more: Self) {
        self.steps += more.steps;
        for (sum, more) in self.all().into_iter().zip(more.all()) {
            *sum += *more;
        }
    }

    /// Checks that each event has happened often enough to show anything.
    pub fn check(&mut self) {
        let least = self.steps / 2_000;
        let is_rare = self.all().iter().any(|count| **count <= least);
        assert!(!is_rare, "{self:?}");
    }
}
