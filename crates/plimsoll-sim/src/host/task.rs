//! Tasks, and what each does when it has done its work.

use plimsoll_policy::ratecap::{Bucket, Params};

/// Nobody, nowhere.
pub(super) const NONE: u32 = u32::MAX;
/// The unit of work: this many make a nanosecond of a whole CPU.
pub(super) const WORK_PER_NS: u64 = 1 << WORK_SHIFT;
pub(super) const WORK_SHIFT: u32 = 20;
/// Work without end.
pub(super) const ENDLESS: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for a time or a request, or is over.
    Asleep,
    /// In a run queue.
    Queued,
    Running,
    /// Runnable, but kept off the queues by a limit.
    Parked,
}

/// What a task is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Serves requests: arrival and deadline of the present one.
    Worker {
        arrived_ns: u64,
    },
    Burner,
    /// One of a storm: another one follows when it ends.
    Process,
    /// Ends when its work is done.
    Needy,
    /// Runs its share of each grain; what it was given to do so far.
    Steady {
        lane: u32,
        given_ns: u64,
    },
    /// Wakes up at set times; the next.
    Sleeper {
        due_ns: u64,
    },
}

impl Role {
    /// Whether what it has to do is CPU time, whatever gets done in it: as the
    /// real ones, which go by the clock of their thread or process.
    pub(super) fn burns_time(self) -> bool {
        matches!(self, Self::Process | Self::Needy | Self::Steady { .. })
    }
}

#[derive(Debug)]
pub(super) struct Task {
    /// A number of its own; each process of a storm gets a new one.
    pub(super) number: u32,
    pub(super) group: u32,
    /// Its workload, by its place among all of them.
    pub(super) workload: u32,
    /// Where it ran last.
    pub(super) cpu: u32,
    pub(super) pinned: bool,
    pub(super) state: State,
    pub(super) role: Role,
    /// Over its own soft cap.
    pub(super) background: bool,
    /// Of its nice level.
    pub(super) weight: u32,
    /// Against the minimum of the queue `home`.
    pub(super) vruntime: u64,
    pub(super) home: u32,
    /// Of the entry in a run queue that counts.
    pub(super) ticket: u32,
    /// Since when it has been waiting, while it is queued or parked.
    pub(super) runnable_ns: u64,
    /// Work, or CPU time in the same unit, to do before it asks for more.
    pub(super) left: u64,
    /// Its own bucket, where caps hold for each task.
    pub(super) own: Option<Box<OwnCap>>,
    pub(super) cpu_ns: u64,
    /// Work done.
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) struct OwnCap {
    pub(super) bucket: Bucket,
    /// What the task ran since its usage rate was last looked at.
    pub(super) rate_ran_ns: u64,
    /// It has run since, and its rate is looked at next time.
    pub(super) is_rated: bool,
    /// While it does not run and is over its soft cap: when it no longer is.
    pub(super) decayed_ns: u64,
}

impl OwnCap {
    /// Of a task that begins now; none where the parameters cannot be, which
    /// its group has checked.
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
