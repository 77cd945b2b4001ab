//! Throttled tasks: runnable, but off the queues until their group has quota or
//! per-CPU limit again.
//!
//! When a group may run again, one of its throttled tasks is queued, and the
//! next one when that one leaves the queue. The queued task always has the
//! least virtual runtime, so the order is the same as if all were queued at
//! once; but the cost is that of the tasks that run, not of all tasks of the
//! group.

use super::engine::Host;
use super::group::Group;
use super::observe::Observer;
use super::runqueue::{RunQueue, Waiting};
use super::task::{NONE, State};

/// The reason why tasks of a group are throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Throttle {
    /// No runtime of the group on a CPU.
    Quota(u32),
    /// The limit of a CPU that the tasks are bound to is used up.
    Limit(u32),
    /// The limit is used up on all CPUs of a cache.
    Cache(u32),
}

/// Tasks of a group that are throttled for the same reason, by virtual runtime.
#[derive(Debug, Clone)]
pub(super) struct ThrottledTasks {
    tasks: RunQueue,
    /// The task that was queued again and is still in its queue.
    requeued: u32,
    /// Number of these tasks that count in the length of queue `home`.
    counted: u32,
    home: u32,
}

impl ThrottledTasks {
    pub(super) fn new() -> Self {
        Self {
            tasks: RunQueue::default(),
            requeued: NONE,
            counted: 0,
            home: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl Group {
    pub(super) fn throttled_tasks(&mut self, reason: Throttle) -> &mut ThrottledTasks {
        match reason {
            Throttle::Quota(cpu) => &mut self.on_cpu[cpu as usize].throttled,
            Throttle::Limit(cpu) => &mut self.on_cpu[cpu as usize].limited,
            Throttle::Cache(llc) => &mut self.limited[llc as usize],
        }
    }

    /// Whether tasks that were throttled for a reason may run now.
    fn may_run(&self, reason: Throttle, cpus_per_llc: u32) -> bool {
        match reason {
            Throttle::Quota(cpu) => !self.lanes[cpu as usize].is_throttled(),
            Throttle::Limit(cpu) => self.is_below_limit_on(cpu),
            Throttle::Cache(llc) => {
                let start = llc * cpus_per_llc;
                let below_limit = self.below_limit.as_ref();
                below_limit.is_some_and(|below_limit| {
                    below_limit
                        .next_within(start, start, start + cpus_per_llc)
                        .is_some()
                })
            }
        }
    }
}

impl<O: Observer> Host<O> {
    /// Throttles a task that was just dequeued.
    pub(super) fn throttle(&mut self, task: u32, reason: Throttle) {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        let own = &self.tasks[task as usize];
        let (group, vruntime) = (own.group, own.vruntime);
        let throttled = self.groups[group as usize].throttled_tasks(reason);
        throttled.tasks.push(Waiting {
            vruntime,
            task,
            ticket,
        });
        if let Throttle::Cache(llc) = reason {
            self.groups[group as usize].limited_llcs.set(llc, true);
        }
        self.throttle_changed(group, reason);
    }

    /// Updates the counts after a throttle reason or its tasks have changed. A
    /// task that may run again is queued only after the current reschedule,
    /// because the CPU may just have refused it.
    pub(super) fn throttle_changed(&mut self, group: u32, reason: Throttle) {
        self.count_throttled(group, reason);
        self.pending_unthrottles.push((group, reason));
    }

    /// Counts the tasks that may run again in the length of their queue.
    pub(super) fn count_throttled(&mut self, group: u32, reason: Throttle) {
        let own = &mut self.groups[group as usize];
        let may_run = own.may_run(reason, self.machine.cpus_per_llc);
        let throttled = own.throttled_tasks(reason);
        if throttled.counted == 0
            && let Some(first) = throttled.tasks.first()
        {
            throttled.home = self.tasks[first.task as usize].home;
        }
        let counts = if may_run {
            throttled.tasks.len() as u32
        } else {
            0
        };
        let nr_throttled = &mut self.nr_throttled[throttled.home as usize];
        *nr_throttled = *nr_throttled + counts - throttled.counted;
        throttled.counted = counts;
    }

    /// Moves tasks to idle CPUs of other caches while no CPU of their own cache
    /// is idle and within the limit.
    fn migrate_throttled(&mut self, group: u32, llc: u32) {
        loop {
            let own = &mut self.groups[group as usize];
            let first = own.throttled_tasks(Throttle::Cache(llc)).tasks.first();
            let Some(task) = first.map(|waiting| waiting.task) else {
                return;
            };
            let near = self.tasks[task as usize].cpu;
            let size = self.machine.cpus_per_llc;
            let (start, end) = (llc * size, (llc + 1) * size);
            if self.best_idle(task, near, start, end).is_some() {
                return;
            }
            let Some(cpu) = self.best_idle(task, near, 0, self.machine.cpus) else {
                return;
            };
            if !self
                .batch_grant
                .may_start(self.idle.count() - 1, self.clock.now_ns)
            {
                return;
            }
            self.take_throttled(group, Throttle::Cache(llc));
            self.rejoin(task);
            self.queue(task, cpu);
            self.kick_cpu(task, cpu);
        }
    }

    /// An idle CPU takes a task that is throttled in another cache and within
    /// the limit of this CPU. Tries a few groups, starting with another one
    /// each time.
    pub(super) fn pull_throttled(&mut self, cpu: u32) -> Option<u32> {
        const GROUPS_MAX: usize = 4;
        let nr_groups = self.limited_groups.len();
        for step in 0..nr_groups.min(GROUPS_MAX) {
            let reason = (self.rotation as usize).wrapping_add(step) % nr_groups;
            let index = self.limited_groups[reason];
            let group = &self.groups[index as usize];
            if !group.is_below_limit_on(cpu) {
                continue;
            }
            let llc = self.llc_of(cpu);
            if let Some(other) = group.limited_llcs.next_from(llc)
                && let Some(task) = self.take_throttled(index, Throttle::Cache(other))
            {
                self.rejoin(task);
                self.queue(task, cpu);
                return self.take_batch(cpu);
            }
        }
        if nr_groups > GROUPS_MAX {
            self.rotation = self.rotation.wrapping_add(1);
        }
        None
    }

    /// Queues throttled tasks that may run again, one for each reason.
    pub(super) fn unthrottle_pending(&mut self) {
        while let Some((group, reason)) = self.pending_unthrottles.pop() {
            self.unthrottle_one(group, reason);
        }
    }

    /// Queues one throttled task if it may run and no other of the same reason
    /// is queued.
    pub(super) fn unthrottle_one(&mut self, group: u32, reason: Throttle) {
        let own = &mut self.groups[group as usize];
        if own.throttled_tasks(reason).requeued != NONE {
            return;
        }
        let may_run = own.may_run(reason, self.machine.cpus_per_llc);
        if let Throttle::Cache(llc) = reason {
            self.migrate_throttled(group, llc);
        }
        if !may_run {
            return;
        }
        let Some(task) = self.take_throttled(group, reason) else {
            return;
        };
        self.groups[group as usize].throttled_tasks(reason).requeued = task;
        let cpu = match reason {
            Throttle::Quota(cpu) | Throttle::Limit(cpu) => cpu,
            Throttle::Cache(_) => self.tasks[task as usize].cpu,
        };
        self.rejoin(task);
        self.queue(task, cpu);
        self.kick_cpu(task, cpu);
    }

    /// Removes the first task that is throttled for a reason.
    pub(super) fn take_throttled(&mut self, group: u32, reason: Throttle) -> Option<u32> {
        let throttled = self.groups[group as usize].throttled_tasks(reason);
        let task = throttled.tasks.pop()?.task;
        let is_last = throttled.tasks.is_empty();
        if is_last && let Throttle::Cache(llc) = reason {
            self.groups[group as usize].limited_llcs.set(llc, false);
        }
        self.count_throttled(group, reason);
        debug_assert_eq!(self.tasks[task as usize].state, State::Parked);
        Some(task)
    }

    /// Called when a task leaves its queue. If it was a throttled task, the
    /// next one is queued.
    pub(super) fn dequeued(&mut self, task: u32) {
        let own = &self.tasks[task as usize];
        let (index, cpu) = (own.group, own.cpu);
        let group = &mut self.groups[index as usize];
        let Some(part) = group.on_cpu.get_mut(cpu as usize) else {
            return;
        };
        if own.home < self.machine.cpus {
            part.nr_queued -= 1;
        }
        let llc = cpu / self.machine.cpus_per_llc;
        let nr_reasons = if group.limit_ppm.is_some() { 3 } else { 1 };
        for reason in [
            Throttle::Quota(cpu),
            Throttle::Limit(cpu),
            Throttle::Cache(llc),
        ]
        .into_iter()
        .take(nr_reasons)
        {
            let throttled = self.groups[index as usize].throttled_tasks(reason);
            if throttled.requeued == task {
                throttled.requeued = NONE;
                self.pending_unthrottles.push((index, reason));
            }
        }
    }
}
