//! Batch tasks that hold a lock of the kernel for which normal work waits.
//!
//! Behind normal work that never pauses such a task would get no more than its turns,
//! and what waits for it would wait as long. The scheduler tells who it is
//! (`src/bpf/holders.bpf.h`), and it runs at once, before all ordinary work, until
//! the lock is free: as a task of the deadline class, so that the kernel bounds it,
//! whatever becomes of this process.

use std::time::{Duration, Instant};

use plimsoll_engine::tasks::{self, LENT, Policy, SCHED_EXT, TaskId};

use crate::bpf_intf::{
    plimsoll_event, plimsoll_event_kind_PLIMSOLL_HOLDS as HOLDS,
    plimsoll_event_kind_PLIMSOLL_RELEASED as RELEASED,
};
use crate::members::policy_of_member;

/// What a promotion is charged at first. The kernel gives a quarter of a CPU.
const PREPAID_NS: i64 = 5_000_000;
/// What all of them may run in all: 10 % of one CPU, and as much of a second at once.
const BUDGET_PPM: u64 = 100_000;
const BUDGET_MAX_NS: i64 = 100_000_000;
/// Whoever holds a lock for longer goes on in its turns.
const LONGEST: Duration = Duration::from_millis(200);
/// So many at once, and so many that wait for it.
const PROMOTED_MAX: usize = 3;
const WAITING_MAX: usize = 256;
/// How often it is looked whether there is budget again.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// What all promoted tasks together may run still.
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

    /// What is left, which grows with time.
    fn left_ns(&mut self, now: Instant) -> i64 {
        let elapsed_ns = now.duration_since(self.updated).as_nanos();
        let earned_ns = elapsed_ns * u128::from(BUDGET_PPM) / 1_000_000;
        self.left_ns = i64::try_from(earned_ns)
            .map_or(BUDGET_MAX_NS, |earned| self.left_ns.saturating_add(earned))
            .min(BUDGET_MAX_NS);
        self.updated = now;
        self.left_ns
    }

    /// Less than 0: a refund.
    fn charge(&mut self, ran_ns: i64) {
        self.left_ns = self.left_ns.saturating_sub(ran_ns);
    }
}

/// A task that runs at once.
#[derive(Debug)]
struct Promoted {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
    run_ns: u64,
    since: Instant,
}

impl Promoted {
    /// What it has run since; of one that is gone, the most that it can have.
    fn ran_ns(&self) -> i64 {
        let ran_ns = match tasks::run_ns(self.task.tid) {
            Some(run_ns) if self.task.exists() => run_ns.saturating_sub(self.run_ns),
            _ => u64::try_from(self.since.elapsed().as_nanos() / 4).unwrap_or(u64::MAX),
        };
        i64::try_from(ran_ns).unwrap_or(i64::MAX)
    }
}

/// Has holders of locks run at once, and takes them back.
#[derive(Debug)]
pub(super) struct Promoter {
    budget: Budget,
    promoted: Vec<Promoted>,
    /// Who holds a lock and is not promoted yet, for want of budget, or any more.
    waiting: Vec<i32>,
}

