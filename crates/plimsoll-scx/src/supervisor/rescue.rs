//! Tasks that have waited for so long that the kernel's watchdog would soon
//! throw the scheduler out.
//!
//! Behind normal work that never pauses, batch tasks run on the ext server's
//! time. Where there is none, or that does not help, a task that has waited for
//! longer than the scheduler itself lets it (TELL_OVERDUE_NS in
//! `src/bpf/control.bpf.h`) is lent to the fair class until it has run there. Its
//! cgroup is marked idle, so that this is harmless.
//!
//! It has to come back while it runs. The kernel's watchdog goes on counting from
//! when a task began to wait until it runs in our class, whatever it did
//! elsewhere, and changing the class of a task that runs makes it run in the new
//! one. So lent tasks are looked at often, and whoever did not run after all is
//! lent again at once.

use std::collections::{HashSet, VecDeque};
use std::io::Read as _;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link};
use plimsoll_engine::host::nr_cpus_online;
use plimsoll_engine::tasks::{self, LENT, Policy, TaskId};

use crate::bpf_intf::plimsoll_look;
use crate::ext_server::ExtServer;

/// How often it is looked for tasks that have waited for too long.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often it is looked whether lent tasks run. It is less than the slice that the
/// fair class gives them.
const CARE_INTERVAL: Duration = Duration::from_millis(2);
/// No more are looked at in one go; the next goes on with others.
const CARES_MAX: usize = 32;
/// A task that was not seen running, though it has run or sleeps, is tried that often.
const TRY_INTERVAL: Duration = Duration::from_secs(2);
/// But not one that the watchdog would bite for at once, if that looked just then. With
/// one CPU there is no other to see it from.
const LATE_NS: u64 = 20_000_000_000;
/// It may take that long to run once it is back.
const RUNS_WITHIN: Duration = Duration::from_millis(1);
/// For the watchdog it has run, if it says that it has waited for less.
const JUST_RAN_NS: u64 = 1_000_000_000;

/// One line of the scheduler's list of tasks that have waited for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overdue {
    tid: i32,
    waited_ms: u64,
}

/// What the scheduler's list says: lines "tid slot waited_ms", "tid slot lent" and
/// "tid slot promoted".
#[derive(Debug, Default)]
struct List {
    /// The longest wait first.
    overdue: Vec<Overdue>,
    lent: Vec<i32>,
    promoted: Vec<i32>,
}

fn parse(text: &str) -> List {
    let mut list = List::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [tid, _, what] = words[..] else { continue };
        let Ok(tid) = tid.parse() else { continue };
        match (what, what.parse()) {
            ("lent", _) => list.lent.push(tid),
            ("promoted", _) => list.promoted.push(tid),
            (_, Ok(waited_ms)) => list.overdue.push(Overdue { tid, waited_ms }),
            _ => (),
        }
    }
    list.overdue
        .sort_by_key(|task| std::cmp::Reverse(task.waited_ms));
    list
}

/// A task that is lent to the fair class.
#[derive(Debug)]
struct Lent {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
    /// What it had run then, or when it was tried last, and when that was.
    run_ns: u64,
    tried: Instant,
}

/// Looks after tasks that have waited for too long.
#[derive(Debug, Default)]
pub(super) struct Rescuer {
    looked: Option<Instant>,
    /// Seen the last time, when their CPU's server was started again.
    suspects: HashSet<TaskId>,
    /// Those first that were not looked at for longest.
    lent: VecDeque<Lent>,
    /// Tasks that run at once for holding a lock, at the last look.
    pub seen_promoted: Vec<i32>,
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
    pub fn tick(
        &mut self,
        now: Instant,
        list: &Link,
        servers: Option<&ExtServer>,
        look: impl Fn(i32) -> Option<plimsoll_look>,
    ) -> u64 {
        self.take_back(now, &look);
        if self
            .looked
            .is_some_and(|looked| now < looked + LOOK_INTERVAL)
        {
            return 0;
        }
        self.looked = Some(now);
        let List {
            overdue,
            lent,
            promoted,
        } = read_list(list).unwrap_or_default();
        self.adopt(&lent, now);
        self.seen_promoted = promoted;
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

    /// Lends tasks that are late for the watchdog as soon as they wake. Returns how
    /// many.
    pub fn lend_late(
        &mut self,
        tids: impl Iterator<Item = i32>,
        now: Instant,
        look: impl Fn(i32) -> Option<plimsoll_look>,
    ) -> u64 {
        // One that has run since has nothing to fear.
        let waits = |seen: plimsoll_look| seen.on_cpu == 0 && seen.waited_ns >= JUST_RAN_NS;
        let is_ours =
            |tid: &i32| tasks::policy(*tid) == Some(Policy::Ext) && look(*tid).is_some_and(waits);
        let tasks: Vec<TaskId> = tids.filter(is_ours).filter_map(TaskId::of).collect();
        let lent = tasks.into_iter().map(|task| self.lend(task, now));
        lent.map(u64::from).sum()
    }

    /// Takes over what another owner has lent, which was killed since.
    fn adopt(&mut self, tids: &[i32], now: Instant) {
        for task in tids.iter().copied().filter_map(TaskId::of) {
            if !self.lent.iter().any(|lent| lent.task == task) {
                self.lent
                    .push_back(Lent::new(task, tasks::SCHED_EXT, 0, now));
            }
        }
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
        self.lent.push_back(Lent::new(task, policy, run_ns, now));
        true
    }

    fn take_back(&mut self, now: Instant, look: &impl Fn(i32) -> Option<plimsoll_look>) {
        for _ in 0..self.lent.len().min(CARES_MAX) {
            let Some(mut lent) = self.lent.pop_front() else {
                return;
            };
            if lent.stays(now, look) {
                self.lent.push_back(lent);
            }
        }
    }
}

impl Lent {
    fn new(task: TaskId, policy: i32, run_ns: u64, tried: Instant) -> Self {
        Self {
            task,
            policy,
            run_ns,
            tried,
        }
    }

