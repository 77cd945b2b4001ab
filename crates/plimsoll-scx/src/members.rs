//! The tasks of a group: all get the scheduler's policy, including later ones. Their former
//! policies are recorded.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::threads_below;
use plimsoll_engine::journal::Entry;
use plimsoll_engine::policies::Policies;
use plimsoll_engine::tasks::{self, FALLBACK, Policy, SCHED_EXT, TaskId};

/// A task of a group without the scheduler's policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
}

/// State of the tasks of one group.
#[derive(Debug)]
pub(crate) struct Members {
    /// Reported tasks: real-time tasks and those that cannot be moved.
    reported: HashSet<TaskId>,
    /// The policies to restore.
    pub policies: Policies,
}

impl Members {
    /// `policies`: the known policies of the tasks.
    pub fn new(policies: Policies) -> Self {
        Self {
            reported: HashSet::new(),
            policies,
        }
    }

    /// Finds tasks of a cgroup, and of all below it except the groups `apart`, that should get the
    /// scheduler's policy. Skips tasks that the owner has moved to another class (`is_moved`, given
    /// thread id and policy): the owner moves them back.
    pub fn look(
        &mut self,
        folder: &Path,
        apart: &[PathBuf],
        is_moved: impl Fn(i32, i32) -> bool,
    ) -> Vec<Found> {
        let tids = threads_below(folder, apart);
        let mut found = Vec::new();
        for tid in &tids {
            let policy = tasks::policy_number(*tid);
            let Some(policy) = policy.filter(|number| Policy::of(*number) != Policy::Ext) else {
                continue;
            };
            let Some(task) = TaskId::of(*tid) else {
                continue;
            };
            if !is_moved(*tid, policy) {
                found.push(Found { task, policy });
            }
        }
        self.policies.adopt(&tids);
        if self.reported.len() > tids.len() {
            self.reported.retain(|task| tids.contains(&task.tid));
        }
        found
    }

    /// Entries to record before [`Members::take`]: policies other than the default.
    pub fn to_record(&self, found: &[Found]) -> Vec<Entry> {
        let entry = |found: &Found| {
            let old = own_policy(found.policy)?;
            (old != self.policies.of(found.task.tid)).then_some(Entry::Repolicy {
                tid: found.task.tid,
                start_time: found.task.start_time,
                old,
            })
        };
        found.iter().filter_map(entry).collect()
    }

    /// Sets the policy of tasks by [`policy_of_member`]. Returns messages for the user.
    pub fn take(
        &mut self,
        found: &[Found],
        recorded: &[Entry],
        is_late: impl Fn(i32) -> bool,
    ) -> Vec<String> {
        for entry in recorded {
            if let Entry::Repolicy {
                tid,
                start_time,
                old,
            } = *entry
            {
                self.policies.remember(TaskId { tid, start_time }, old);
            }
        }
        found
            .iter()
            .filter_map(|found| self.take_one(found, &is_late))
            .collect()
    }

    fn take_one(&mut self, found: &Found, is_late: impl Fn(i32) -> bool) -> Option<String> {
        let Found { task, policy } = *found;
        let problem = if Policy::of(policy) == Policy::Other {
            "its real-time policy is kept, no knob applies to it".into()
        } else if task.exists() {
            let wanted = policy_of_member(policy, is_late(task.tid));
            tasks::set_policy(task.tid, wanted).err()?.to_string()
        } else {
            return None;
        };
        self.reported
            .insert(task)
            .then(|| format!("task {}: {problem}", task.tid))
    }
}

/// The policy for a task of a group that has another. A task that is late for the kernel's watchdog
/// (`is_late`) first falls back to the fair class; the owner moves it when it runs.
pub(crate) fn policy_of_member(policy: i32, is_late: bool) -> i32 {
    if is_late {
        FALLBACK
    } else {
        SCHED_EXT | flags_of(policy)
    }
}

/// The flags of a policy that are the task's own.
fn flags_of(policy: i32) -> i32 {
    match policy {
        FALLBACK => 0,
        number => number & libc::SCHED_RESET_ON_FORK,
    }
}

/// The fair-class policy of a task. `None`: it has another, or is in the fallback.
fn own_policy(policy: i32) -> Option<i32> {
    let is_own = policy != FALLBACK && Policy::of(policy) == Policy::Fair;
    is_own.then_some(policy & !libc::SCHED_RESET_ON_FORK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(policy: i32) -> Found {
        Found {
            task: TaskId::of(std::process::id().cast_signed()).unwrap(),
            policy,
        }
    }

    #[test]
    fn only_policies_other_than_the_default_are_recorded() {
        let members = Members::new(Policies::new(libc::SCHED_OTHER));
        let all = [libc::SCHED_OTHER, libc::SCHED_FIFO, FALLBACK].map(found);
        assert!(members.to_record(&all).is_empty());
        let idle = found(libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK);
        let entries = members.to_record(&[idle]);
        let expected = Entry::Repolicy {
            tid: idle.task.tid,
            start_time: idle.task.start_time,
            old: libc::SCHED_IDLE,
        };
        assert_eq!(entries, [expected]);
        // The test may have been started with this policy.
        let idle_by_birth = Members::new(Policies::new(libc::SCHED_IDLE));
        assert!(idle_by_birth.to_record(&[idle]).is_empty());
    }

    #[test]
    fn a_task_that_has_become_another_is_left_alone() {
        let mut members = Members::new(Policies::default());
        let mut later = found(libc::SCHED_OTHER);
        later.task.start_time -= 1;
        let before = tasks::policy_number(later.task.tid);
        assert!(members.take(&[later], &[], |_| false).is_empty());
        assert_eq!(tasks::policy_number(later.task.tid), before);
    }
}