impl Promoter {
    pub fn new(now: Instant) -> Self {
        Self {
            budget: Budget::full(now),
            promoted: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// How long the caller may wait until the next call of [`Promoter::tick`].
    pub fn wait(&self, most: Duration) -> Duration {
        if !self.waiting.is_empty() {
            most.min(RETRY_INTERVAL)
        } else if !self.promoted.is_empty() {
            most.min(LONGEST / 4)
        } else {
            most
        }
    }

    /// Follows what the scheduler tells.
    pub fn follow(&mut self, event: plimsoll_event, is_late: impl Fn(i32) -> bool) {
        let tid = event.tid.cast_signed();
        match event.kind {
            HOLDS if !self.waiting.contains(&tid) && self.waiting.len() < WAITING_MAX => {
                self.waiting.push(tid);
            }
            RELEASED => {
                self.waiting.retain(|waiting| *waiting != tid);
                self.end(|promoted| promoted.task.tid == tid, is_late);
            }
            _ => (),
        }
    }

    /// Does what falls due. Returns how many tasks it has promoted.
    pub fn tick(&mut self, now: Instant, is_late: impl Fn(i32) -> bool) -> u64 {
        // Back in its class, it is told of again if it still has to wait.
        self.end(|promoted| now >= promoted.since + LONGEST, is_late);
        let mut count = 0;
        for tid in std::mem::take(&mut self.waiting) {
            if self.promoted.len() >= PROMOTED_MAX || self.budget.left_ns(now) <= 0 {
                self.waiting.push(tid);
                continue;
            }
            match self.promote(tid, now) {
                Some(true) => count += 1,
                Some(false) => self.waiting.push(tid),
                None => (),
            }
        }
        count
    }

    /// Takes back what another owner has promoted, which was killed since.
    pub fn adopt(&mut self, tids: &[i32], is_late: impl Fn(i32) -> bool) {
        let is_known = |task: &TaskId| self.promoted.iter().any(|known| known.task == *task);
        let left = tids.iter().copied().filter_map(TaskId::of);
        let left: Vec<TaskId> = left.filter(|task| !is_known(task)).collect();
        for task in left {
            take_back(task, SCHED_EXT, &is_late);
        }
    }

    /// Whether it has; `None`: that task cannot be promoted.
    fn promote(&mut self, tid: i32, now: Instant) -> Option<bool> {
        let task = TaskId::of(tid)?;
        let policy = tasks::policy_number(tid)?;
        let run_ns = tasks::run_ns(tid)?;
        // One that is lent is not the rescue's any more.
        let policy = if policy == LENT { SCHED_EXT } else { policy };
        if Policy::of(policy) != Policy::Ext {
            return None;
        }
        match tasks::promote(tid) {
            Ok(()) => self.budget.charge(PREPAID_NS),
            // Others have what there is of the deadline class.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Some(false),
            Err(_) => return None,
        }
        self.promoted.push(Promoted {
            task,
            policy,
            run_ns,
            since: now,
        });
        Some(true)
    }

    fn end(&mut self, whom: impl Fn(&Promoted) -> bool, is_late: impl Fn(i32) -> bool) {
        let (ended, stay) = std::mem::take(&mut self.promoted)
            .into_iter()
            .partition(whom);
        self.promoted = stay;
        let ended: Vec<Promoted> = ended;
        for promoted in ended {
            take_back(promoted.task, promoted.policy, &is_late);
            self.budget.charge(promoted.ran_ns() - PREPAID_NS);
        }
    }
}

/// Gives a promoted task the scheduler's policy again, unless it has got another
/// meanwhile.
fn take_back(task: TaskId, policy: i32, is_late: &impl Fn(i32) -> bool) {
    let is_promoted = |policy| tasks::is_promoted(task.tid, policy);
    if tasks::policy_number(task.tid).is_some_and(is_promoted) && task.exists() {
        let policy = policy_of_member(policy, is_late(task.tid));
        let _ = tasks::set_policy(task.tid, policy);
    }
}

impl Drop for Promoter {
    /// Nobody stays promoted.
    fn drop(&mut self) {
        self.end(|_| true, |_| false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let start = Instant::now();
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
    fn only_tasks_of_the_scheduler_are_promoted() {
        let now = Instant::now();
        let mut promoter = Promoter::new(now);
        let own = nix::unistd::gettid().as_raw();
        let before = tasks::policy_number(own);
        promoter.follow(event(HOLDS, own), NEVER_LATE);
        promoter.follow(event(HOLDS, i32::MAX), NEVER_LATE);
        assert_eq!(promoter.tick(now, NEVER_LATE), 0);
        assert_eq!(tasks::policy_number(own), before);
        assert_eq!(promoter.wait(LONGEST), LONGEST);
    }

    #[test]
    fn who_has_got_another_policy_meanwhile_keeps_it() {
        let now = Instant::now();
        let own = nix::unistd::gettid().as_raw();
        let mut promoter = Promoter::new(now);
        promoter.promoted.push(Promoted {
            task: TaskId::of(own).unwrap(),
            policy: SCHED_EXT,
            run_ns: 0,
            since: now,
        });
        let before = tasks::policy_number(own);
        promoter.tick(now + LONGEST, NEVER_LATE);
        assert!(promoter.promoted.is_empty());
        assert_eq!(tasks::policy_number(own), before);
    }
}
