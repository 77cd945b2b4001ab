//! A logical CPU.

use super::runqueue::RunQueue;
use super::task::NONE;

#[derive(Debug)]
pub(super) struct Cpu {
    /// Current task; [`NONE`] if idle.
    pub(super) current: u32,
    /// Whether the current task is in the batch class.
    pub(super) batch: bool,
    /// Index of this CPU in the list of CPUs that the task's group runs on.
    pub(super) running_index: u32,
    /// Start of the current run.
    pub(super) since_ns: u64,
    /// Time up to which the current run is charged.
    pub(super) charged_ns: u64,
    pub(super) slice_end_ns: u64,
    /// When quota, cap and limit are checked again.
    pub(super) limit_end_ns: u64,
    /// Until when headroom or tolerance lets batch work run here.
    pub(super) batch_until_ns: u64,
    /// Reading of the work clock up to which work is accounted.
    pub(super) work_mark: u64,
    /// Time up to which CPU time is accounted, for tasks that burn CPU time.
    pub(super) time_mark_ns: u64,
    /// Its speed, relative to a core without busy siblings.
    pub(super) rate_ppm: u64,
    /// Task that ran last, if it still exists.
    pub(super) last: u32,
    /// End of the server slice in which batch work runs here ahead of normal
    /// work.
    pub(super) server_end_ns: u64,
    /// Whether it is on the list of CPUs to reschedule.
    pub(super) must_choose: bool,
    /// Whether the current task is preempted before its slice ends.
    pub(super) give_way: bool,
    /// CPU from which the next search for waiting tasks starts.
    pub(super) pull_from: u32,
    /// Queue of the fair class.
    pub(super) fair: RunQueue,
    /// Queue of fair tasks that are bound to this CPU.
    pub(super) fair_bound: RunQueue,
    /// Queue of batch tasks that are bound to this CPU.
    pub(super) bound: RunQueue,
}

impl Cpu {
    pub(super) fn new(cpu: u32) -> Self {
        Self {
            current: NONE,
            batch: false,
            running_index: 0,
            since_ns: 0,
            charged_ns: 0,
            slice_end_ns: 0,
            limit_end_ns: 0,
            batch_until_ns: u64::MAX,
            work_mark: 0,
            time_mark_ns: 0,
            rate_ppm: plimsoll_policy::PPM,
            last: NONE,
            server_end_ns: 0,
            must_choose: false,
            give_way: false,
            pull_from: cpu,
            fair: RunQueue::default(),
            fair_bound: RunQueue::default(),
            bound: RunQueue::default(),
        }
    }

    pub(super) fn runs_batch(&self) -> bool {
        self.current != NONE && self.batch
    }

    pub(super) fn runs_normal(&self) -> bool {
        self.current != NONE && !self.batch
    }
}
