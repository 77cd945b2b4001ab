//! Fair-class fallback for tasks that have waited for so long that the kernel's watchdog would soon
//! throw the scheduler out.
//!
//! Behind normal work that never pauses, batch tasks run in the ext server. If the kernel has none,
//! or it does not help, a task that has waited for longer than REPORT_OVERDUE_NS
//! (`src/bpf/control.bpf.h`) is moved to the fair class until it has run there. This does not
//! disturb normal work, because its cgroup has the idle mark.
//!
//! The task has to be moved back while it runs. The kernel's watchdog counts from the start of the
//! wait until the task runs in SCHED_EXT, even if it ran in another class, and a task whose class
//! is changed while it runs continues in the new class. So moved tasks are checked often, and a
//! task that did not run after its return is moved again at once.

use std::collections::{HashSet, VecDeque};
use std::io::Read as _;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link};
use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::tasks::{self, FALLBACK, Policy, TaskId};

use crate::bpf_intf::plimsoll_look;
use crate::ext_server::ExtServer;

/// Interval of reads of the list of overdue tasks.
const LIST_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of checks whether moved tasks run: less than their slice in the fair class.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// Most tasks checked in one pass; the next pass continues with others.
const CHECKS_MAX: usize = 32;
/// Interval of attempts to move a task back that was not seen running, although it has run or
/// sleeps.
const TRY_INTERVAL: Duration = Duration::from_secs(2);
/// Wait above which no such attempt is made, because the watchdog might fire at once. Ignored with
/// one CPU, where this thread never sees the task running.
const LATE_NS: u64 = 20_000_000_000;
/// Time within which a task has to run after its return.
const RUNS_WITHIN: Duration = Duration::from_millis(1);
/// Wait below which a task has run to the watchdog.
const JUST_RAN_NS: u64 = 1_000_000_000;

/// One overdue task in the scheduler's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overdue {
    tid: i32,
    waited_ms: u64,
}

/// The scheduler's list: lines "tid slot waited_ms", "tid slot fallback" and "tid slot boosted".
#[derive(Debug, Default)]
struct List {
    /// The longest wait first.
    overdue: Vec<Overdue>,
    in_fair: Vec<i32>,
    boosted: Vec<i32>,
}

fn parse(text: &str) -> List {
    let mut list = List::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [tid, _, state] = words[..] else { continue };
        let Ok(tid) = tid.parse() else { continue };
        match (state, state.parse()) {
            ("fallback", _) => list.in_fair.push(tid),
            ("boosted", _) => list.boosted.push(tid),
            (_, Ok(waited_ms)) => list.overdue.push(Overdue { tid, waited_ms }),
            _ => (),
        }
    }
    list.overdue
        .sort_by_key(|task| std::cmp::Reverse(task.waited_ms));
    list
}

/// A task that was moved to the fair class.
#[derive(Debug)]
struct FallbackTask {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
    /// Its run time at the move or the last attempt to move it back, and the time of that.
    run_ns: u64,
    tried: Instant,
}

/// The fair-class fallback.
#[derive(Debug, Default)]
pub(super) struct FairFallback {
    listed: Option<Instant>,
    /// Tasks of the last list, for which the server of their CPU was restarted.
    suspects: HashSet<TaskId>,
    /// Moved tasks, the one that was checked longest ago first.
    in_fair: VecDeque<FallbackTask>,
    /// Boosted tasks in the last list.
    pub seen_boosted: Vec<i32>,
}

impl FairFallback {
    /// Longest time to wait before the next call.
    pub fn wait(&self, most: Duration) -> Duration {
        if self.in_fair.is_empty() {
            most
        } else {
            most.min(CHECK_INTERVAL)
        }
    }

    /// Performs the due checks. Returns the number of tasks moved to the fair class.
    pub fn tick(
        &mut self,
        now: Instant,
        list: &Link,
        servers: Option<&ExtServer>,
        look: impl Fn(i32) -> Option<plimsoll_look>,
    ) -> u64 {
        self.restore(now, &look);
        if self
            .listed
            .is_some_and(|listed| now < listed + LIST_INTERVAL)
        {
            return 0;
        }
        self.listed = Some(now);
        let List {
            overdue,
            in_fair,
            boosted,
        } = read_list(list).unwrap_or_default();
        self.adopt(&in_fair, now);
        self.seen_boosted = boosted;
        // Tasks of another policy are not the scheduler's any more.
        let ours = |task: &Overdue| tasks::policy(task.tid) == Some(Policy::Ext);
        let overdue = overdue.iter().filter(|task| ours(task));
        let overdue: Vec<TaskId> = overdue.filter_map(|task| TaskId::of(task.tid)).collect();
        let (late, suspects) = self.judge(&overdue, servers.is_some());
        for task in &suspects {
            if let (Some(servers), Some(cpu)) = (servers, tasks::cpu(task.tid)) {
                // If that does not help, the task is moved after the next list.
                let _ = servers.restart(cpu);
            }
        }
        self.suspects = suspects;
        late.into_iter()
            .map(|task| u64::from(self.move_to_fair(task, now)))
            .sum()
    }

