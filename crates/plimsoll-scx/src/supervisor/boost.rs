//! Boost of batch tasks that hold a kernel lock for which normal work waits.
//!
//! Behind normal work that never pauses such a task would only get its server slices, and normal
//! work would wait as long. The scheduler reports the task (`src/bpf/holders.bpf.h`), and it runs
//! before all ordinary work until the lock is free: in the deadline class, so that the kernel
//! bounds it even if this process is killed.

use std::time::{Duration, Instant};

use plimsoll_engine::tasks::{self, FALLBACK, Policy, SCHED_EXT, TaskId};

use crate::bpf_intf::{
    plimsoll_event, plimsoll_event_kind_PLIMSOLL_HOLDS as HOLDS,
    plimsoll_event_kind_PLIMSOLL_RELEASED as RELEASED,
};
use crate::members::policy_of_member;

/// Charge in advance for a boost. The kernel gives it a quarter of a CPU.
const PREPAID_NS: i64 = 5_000_000;
/// Budget of all boosts: 10 % of one CPU, and as much of a second at once.
const BUDGET_PPM: u64 = 100_000;
const BUDGET_MAX_NS: i64 = 100_000_000;
/// Longest boost: a task that holds a lock for longer continues in its server slices.
const LONGEST: Duration = Duration::from_millis(200);
/// Most boosts at once, and most tasks that wait for one.
const BOOSTED_MAX: usize = 3;
const WAITING_MAX: usize = 256;
/// Interval of checks for new budget.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Remaining run time of all boosted tasks together.
#[derive(Debug)]
struct Budget {
    left_ns: i64,
    updated: Instant,
}

impl Budget {
    fn full(now: Instant) -> Self {
        Self {
            left_ns: BUDGET_MAX_NS,
            updated: now,
        }
    }

    /// The rest of the budget, which grows with time.
    fn left_ns(&mut self, now: Instant) -> i64 {
        let elapsed_ns = now.duration_since(self.updated).as_nanos();
        let earned_ns = elapsed_ns * u128::from(BUDGET_PPM) / 1_000_000;
        self.left_ns = i64::try_from(earned_ns)
            .map_or(BUDGET_MAX_NS, |earned| self.left_ns.saturating_add(earned))
            .min(BUDGET_MAX_NS);
        self.updated = now;
        self.left_ns
    }

    /// Charges run time; negative: a refund.
    fn charge(&mut self, ran_ns: i64) {
        self.left_ns = self.left_ns.saturating_sub(ran_ns);
    }
}

/// A boosted task.
#[derive(Debug)]
struct BoostedTask {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
    run_ns: u64,
    since: Instant,
}

impl BoostedTask {
    /// Its run time since the boost; of a task that is gone, the most possible.
    fn ran_ns(&self) -> i64 {
        let ran_ns = match tasks::run_ns(self.task.tid) {
            Some(run_ns) if self.task.exists() => run_ns.saturating_sub(self.run_ns),
            _ => u64::try_from(self.since.elapsed().as_nanos() / 4).unwrap_or(u64::MAX),
        };
        i64::try_from(ran_ns).unwrap_or(i64::MAX)
    }
}

/// Boosts holders of locks, and ends the boosts.
#[derive(Debug)]
pub(super) struct Booster {
    budget: Budget,
    boosted: Vec<BoostedTask>,
    /// Reported holders that are not boosted, because the budget is used up or their boost has
    /// ended.
    waiting: Vec<i32>,
}

