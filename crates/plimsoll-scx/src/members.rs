//! The tasks of a group: they get the scheduler's policy, also those that
//! come later.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_engine::cgroup::threads_below;
use plimsoll_engine::tasks::{self, Policy, SCHED_EXT};

/// A task that the leader has lent to the fair class is back after this time;
/// until then it is left alone. Longer than a rescue takes.
const LENT_MAX: Duration = Duration::from_secs(3);

/// What was seen of the tasks of one group.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Told of: real-time tasks and those that cannot be moved.
    told: HashSet<i32>,
    /// Since when a task is seen lent to the fair class.
    lent: HashMap<i32, Instant>,
}

impl Members {
    /// Gives every task of a cgroup, and of all below it, the scheduler's
    /// policy. Returns what people should know.
    pub fn sweep(&mut self, folder: &Path, now: Instant) -> Vec<String> {
        let tids = threads_below(folder);
        let mut messages = Vec::new();
        let mut lent = HashMap::new();
        for tid in &tids {
            let seen = tasks::policy(*tid);
            if seen == Some(Policy::Fair) && tasks::is_lent(*tid) {
                let since = *self.lent.get(tid).unwrap_or(&now);
                if now.saturating_duration_since(since) < LENT_MAX {
                    lent.insert(*tid, since);
                    continue;
                }
            }
            messages.extend(self.take(*tid, seen));
        }
        self.lent = lent;
        if self.told.len() > tids.len() {
            self.told.retain(|tid| tids.contains(tid));
        }
        messages
    }

    fn take(&mut self, tid: i32, seen: Option<Policy>) -> Option<String> {
        let problem = match seen {
            None | Some(Policy::Ext) => return None,
            Some(Policy::Fair) => tasks::set_policy(tid, SCHED_EXT).err()?.to_string(),
            Some(Policy::Other) => "its real-time policy stays, no knob holds for it".into(),
        };
        self.told
            .insert(tid)
            .then(|| format!("task {tid}: {problem}"))
    }
}