    /// Moves tasks that are late for the watchdog as soon as they wake. Returns their number.
    pub fn move_late(
        &mut self,
        tids: impl Iterator<Item = i32>,
        now: Instant,
        look: impl Fn(i32) -> Option<plimsoll_look>,
    ) -> u64 {
        // A task that has run since is not late.
        let waits = |seen: plimsoll_look| seen.on_cpu == 0 && seen.waited_ns >= JUST_RAN_NS;
        let is_ours =
            |tid: &i32| tasks::policy(*tid) == Some(Policy::Ext) && look(*tid).is_some_and(waits);
        let tasks: Vec<TaskId> = tids.filter(is_ours).filter_map(TaskId::of).collect();
        let moved = tasks.into_iter().map(|task| self.move_to_fair(task, now));
        moved.map(u64::from).sum()
    }

    /// Adopts tasks that a killed owner has moved.
    fn adopt(&mut self, tids: &[i32], now: Instant) {
        for task in tids.iter().copied().filter_map(TaskId::of) {
            if !self.in_fair.iter().any(|moved| moved.task == task) {
                self.in_fair
                    .push_back(FallbackTask::new(task, tasks::SCHED_EXT, 0, now));
            }
        }
    }

    /// Returns the tasks to move now, and those for which to restart the server first.
    fn judge(&self, overdue: &[TaskId], has_server: bool) -> (Vec<TaskId>, HashSet<TaskId>) {
        let is_moved = |task: &TaskId| self.in_fair.iter().any(|moved| moved.task == *task);
        let waiting = overdue.iter().copied().filter(|task| !is_moved(task));
        let (late, first): (Vec<TaskId>, Vec<TaskId>) =
            waiting.partition(|task| !has_server || self.suspects.contains(task));
        (late, first.into_iter().collect())
    }

    fn move_to_fair(&mut self, task: TaskId, now: Instant) -> bool {
        let found = (tasks::run_ns(task.tid), tasks::policy_number(task.tid));
        let (Some(run_ns), Some(policy)) = found else {
            return false;
        };
        if !task.exists() || tasks::set_policy(task.tid, FALLBACK).is_err() {
            return false;
        }
        self.in_fair
            .push_back(FallbackTask::new(task, policy, run_ns, now));
        true
    }

    fn restore(&mut self, now: Instant, look: &impl Fn(i32) -> Option<plimsoll_look>) {
        for _ in 0..self.in_fair.len().min(CHECKS_MAX) {
            let Some(mut moved) = self.in_fair.pop_front() else {
                return;
            };
            if moved.stays(now, look) {
                self.in_fair.push_back(moved);
            }
        }
    }
}

impl FallbackTask {
    fn new(task: TaskId, policy: i32, run_ns: u64, tried: Instant) -> Self {
        Self {
            task,
            policy,
            run_ns,
            tried,
        }
    }

    /// Moves the task back if it runs, or will run as soon as it wakes up. Returns whether it is
    /// still in the fair class.
    fn stays(&mut self, now: Instant, look: &impl Fn(i32) -> Option<plimsoll_look>) -> bool {
        let tid = self.task.tid;
        let Some(seen) = look(tid) else {
            return false;
        };
        let runs = seen.on_cpu != 0;
        if !runs && now < self.tried + TRY_INTERVAL {
            return true;
        }
        self.tried = now;
        // It may have left its group, have got another policy, or have ended, and its thread id may
        // have been reused.
        if !tasks::is_fallback(tid) || !self.task.exists() {
            return false;
        }
        let wakes_to_idle = !runs && seen.asleep != 0 && seen.any_cpu_idle != 0;
        let run_ns = tasks::run_ns(tid).unwrap_or(0);
        let may_try = run_ns > self.run_ns && (seen.waited_ns < LATE_NS || nr_cpus_online() == 1);
        if !runs && !wakes_to_idle && !may_try {
            return true;
        }
        self.run_ns = run_ns;
        let is_back = tasks::set_policy(tid, self.policy).is_err()
            || wakes_to_idle
            || ran_within(RUNS_WITHIN, tid, look);
        // Unless another process has changed its policy meanwhile.
        let is_ours = || tasks::policy(tid) == Some(Policy::Ext) && self.task.exists();
        !is_back && is_ours() && tasks::set_policy(tid, FALLBACK).is_ok()
    }
}