    /// Takes the task back, if it runs or will as soon as it wakes up. Returns
    /// whether it is lent still.
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
        // It may have left its group, been given another policy or ended, and
        // another has its number.
        if !tasks::is_lent(tid) || !self.task.exists() {
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
        // Unless somebody else has taken it meanwhile.
        let is_ours = || tasks::policy(tid) == Some(Policy::Ext) && self.task.exists();
        !is_back && is_ours() && tasks::set_policy(tid, LENT).is_ok()
    }
}

/// Whether a task that is back in our class runs in it, for the watchdog.
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

impl Drop for Rescuer {
    /// Whatever is lent goes back; undo looks for tasks of our policy.
    fn drop(&mut self) {
        for lent in &self.lent {
            if tasks::is_lent(lent.task.tid) && lent.task.exists() {
                let _ = tasks::set_policy(lent.task.tid, lent.policy);
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

    const TASK: TaskId = TaskId {
        tid: 12,
        start_time: 100,
    };
    const LATER: TaskId = TaskId {
        tid: 12,
        start_time: 200,
    };

    fn lent(task: TaskId) -> Lent {
        Lent::new(task, tasks::SCHED_EXT, 0, Instant::now())
    }

    #[test]
    fn a_lent_task_is_kept_until_it_runs_and_let_go_when_it_has_ended() {
        let waits = |tid: i32| {
            Some(plimsoll_look {
                tid: tid.cast_unsigned(),
                waited_ns: 12 * JUST_RAN_NS,
                ..NO_LOOK
            })
        };
        let mut rescuer = Rescuer::default();
        assert_eq!(rescuer.wait(TRY_INTERVAL), TRY_INTERVAL);
        rescuer.lent.push_back(lent(TASK));
        let now = Instant::now();
        assert_eq!(rescuer.wait(TRY_INTERVAL), CARE_INTERVAL);
        rescuer.take_back(now, &waits);
        assert_eq!(rescuer.lent.len(), 1);
        rescuer.take_back(now, &|_| None);
        assert!(rescuer.lent.is_empty());
    }

    #[test]
    fn what_a_killed_owner_has_lent_is_taken_over_once() {
        let own = std::process::id().cast_signed();
        let mut rescuer = Rescuer::default();
        rescuer.adopt(&[own, i32::MAX], Instant::now());
        rescuer.adopt(&[own], Instant::now());
        let tids: Vec<i32> = rescuer.lent.iter().map(|lent| lent.task.tid).collect();
        assert_eq!(tids, [own]);
        rescuer.lent.clear();
    }

    #[test]
    fn many_lent_tasks_are_looked_at_in_turns() {
        let mut rescuer = Rescuer::default();
        let tids = 1..=3 * i32::try_from(CARES_MAX).unwrap() / 2;
        let all = tids.map(|tid| TaskId {
            tid,
            start_time: 100,
        });
        rescuer.lent.extend(all.map(lent));
        let seen = std::cell::RefCell::new(HashSet::new());
        let look = |tid: i32| {
            seen.borrow_mut().insert(tid);
            Some(plimsoll_look {
                tid: tid.cast_unsigned(),
                waited_ns: 0,
                ..NO_LOOK
            })
        };
        rescuer.take_back(Instant::now(), &look);
        assert_eq!(seen.borrow().len(), CARES_MAX);
        rescuer.take_back(Instant::now(), &look);
        assert_eq!(seen.borrow().len(), 3 * CARES_MAX / 2);
        rescuer.lent.clear();
    }

    #[test]
    fn the_longest_wait_comes_first_and_garbage_is_skipped() {
        let text = "12 1 22001\n\nx y z\n13 4\n15 3 lent\n14 2 25000\nx 1 lent\n16 1 promoted\n";
        let list = parse(text);
        let tids: Vec<i32> = list.overdue.iter().map(|task| task.tid).collect();
        assert_eq!((&tids[..], &list.lent[..]), (&[14, 12][..], &[15][..]));
        assert_eq!(list.promoted, [16]);
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
        rescuer.lent.push_back(lent(TASK));
        assert!(rescuer.judge(&[TASK], false).0.is_empty());
        assert_eq!(rescuer.judge(&[LATER], false).0, [LATER]);
        rescuer.lent.clear();
    }
}
