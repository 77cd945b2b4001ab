//! Scheduling policies that tasks had before a BPF scheduler took them.
//!
//! Only exceptions to the kernel's rule are recorded: a new task inherits the policy
//! of the task that started it.

use std::collections::hash_map::Entry::Vacant;
use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::journal::Entry;
use crate::tasks::{self, TaskId};

/// Largest number of ancestors searched.
const GENERATIONS_MAX: usize = 64;

/// Policies to restore.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// Policy of tasks without a known one.
    default: i32,
    /// By number: start time and policy.
    known: HashMap<i32, (u64, i32)>,
}

impl Policies {
    /// Creates an empty set. `default` is a policy of the fair class.
    pub fn new(default: i32) -> Self {
        Self {
            default,
            known: HashMap::new(),
        }
    }

    /// Adds the policies recorded in a journal.
    #[must_use]
    pub fn with(mut self, entries: &[Entry]) -> Self {
        for entry in entries {
            if let Entry::Repolicy {
                tid,
                start_time,
                old,
            } = *entry
            {
                self.remember(TaskId { tid, start_time }, old);
            }
        }
        self
    }

    /// Policy to restore for tasks without a known one.
    pub fn default_policy(&self) -> i32 {
        self.default
    }

    /// Records that `task` had `policy`.
    pub fn remember(&mut self, task: TaskId, policy: i32) {
        self.known.insert(task.tid, (task.start_time, policy));
    }

    /// Returns the policy to restore for a task: its own, else that of its nearest known
    /// ancestor. A parent that has exited is not known any more.
    pub fn of(&self, tid: i32) -> i32 {
        self.inherited(tid, TaskId::of, tasks::inherits_from)
    }

    fn inherited(
        &self,
        tid: i32,
        task_of: impl Fn(i32) -> Option<TaskId>,
        inherits_from: impl Fn(i32) -> Option<i32>,
    ) -> i32 {
        // The common case costs nothing.
        if self.known.is_empty() {
            return self.default;
        }
        let line = std::iter::successors(Some(tid), |tid| inherits_from(*tid));
        let own = |tid: i32| {
            let (start_time, policy) = *self.known.get(&tid)?;
            (task_of(tid)?.start_time == start_time).then_some(policy)
        };
        line.take_while(|tid| *tid > 0)
            .take(GENERATIONS_MAX)
            .find_map(own)
            .unwrap_or(self.default)
    }

    /// Records the policies to restore for these tasks while their parents still exist.
    /// `tids` are all tasks; all others are forgotten.
    pub fn adopt(&mut self, tids: &[i32]) {
        if self.known.is_empty() {
            return;
        }
        let present: HashSet<i32> = tids.iter().copied().collect();
        let new: Vec<(TaskId, i32)> = tids
            .iter()
            .filter(|tid| !self.known.contains_key(tid))
            .filter_map(|tid| Some((TaskId::of(*tid)?, self.of(*tid))))
            .collect();
        self.known.retain(|tid, _| present.contains(tid));
        for (task, policy) in new {
            if let Vacant(place) = self.known.entry(task.tid) {
                place.insert((task.start_time, policy));
            }
        }
    }

    /// Gives a task that has the scheduler's policy, or is lent, its own back.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn give_back(&self, tid: i32) -> Result<()> {
        let flags = match tasks::policy_number(tid) {
            // Drops the reset-on-fork flag of away tasks: it only marks them.
            None => 0,
            Some(number) if tasks::is_away(tid, number) => 0,
            Some(number) => number & libc::SCHED_RESET_ON_FORK,
        };
        tasks::set_policy(tid, self.of(tid) | flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ← 10 ← 20 ← 30, each as old as its number.
    fn policy_of(policies: &Policies, tid: i32) -> i32 {
        let task_of = |tid: i32| {
            Some(TaskId {
                tid,
                start_time: tid.unsigned_abs().into(),
            })
        };
        let parent = |tid| match tid {
            30 => Some(20),
            20 => Some(10),
            10 => Some(1),
            _ => Some(0),
        };
        policies.inherited(tid, task_of, parent)
    }

    fn policies(known: &[(i32, u64, i32)]) -> Policies {
        let entries: Vec<Entry> = known
            .iter()
            .map(|&(tid, start_time, old)| Entry::Repolicy {
                tid,
                start_time,
                old,
            })
            .collect();
        Policies::new(libc::SCHED_OTHER).with(&entries)
    }

    #[test]
    fn children_get_back_what_their_nearest_known_ancestor_had() {
        let policies = policies(&[(10, 10, libc::SCHED_IDLE), (20, 20, libc::SCHED_OTHER)]);
        assert_eq!(policy_of(&policies, 10), libc::SCHED_IDLE);
        assert_eq!(policy_of(&policies, 30), libc::SCHED_OTHER);
        assert_eq!(policy_of(&policies, 1), libc::SCHED_OTHER);
        let without = Policies::new(libc::SCHED_BATCH);
        assert_eq!(policy_of(&without, 30), libc::SCHED_BATCH);
    }

    #[test]
    fn a_later_task_of_the_same_number_gets_nothing_of_an_earlier_one() {
        let policies = policies(&[(20, 19, libc::SCHED_IDLE)]);
        assert_eq!(policy_of(&policies, 20), libc::SCHED_OTHER);
        assert_eq!(policy_of(&policies, 30), libc::SCHED_OTHER);
    }

    #[test]
    fn a_child_keeps_what_it_inherited_when_its_parent_is_gone() {
        let parent = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let tid = child.id().cast_signed();
        let mut policies = Policies::default();
        policies.remember(TaskId::of(parent).unwrap(), libc::SCHED_IDLE);
        policies.adopt(&[parent, tid]);
        policies.adopt(&[tid]);
        assert_eq!(policies.known.len(), 1);
        assert_eq!(policies.of(tid), libc::SCHED_IDLE);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