/// Whether a task that was moved back to SCHED_EXT has run to the watchdog.
fn ran_within(time: Duration, tid: i32, look: &impl Fn(i32) -> Option<plimsoll_look>) -> bool {
    let until = Instant::now() + time;
    loop {
        match look(tid) {
            Some(seen) if seen.on_cpu == 0 && seen.waited_ns >= JUST_RAN_NS => (),
            _ => return true,
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(time / 10);
    }
}

impl Drop for FairFallback {
    /// Moves all tasks back, because undo searches for tasks of SCHED_EXT.
    fn drop(&mut self) {
        for moved in &self.in_fair {
            if tasks::is_fallback(moved.task.tid) && moved.task.exists() {
                let _ = tasks::set_policy(moved.task.tid, moved.policy);
            }
        }
    }
}

fn read_list(link: &Link) -> Option<List> {
    let mut text = String::new();
    Iter::new(link).ok()?.read_to_string(&mut text).ok()?;
    Some(parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::NO_LOOK;
    use plimsoll_cgroupfs::os;

    const TASK: TaskId = TaskId {
        tid: 12,
        start_time: 100,
    };
    const LATER: TaskId = TaskId {
        tid: 12,
        start_time: 200,
    };

    fn moved(task: TaskId) -> FallbackTask {
        FallbackTask::new(task, tasks::SCHED_EXT, 0, os::now())
    }

    #[test]
    fn a_moved_task_is_kept_until_it_runs_and_dropped_when_it_has_ended() {
        let waits = |tid: i32| {
            Some(plimsoll_look {
                tid: tid.cast_unsigned(),
                waited_ns: 12 * JUST_RAN_NS,
                ..NO_LOOK
            })
        };
        let mut fallback = FairFallback::default();
        assert_eq!(fallback.wait(TRY_INTERVAL), TRY_INTERVAL);
        fallback.in_fair.push_back(moved(TASK));
        let now = os::now();
        assert_eq!(fallback.wait(TRY_INTERVAL), CHECK_INTERVAL);
        fallback.restore(now, &waits);
        assert_eq!(fallback.in_fair.len(), 1);
        fallback.restore(now, &|_| None);
        assert!(fallback.in_fair.is_empty());
    }

    #[test]
    fn tasks_moved_by_a_killed_owner_are_adopted_once() {
        let own = std::process::id().cast_signed();
        let mut fallback = FairFallback::default();
        fallback.adopt(&[own, i32::MAX], os::now());
        fallback.adopt(&[own], os::now());
        let tids: Vec<i32> = fallback
            .in_fair
            .iter()
            .map(|moved| moved.task.tid)
            .collect();
        assert_eq!(tids, [own]);
        fallback.in_fair.clear();
    }

    #[test]
    fn many_moved_tasks_are_checked_in_turns() {
        let mut fallback = FairFallback::default();
        let tids = 1..=3 * i32::try_from(CHECKS_MAX).unwrap() / 2;
        let all = tids.map(|tid| TaskId {
            tid,
            start_time: 100,
        });
        fallback.in_fair.extend(all.map(moved));
        let seen = std::cell::RefCell::new(HashSet::new());
        let look = |tid: i32| {
            seen.borrow_mut().insert(tid);
            Some(plimsoll_look {
                tid: tid.cast_unsigned(),
                waited_ns: 0,
                ..NO_LOOK
            })
        };
        fallback.restore(os::now(), &look);
        assert_eq!(seen.borrow().len(), CHECKS_MAX);
        fallback.restore(os::now(), &look);
        assert_eq!(seen.borrow().len(), 3 * CHECKS_MAX / 2);
        fallback.in_fair.clear();
    }

    #[test]
    fn the_longest_wait_comes_first_and_garbage_is_skipped() {
        let text =
            "12 1 22001\n\nx y z\n13 4\n15 3 fallback\n14 2 25000\nx 1 fallback\n16 1 boosted\n";
        let list = parse(text);
        let tids: Vec<i32> = list.overdue.iter().map(|task| task.tid).collect();
        assert_eq!((&tids[..], &list.in_fair[..]), (&[14, 12][..], &[15][..]));
        assert_eq!(list.boosted, [16]);
    }

    #[test]
    fn with_a_server_a_task_is_moved_at_the_second_check_only() {
        let mut fallback = FairFallback::default();
        let (late, suspects) = fallback.judge(&[TASK], true);
        assert!(late.is_empty() && suspects.contains(&TASK));
        fallback.suspects = suspects;
        assert_eq!(fallback.judge(&[TASK], true).0, [TASK]);
        // Another task has its thread id since.
        assert!(fallback.judge(&[LATER], true).0.is_empty());
    }

    #[test]
    fn without_a_server_a_task_is_moved_at_once_and_once() {
        let mut fallback = FairFallback::default();
        assert_eq!(fallback.judge(&[TASK], false).0, [TASK]);
        fallback.in_fair.push_back(moved(TASK));
        assert!(fallback.judge(&[TASK], false).0.is_empty());
        assert_eq!(fallback.judge(&[LATER], false).0, [LATER]);
        fallback.in_fair.clear();
    }
}
