//! The tasks of a group: they get the scheduler's policy, also those that
//! come later. What they had is remembered.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plimsoll_cgroupfs::threads_below;
use plimsoll_engine::journal::Entry;
use plimsoll_engine::policies::Policies;
use plimsoll_engine::tasks::{self, LENT, Policy, SCHED_EXT, TaskId};

/// A task of a group that has not the scheduler's policy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    task: TaskId,
    /// The kernel's number of its policy, with flags.
    policy: i32,
}

/// What was seen of the tasks of one group.
#[derive(Debug)]
pub(crate) struct Members {
    /// Told of: real-time tasks and those that cannot be moved.
    told: HashSet<TaskId>,
    /// What they get back.
    pub policies: Policies,
}

impl Members {
    /// `policies`: what is known of them.
    pub fn new(policies: Policies) -> Self {
        Self {
            told: HashSet::new(),
            policies,
        }
    }

    /// Looks for tasks of a cgroup, and of all below it but for the groups `apart`,
    /// that are to get the scheduler's policy. One that the owner has lent to the fair class, as
    /// `is_lent` says of its number and policy, is the owner's to take back.
    pub fn look(
        &mut self,
        folder: &Path,
        apart: &[PathBuf],
        is_lent: impl Fn(i32, i32) -> bool,
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
            if !is_lent(*tid, policy) {
                found.push(Found { task, policy });
            }
        }
        self.policies.adopt(&tids);
        if self.told.len() > tids.len() {
            self.told.retain(|task| tids.contains(&task.tid));
        }
        found
    }

    /// What has to be written down before [`Members::take`]: policies that
    /// nobody would guess.
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

    /// Gives tasks the scheduler's policy, as [`policy_of_member`] has it. Returns
    /// what people should know.
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
            "its real-time policy stays, no knob holds for it".into()
        } else if task.exists() {
            let wanted = policy_of_member(policy, is_late(task.tid));
            tasks::set_policy(task.tid, wanted).err()?.to_string()
        } else {
            return None;
        };
        self.told
            .insert(task)
            .then(|| format!("task {}: {problem}", task.tid))
    }
}

/// The policy of a task of a group that had another. One that `is_late` for the
/// kernel's watchdog is lent to the fair class, and the owner takes it when it runs.
pub(crate) fn policy_of_member(policy: i32, is_late: bool) -> i32 {
    if is_late {
        LENT
    } else {
        SCHED_EXT | flags_of(policy)
    }
}

/// The flags of a policy that are the task's own.
fn flags_of(policy: i32) -> i32 {
    match policy {
        LENT => 0,
        number => number & libc::SCHED_RESET_ON_FORK,
    }
}

/// The policy of the fair class that a task has by itself. `None`: it has
/// another, or is lent.
fn own_policy(policy: i32) -> Option<i32> {
    let is_own = policy != LENT && Policy::of(policy) == Policy::Fair;
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
    fn only_what_nobody_would_guess_is_written_down() {
        let members = Members::new(Policies::new(libc::SCHED_OTHER));
        let all = [libc::SCHED_OTHER, libc::SCHED_FIFO, LENT].map(found);
        assert!(members.to_record(&all).is_empty());
        let idle = found(libc::SCHED_IDLE | libc::SCHED_RESET_ON_FORK);
        let entries = members.to_record(&[idle]);
        let expected = Entry::Repolicy {
            tid: idle.task.tid,
            start_time: idle.task.start_time,
            old: libc::SCHED_IDLE,
        };
        assert_eq!(entries, [expected]);
        // Started from where that is the rule.
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