impl Booster {
    pub fn new(now: Instant) -> Self {
        Self {
            budget: Budget::full(now),
            boosted: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Longest time to wait before the next call of [`Booster::tick`].
    pub fn wait(&self, most: Duration) -> Duration {
        if !self.waiting.is_empty() {
            most.min(RETRY_INTERVAL)
        } else if !self.boosted.is_empty() {
            most.min(LONGEST / 4)
        } else {
            most
        }
    }

    /// Handles an event of the scheduler.
    pub fn follow(&mut self, event: plimsoll_event, is_late: impl Fn(i32) -> bool) {
        let tid = event.tid.cast_signed();
        match event.kind {
            HOLDS if !self.waiting.contains(&tid) && self.waiting.len() < WAITING_MAX => {
                self.waiting.push(tid);
            }
            RELEASED => {
                self.waiting.retain(|waiting| *waiting != tid);
                self.end(|boosted| boosted.task.tid == tid, is_late);
            }
            _ => (),
        }
    }

    /// Ends and begins the due boosts. Returns the number of new ones.
    pub fn tick(&mut self, now: Instant, is_late: impl Fn(i32) -> bool) -> u64 {
        // Back in its class, the task is reported again if it still has to wait.
        self.end(|boosted| now >= boosted.since + LONGEST, is_late);
        let mut count = 0;
        for tid in std::mem::take(&mut self.waiting) {
            if self.boosted.len() >= BOOSTED_MAX || self.budget.left_ns(now) <= 0 {
                self.waiting.push(tid);
                continue;
            }
            match self.boost(tid, now) {
                Some(true) => count += 1,
                Some(false) => self.waiting.push(tid),
                None => (),
            }
        }
        count
    }

    /// Ends the boosts of a killed owner.
    pub fn adopt(&mut self, tids: &[i32], is_late: impl Fn(i32) -> bool) {
        let is_known = |task: &TaskId| self.boosted.iter().any(|known| known.task == *task);
        let left = tids.iter().copied().filter_map(TaskId::of);
        let left: Vec<TaskId> = left.filter(|task| !is_known(task)).collect();
        for task in left {
            restore(task, SCHED_EXT, &is_late);
        }
    }

    /// Boosts a task. Returns whether it did; `None`: the task cannot be boosted.
    fn boost(&mut self, tid: i32, now: Instant) -> Option<bool> {
        let task = TaskId::of(tid)?;
        let policy = tasks::policy_number(tid)?;
        let run_ns = tasks::run_ns(tid)?;
        // After the boost, a task in the fallback gets the scheduler's policy.
        let policy = if policy == FALLBACK {
            SCHED_EXT
        } else {
            policy
        };
        if Policy::of(policy) != Policy::Ext {
            return None;
        }
        match tasks::boost(tid) {
            Ok(()) => self.budget.charge(PREPAID_NS),
            // Other tasks use up the deadline class.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Some(false),
            Err(_) => return None,
        }
        self.boosted.push(BoostedTask {
            task,
            policy,
            run_ns,
            since: now,
        });
        Some(true)
    }

    fn end(&mut self, which: impl Fn(&BoostedTask) -> bool, is_late: impl Fn(i32) -> bool) {
        let (ended, stay) = std::mem::take(&mut self.boosted)
            .into_iter()
            .partition(which);
        self.boosted = stay;
        let ended: Vec<BoostedTask> = ended;
        for boosted in ended {
            restore(boosted.task, boosted.policy, &is_late);
            self.budget.charge(boosted.ran_ns() - PREPAID_NS);
        }
    }
}

/// Restores the policy of a boosted task, unless another was set meanwhile.
fn restore(task: TaskId, policy: i32, is_late: &impl Fn(i32) -> bool) {
    let is_boosted = |policy| tasks::is_boosted(task.tid, policy);
    if tasks::policy_number(task.tid).is_some_and(is_boosted) && task.exists() {
        let policy = policy_of_member(policy, is_late(task.tid));
        let _ = tasks::set_policy(task.tid, policy);
    }
}

impl Drop for Booster {
    /// Ends all boosts.
    fn drop(&mut self) {
        self.end(|_| true, |_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    const NEVER_LATE: fn(i32) -> bool = |_| false;

    fn event(kind: u32, tid: i32) -> plimsoll_event {
        plimsoll_event {
            kind,
            tid: tid.cast_unsigned(),
            slot: 0,
            threadgroup: 0,
        }
    }

    #[test]
    fn the_budget_is_a_tenth_and_no_more_than_that_of_a_second_is_saved() {
        let start = os::now();
        let mut budget = Budget::full(start);
        budget.charge(120_000_000);
        assert!(budget.left_ns(start) < 0);
        let later = start + Duration::from_millis(300);
        assert_eq!(budget.left_ns(later), 10_000_000);
        assert_eq!(
            budget.left_ns(later + Duration::from_secs(60)),
            BUDGET_MAX_NS
        );
    }

    #[test]
    fn only_tasks_of_the_scheduler_are_boosted() {
        let now = os::now();
        let mut booster = Booster::new(now);
        let own = nix::unistd::gettid().as_raw();
        let before = tasks::policy_number(own);
        booster.follow(event(HOLDS, own), NEVER_LATE);
        booster.follow(event(HOLDS, i32::MAX), NEVER_LATE);
        assert_eq!(booster.tick(now, NEVER_LATE), 0);
        assert_eq!(tasks::policy_number(own), before);
        assert_eq!(booster.wait(LONGEST), LONGEST);
    }

    #[test]
    fn a_task_with_another_policy_meanwhile_keeps_it() {
        let now = os::now();
        let own = nix::unistd::gettid().as_raw();
        let mut booster = Booster::new(now);
        booster.boosted.push(BoostedTask {
            task: TaskId::of(own).unwrap(),
            policy: SCHED_EXT,
            run_ns: 0,
            since: now,
        });
        let before = tasks::policy_number(own);
        booster.tick(now + LONGEST, NEVER_LATE);
        assert!(booster.boosted.is_empty());
        assert_eq!(tasks::policy_number(own), before);
    }
}
