//! Watch of the loaded scheduler: its slots and its exit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Context;
use crate::objects::Objects;
use crate::{ExitReport, slots};

/// Delay until an exit of the scheduler is seen.
const POLL: Duration = Duration::from_millis(50);
/// Interval of collections of slots whose cgroup or group is gone. It grows by its own length for
/// each `COLLECT_SLOTS` slots, because all slots are checked.
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);
/// Number of slots for which the interval of collections grows once.
const COLLECT_SLOTS: u32 = 64;

/// Watch of one load of the scheduler.
pub(super) struct Watch<'a> {
    context: &'a Context,
    objects: &'a Objects,
    collected: Instant,
}

impl<'a> Watch<'a> {
    pub fn new(context: &'a Context, objects: &'a Objects) -> Self {
        Self {
            context,
            objects,
            collected: Instant::now(),
        }
    }

    /// Watches until the scheduler is thrown out (returns its report) or `stop` is set (`None`).
    pub fn run(mut self, stop: &AtomicBool) -> Option<ExitReport> {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(POLL);
            if let Some(report) = self.objects.exited() {
                return Some(report);
            }
            self.collect(Instant::now());
        }
        None
    }

    fn collect(&mut self, now: Instant) {
        let slowdown = 1 + self.objects.shared.nr_slots_used() / COLLECT_SLOTS;
        let has_adopted = self.context.has_adopted.load(Ordering::Acquire);
        if now < self.collected + COLLECT_INTERVAL * slowdown || !has_adopted {
            return;
        }
        self.collected = now;
        let groups = self.context.groups.lock();
        let root = self.context.hierarchy.mount_point();
        let known = slots::cgroup_ids(&groups);
        slots::collect(self.objects, &groups, root, Some(&known));
    }
}
