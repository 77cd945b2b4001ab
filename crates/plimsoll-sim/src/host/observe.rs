//! Interface for observers of a running host.

/// An interval in which one task ran on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The CPU.
    pub cpu: u32,
    /// Index of the group in the scenario.
    pub group: u32,
    /// Unique number of the task.
    pub task: u32,
    /// Start, in virtual time since the start of the warm-up.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Whether it ran in the batch class.
    pub batch: bool,
}

/// An event at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A group ran out of quota on a CPU.
    Throttled {
        /// Index of the group.
        group: u32,
        /// The CPU.
        cpu: u32,
    },
    /// A throttled group may run on a CPU again.
    Unthrottled {
        /// Index of the group.
        group: u32,
        /// The CPU.
        cpu: u32,
    },
    /// A group's pool was refilled at a period boundary.
    Refilled {
        /// Index of the group.
        group: u32,
        /// Runtime in the pool.
        runtime_ns: u64,
    },
    /// The headroom controller granted batch work an allowance for the next
    /// interval.
    Granted {
        /// The allowance, over all CPUs.
        grant_ns: u64,
    },
}

/// Observes a host. All methods do nothing by default; a host without an
/// observer (`()`) pays nothing for it.
pub trait Observer {
    /// A task has run.
    fn ran(&mut self, _span: &Span) {}
    /// An event has occurred at `now_ns`.
    fn happened(&mut self, _now_ns: u64, _event: Event) {}
}

impl Observer for () {}
