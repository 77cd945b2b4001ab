//! What somebody may watch while a host runs.

/// A stretch of time that one task ran on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where.
    pub cpu: u32,
    /// Which group, by its place in the scenario.
    pub group: u32,
    /// Which task: a number of its own, given out as tasks come to be.
    pub task: u32,
    /// From when, in virtual time since the start of the warm-up.
    pub start_ns: u64,
    /// Until when.
    pub end_ns: u64,
    /// Whether it ran in the batch class.
    pub batch: bool,
}

/// Something that happened at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A group ran out of quota on a CPU.
    Throttled {
        /// Which group.
        group: u32,
        /// Where.
        cpu: u32,
    },
    /// And may run there again.
    Unthrottled {
        /// Which group.
        group: u32,
        /// Where.
        cpu: u32,
    },
    /// The pool of a group at a period boundary, just refilled.
    Refilled {
        /// Which group.
        group: u32,
        /// What is in the pool.
        runtime_ns: u64,
    },
    /// The headroom controller granted side work so much for the next interval.
    Granted {
        /// What, of all CPUs together.
        grant_ns: u64,
    },
}

/// Watches a host. All methods do nothing unless written; a host without an
/// observer (`()`) pays nothing for it.
pub trait Observer {
    /// A task has run.
    fn ran(&mut self, _span: &Span) {}
    /// Something happened at `now_ns`.
    fn happened(&mut self, _now_ns: u64, _event: Event) {}
}

impl Observer for () {}
