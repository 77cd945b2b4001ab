//! A logical CPU.

use super::runqueue::RunQueue;
use super::task::NONE;

#[derive(Debug)]
pub(super) struct Cpu {
    /// What it runs; [`NONE`]: idle.
    pub(super) current: u32,
    /// Of that: in the batch class.
    pub(super) batch: bool,
    /// Its place among the CPUs that the task's group runs on.
    pub(super) running_place: u32,
    /// Since when it runs.
    pub(super) since_ns: u64,
    /// Up to when its time is charged.
    pub(super) charged_ns: u64,
    pub(super) slice_end_ns: u64,
    /// When a quota, a cap or a limit wants to be asked again.
    pub(super) limit_end_ns: u64,
    /// Batch work may run here until then, where headroom or tolerance says.
    pub(super) batch_until_ns: u64,
    /// Work since this reading of the work clock is not booked yet.
    pub(super) work_mark: u64,
    /// CPU time since then is not booked yet, of tasks that burn CPU time.
    pub(super) time_mark_ns: u64,
    /// Its speed, of a core that nobody shares.
    pub(super) rate_ppm: u64,
    /// Ran last, if it is still there.
    pub(super) last: u32,
    /// Batch work has a turn here, before normal work, until then.
    pub(super) turn_end_ns: u64,
    /// It is on the list of CPUs that choose a task anew.
    pub(super) must_choose: bool,
    /// What it runs has to give way before its slice ends.
    pub(super) give_way: bool,
    /// Where it looks next for tasks that wait elsewhere.
    pub(super) pull_from: u32,
    /// Of the fair class.
    pub(super) fair: RunQueue,
    /// Of the fair class, those that may run nowhere else.
    pub(super) fair_bound: RunQueue,
    /// Batch tasks that may run nowhere else.
    pub(super) bound: RunQueue,
}

impl Cpu {
    pub(super) fn new(cpu: u32) -> Self {
        Self {
            current: NONE,
            batch: false,
            running_place: 0,
            since_ns: 0,
            charged_ns: 0,
            slice_end_ns: 0,
            limit_end_ns: 0,
            batch_until_ns: u64::MAX,
            work_mark: 0,
            time_mark_ns: 0,
            rate_ppm: plimsoll_policy::PPM,
            last: NONE,
            turn_end_ns: 0,
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
