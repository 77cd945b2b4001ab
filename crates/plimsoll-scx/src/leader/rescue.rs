//! Tasks that have waited for so long that the kernel's watchdog would soon
//! throw the scheduler out.
//!
//! Behind normal work that never pauses, batch tasks run on the ext server's
//! time. Where there is none, or the kernel has stopped it, a task that has
//! waited for 12 s is lent to the fair class until it has run for once. Its
//! cgroup is marked idle, so that this is harmless.

use std::collections::HashSet;
use std::io::Read as _;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link};
use plimsoll_engine::tasks::{self, LENT, Policy, SCHED_EXT};

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
    tid: i32,
    run_ns: u64,
    until: Instant,
}

/// Looks after tasks that have waited for too long.
#[derive(Debug, Default)]
pub(super) struct Rescuer {
    looked: Option<Instant>,
    /// Seen the last time, when their CPU's server was started again.
    suspects: HashSet<i32>,
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
        let mut overdue = list.and_then(read_list).unwrap_or_default();
        // Others are not the scheduler's, whatever it remembers of them.
        overdue.retain(|task| tasks::policy(task.tid) == Some(Policy::Ext));
        let (late, suspects) = self.judge(&overdue, servers.is_some());
        for tid in &suspects {
            if let (Some(servers), Some(cpu)) = (servers, tasks::cpu(*tid)) {
                // If that does not help, the task is lent at the next look.
                let _ = servers.restart(cpu);
            }
        }
        self.suspects = suspects;
        late.into_iter()
            .map(|tid| u64::from(self.lend(tid, now)))
            .sum()
    }

    /// Whom to lend now, and for whom to try the server first.
    fn judge(&self, overdue: &[Overdue], has_server: bool) -> (Vec<i32>, HashSet<i32>) {
        let tids = overdue.iter().map(|task| task.tid);
        let waiting = tids.filter(|tid| self.lent.iter().all(|lent| lent.tid != *tid));
        let (late, first): (Vec<i32>, Vec<i32>) =
            waiting.partition(|tid| !has_server || self.suspects.contains(tid));
        (late, first.into_iter().collect())
    }

    fn lend(&mut self, tid: i32, now: Instant) -> bool {
        let Some(run_ns) = tasks::run_ns(tid) else {
            return false;
        };
        if tasks::set_policy(tid, LENT).is_err() {
            return false;
        }
        self.lent.push(Lent {
            tid,
            run_ns,
            until: now + LENT_MAX,
        });
        true
    }

    fn take_back(&mut self, now: Instant) {
        self.lent.retain(|lent| {
            let has_run = tasks::run_ns(lent.tid).is_none_or(|run_ns| run_ns > lent.run_ns);
            if !has_run && now < lent.until {
                return true;
            }
            // It may have left its group or been given another policy since.
            if tasks::is_lent(lent.tid) {
                let _ = tasks::set_policy(lent.tid, SCHED_EXT);
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

    #[test]
    fn the_longest_wait_comes_first_and_garbage_is_skipped() {
        let list = parse("12 1 12001\n\nx y z\n13 4\n14 2 15000\n");
        let tids: Vec<i32> = list.iter().map(|task| task.tid).collect();
        assert_eq!(tids, [14, 12]);
    }

    #[test]
    fn with_a_server_a_task_is_lent_at_the_second_look_only() {
        let overdue = parse("12 1 12001\n");
        let mut rescuer = Rescuer::default();
        let (late, suspects) = rescuer.judge(&overdue, true);
        assert!(late.is_empty() && suspects.contains(&12));
        rescuer.suspects = suspects;
        assert_eq!(rescuer.judge(&overdue, true).0, [12]);
    }

    #[test]
    fn without_a_server_a_task_is_lent_at_once_and_once() {
        let overdue = parse("12 1 12001\n");
        let mut rescuer = Rescuer::default();
        assert_eq!(rescuer.judge(&overdue, false).0, [12]);
        rescuer.lent.push(Lent {
            tid: 12,
            run_ns: 0,
            until: Instant::now(),
        });
        assert!(rescuer.judge(&overdue, false).0.is_empty());
        rescuer.lent.clear();
    }
}
