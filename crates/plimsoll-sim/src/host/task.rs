//! Tasks and their roles.

use plimsoll_policy::ratecap::{Bucket, Params};

/// No task, no CPU.
pub(super) const NONE: u32 = u32::MAX;
/// Units of work in a nanosecond of a whole CPU.
pub(super) const WORK_PER_NS: u64 = 1 << WORK_SHIFT;
pub(super) const WORK_SHIFT: u32 = 20;
/// Work without end.
pub(super) const ENDLESS: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for a time or a request, or has ended.
    Asleep,
    /// In a run queue.
    Queued,
    Running,
    /// Runnable, but kept off the queues by a limit.
    Parked,
}

/// The kind of work that a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves requests; arrival and deadline of the current one.
    Worker {
        arrived_ns: u64,
    },
    Burner,
    /// A process of a storm, replaced by another when it ends.
    Process,
    /// Ends when its work is done.
    Need,
    /// Runs its share of each grain; total work assigned so far.
    Steady {
        lane: u32,
        given_ns: u64,
    },
    /// Wakes up at fixed times; the next one.
    Sleeper {
        due_ns: u64,
    },
}

impl Role {
    /// Whether the amount of work is CPU time, independent of the speed of the
    /// CPU. The real workloads read the CPU clock of their thread or process.
    pub(super) fn burns_time(self) -> bool {
        matches!(self, Self::Process | Self::Need | Self::Steady { .. })
    }
}

#[derive(Debug)]
pub(super) struct Task {
    /// Unique number; each process of a storm gets a new one.
    pub(super) number: u32,
    pub(super) group: u32,
    /// Index of its workload.
    pub(super) workload: u32,
    /// CPU it ran on last.
    pub(super) cpu: u32,
    pub(super) pinned: bool,
    pub(super) state: State,
    pub(super) role: Role,
    /// Whether it is over its own soft cap.
    pub(super) background: bool,
    /// Weight of its nice level.
    pub(super) weight: u32,
    /// Virtual runtime, relative to the minimum of queue `home`.
    pub(super) vruntime: u64,
    pub(super) home: u32,
    /// Ticket of its valid run queue entry.
    pub(super) ticket: u32,
    /// Since when it has been waiting, while it is queued or parked.
    pub(super) runnable_ns: u64,
    /// Work, or CPU time in the same unit, until its next step.
    pub(super) left: u64,
    /// Its own bucket, if caps are per task.
    pub(super) own: Option<Box<OwnCap>>,
    pub(super) cpu_ns: u64,
    /// Work done.
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) struct OwnCap {
    pub(super) bucket: Bucket,
    /// CPU time since its usage rate was last compared.
    pub(super) rate_ran_ns: u64,
    /// Whether it is on the list for the next comparison.
    pub(super) is_rated: bool,
    /// Time at which its rate drops below the soft cap, while it does not run.
    pub(super) decayed_ns: u64,
}

impl OwnCap {
    /// Bucket of a task that begins now; `None` if the parameters are invalid,
    /// which its group has ruled out.
    pub(super) fn new(params: Params, now_ns: u64) -> Option<Box<Self>> {
        let bucket = Bucket::new(params, now_ns).ok()?;
        Some(Box::new(Self {
            bucket,
            rate_ran_ns: 0,
            is_rated: false,
            decayed_ns: 0,
        }))
    }
}
