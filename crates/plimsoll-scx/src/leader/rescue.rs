//! Tasks that have waited for so long that the kernel's watchdog would soon
//! throw the scheduler out.
//!
//! Behind normal work that never pauses, batch tasks run on the ext server's
//! time. Where there is none, or that does not help, a task that has waited for
//! longer than the scheduler itself lets it (TELL_OVERDUE_NS in
//! `src/bpf/control.bpf.h`) is lent to the fair class until it has run for once.
//! Its cgroup is marked idle, so that this is harmless.

use std::collections::HashSet;
use std::io::Read as _;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link};
use plimsoll_engine::tasks::{self, LENT, Policy, TaskId};

use crate::ext_server::ExtServer;

/// How often it is looked for tasks that have waited for too long.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often it is looked whether a task has run that was lent.
const CARE_INTERVAL: Duration = Duration::from_millis(20);
/// No task is lent for longer.
const LENT_MAX: Duration = Duration::from_secs(2);

/// One line of the scheduler's list of tasks that have waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overdue {
    tid: i32,
    waited_ms: u64,
}

/// The tasks in a list of lines "tid slot waited_ms", the longest wait first.
fn parse(text: &str) -> Vec<Overdue> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let tid = words.next()?.parse().ok()?;
        let waited_ms = words.nth(1)?.parse().ok()?;
        Some(Overdue { tid, waited_ms })
    };
    let mut all: Vec<Overdue> = text.lines().filter_map(line).collect();
    all.sort_by_key(|task| std::cmp::Reverse(task.waited_ms));
    all
}

/// A task that is lent to the fair class.
#[derive(Debug)]
struct Lent {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
    run_ns: u64,
    until: Instant,
}

/// Looks after tasks that have waited for too long.
#[derive(Debug, Default)]
pub(super) struct Rescuer {
    looked: Option<Instant>,
    /// Seen the last time, when their CPU's server was started again.
    suspects: HashSet<TaskId>,
    lent: Vec<Lent>,
}

impl Rescuer {
    /// How long the caller may wait until the next call.
    pub fn wait(&self, most: Duration) -> Duration {
        if self.lent.is_empty() {
            most
        } else {
            most.min(CARE_INTERVAL)
        }
    }

    /// Does what falls due. Returns how many tasks it has lent.
    pub fn tick(&mut self, now: Instant, list: Option<&Link>, servers: Option<&ExtServer>) -> u64 {
        self.take_back(now);
        if self
            .looked
            .is_some_and(|looked| now < looked + LOOK_INTERVAL)
        {
            return 0;
        }
        self.looked = Some(now);
        let overdue = list.and_then(read_list).unwrap_or_default();
        // Others are not the scheduler's, whatever it remembers of them.
        let ours = |task: &Overdue| tasks::policy(task.tid) == Some(Policy::Ext);
        let overdue = overdue.iter().filter(|task| ours(task));
        let overdue: Vec<TaskId> = overdue.filter_map(|task| TaskId::of(task.tid)).collect();
        let (late, suspects) = self.judge(&overdue, servers.is_some());
        for task in &suspects {
            if let (Some(servers), Some(cpu)) = (servers, tasks::cpu(task.tid)) {
                // If that does not help, the task is lent at the next look.
                let _ = servers.restart(cpu);
            }
        }
        self.suspects = suspects;
        late.into_iter()
            .map(|task| u64::from(self.lend(task, now)))
            .sum()
    }

    /// Whom to lend now, and for whom to try the server first.
    fn judge(&self, overdue: &[TaskId], has_server: bool) -> (Vec<TaskId>, HashSet<TaskId>) {
        let is_lent = |task: &TaskId| self.lent.iter().any(|lent| lent.task == *task);
        let waiting = overdue.iter().copied().filter(|task| !is_lent(task));
        let (late, first): (Vec<TaskId>, Vec<TaskId>) =
            waiting.partition(|task| !has_server || self.suspects.contains(task));
        (late, first.into_iter().collect())
    }

    fn lend(&mut self, task: TaskId, now: Instant) -> bool {
        let found = (tasks::run_ns(task.tid), tasks::policy_number(task.tid));
        let (Some(run_ns), Some(policy)) = found else {
            return false;
        };
        if !task.exists() || tasks::set_policy(task.tid, LENT).is_err() {
            return false;
        }
        self.lent.push(Lent {
            task,
            policy,
            run_ns,
            until: now + LENT_MAX,
        });
        true
    }

    fn take_back(&mut self, now: Instant) {
        self.lent.retain(|lent| {
            let tid = lent.task.tid;
            let has_run = tasks::run_ns(tid).is_none_or(|run_ns| run_ns > lent.run_ns);
            if !has_run && now < lent.until {
                return true;
            }
            // It may have left its group, been given another policy or ended, and
            // another has its number.
            if tasks::is_lent(tid) && lent.task.exists() {
                let _ = tasks::set_policy(tid, lent.policy);
            }
            false
        });
    }
}

impl Drop for Rescuer {
    /// Whatever is lent goes back; undo looks for tasks of our policy.
    fn drop(&mut self) {
        self.take_back(Instant::now() + LENT_MAX);
    }
}

fn read_list(link: &Link) -> Option<Vec<Overdue>> {
    let mut text = String::new();
    Iter::new(link).ok()?.read_to_string(&mut text).ok()?;
    Some(parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId {
        tid: 12,
        start_time: 100,
    };
    const LATER: TaskId = TaskId {
        tid: 12,
        start_time: 200,
    };

    #[test]
    fn the_longest_wait_comes_first_and_garbage_is_skipped() {
        let list = parse("12 1 22001\n\nx y z\n13 4\n14 2 25000\n");
        let tids: Vec<i32> = list.iter().map(|task| task.tid).collect();
        assert_eq!(tids, [14, 12]);
    }

    #[test]
    fn with_a_server_a_task_is_lent_at_the_second_look_only() {
        let mut rescuer = Rescuer::default();
        let (late, suspects) = rescuer.judge(&[TASK], true);
        assert!(late.is_empty() && suspects.contains(&TASK));
        rescuer.suspects = suspects;
        assert_eq!(rescuer.judge(&[TASK], true).0, [TASK]);
        // Another has its number since.
        assert!(rescuer.judge(&[LATER], true).0.is_empty());
    }

    #[test]
    fn without_a_server_a_task_is_lent_at_once_and_once() {
        let mut rescuer = Rescuer::default();
        assert_eq!(rescuer.judge(&[TASK], false).0, [TASK]);
        rescuer.lent.push(Lent {
            task: TASK,
            policy: tasks::SCHED_EXT,
            run_ns: 0,
            until: Instant::now(),
        });
        assert!(rescuer.judge(&[TASK], false).0.is_empty());
        assert_eq!(rescuer.judge(&[LATER], false).0, [LATER]);
        rescuer.lent.clear();
    }
}
