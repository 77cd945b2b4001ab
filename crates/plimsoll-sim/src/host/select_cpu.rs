//! Selects the CPU on which a waking task is queued, and kicks CPUs that should
//! run it.

use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_policy::batch;

use super::FAIR_SLICE_NS;
use super::engine::Host;
use super::observe::Observer;
use super::runqueue::Waiting;
use super::task::{NONE, State};

/// A waking task preempts only a task that is ahead of it by more than this.
/// Without the margin, two tasks would preempt each other at every wake-up.
const WAKEUP_GRANULARITY_NS: u64 = NSEC_PER_MSEC;

impl<O: Observer> Host<O> {
    /// Wakes a sleeping task that has work again.
    pub(super) fn wake(&mut self, task: u32) {
        self.becomes_runnable(task);
        let cpu = self.select_cpu(task);
        self.rejoin(task);
        self.queue(task, cpu);
        self.kick_cpu(task, cpu);
    }

    /// Starts a new task one slice behind the waiting ones, so that a stream of
    /// short tasks cannot starve them.
    pub(super) fn begin_task(&mut self, task: u32) {
        self.becomes_runnable(task);
        let cpu = self.select_cpu(task);
        let home = self.home_of(task, cpu);
        let behind = self.vruntime_moved(task, self.slice_ns_of(task));
        let own = &mut self.tasks[task as usize];
        own.home = home;
        own.vruntime = self.minima[home as usize].wrapping_add(behind);
        self.queue(task, cpu);
        self.kick_cpu(task, cpu);
    }

    fn becomes_runnable(&mut self, task: u32) {
        let own = &mut self.tasks[task as usize];
        own.runnable_ns = self.clock.now_ns;
        self.groups[own.group as usize].weight_sum += u64::from(own.weight);
    }

    fn slice_ns_of(&self, task: u32) -> u64 {
        if self.is_batch(task) {
            batch::SLICE_DEFAULT_NS
        } else {
            FAIR_SLICE_NS
        }
    }

    /// Sets the virtual runtime of a task that joins a queue: its old value,
    /// but at most one slice before the queue's minimum.
    pub(super) fn rejoin(&mut self, task: u32) {
        let slice = self.vruntime_moved(task, self.slice_ns_of(task));
        let own = &mut self.tasks[task as usize];
        let least = self.minima[own.home as usize];
        // The slice is already scaled by the group's weight, so the weight here
        // is that of nice 0.
        own.vruntime = batch::place(own.vruntime, least, slice, batch::WEIGHT_NICE_0);
    }

    fn home_of(&self, task: u32, cpu: u32) -> u32 {
        if self.is_batch(task) {
            self.machine.cpus + self.llc_of(cpu)
        } else {
            cpu
        }
    }

    /// Puts a runnable task into the queue of its class: that of `cpu`, or of
    /// the cache of `cpu`.
    pub(super) fn queue(&mut self, task: u32, cpu: u32) {
        let is_batch = self.is_batch(task);
        let home = self.home_of(task, cpu);
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        let own = &mut self.tasks[task as usize];
        if own.home != home {
            let (from, to) = (self.minima[own.home as usize], self.minima[home as usize]);
            own.vruntime = batch::migrate(own.vruntime, from, to);
            own.home = home;
        }
        own.state = State::Queued;
        own.ticket = ticket;
        own.cpu = cpu;
        let waiting = Waiting {
            vruntime: own.vruntime,
            task,
            ticket,
        };
        if !is_batch {
            let group = &mut self.groups[own.group as usize];
            if let Some(part) = group.on_cpu.get_mut(cpu as usize) {
                part.nr_queued += 1;
            }
            let queues = &mut self.cpus[cpu as usize];
            if own.pinned {
                queues.fair_bound.push(waiting);
            } else {
                queues.fair.push(waiting);
            }
            self.fair_changes(cpu);
        } else if own.pinned {
            self.cpus[cpu as usize].bound.push(waiting);
            self.bound_waits.set(cpu, true);
        } else {
            let llc = self.llc_of(cpu);
            self.shared[llc as usize].push(waiting);
            self.batch_waits.set(llc, true);
            self.nr_shared += 1;
        }
    }

    /// Selects the CPU for a task that becomes runnable.
    pub(super) fn select_cpu(&mut self, task: u32) -> u32 {
        let own = &self.tasks[task as usize];
        let last = own.cpu;
        let group = &self.groups[own.group as usize];
        let here = || self.free.contains(last) && group.is_below_limit_on(last);
        if own.pinned || here() && !self.prefers_another_core(last) {
            return last;
        }
        let llc = self.machine.cpus_per_llc;
        let (start, end) = (last - last % llc, last - last % llc + llc);
        if let Some(cpu) = self.best_idle(task, last, start, end) {
            return cpu;
        }
        let is_batch = self.is_batch(task);
        if !is_batch {
            // A CPU that runs only batch work counts as idle.
            if let Some(cpu) = self.yielding.next_within(last, start, end) {
                return cpu;
            }
        }
        if let Some(cpu) = self.best_idle(task, last, 0, self.machine.cpus) {
            return cpu;
        }
        if !is_batch && let Some(cpu) = self.yielding.next_from(last) {
            return cpu;
        }
        last
    }

    /// Reserves a CPU for a task on its way there, so that no other task selects
    /// it as idle.
    pub(super) fn reserve(&mut self, cpu: u32) {
        self.free.set(cpu, false);
        self.free_cores
            .set(cpu - cpu % self.machine.threads_per_core, false);
    }

    /// Marks a CPU idle, with no task on its way there.
    pub(super) fn mark_idle(&mut self, cpu: u32) {
        self.free.set(cpu, true);
        let threads = self.machine.threads_per_core;
        let first = cpu - cpu % threads;
        let is_free = (first..first + threads).all(|sibling| self.free.contains(sibling));
        self.free_cores.set(first, is_free);
    }

    /// Whether an idle CPU has a busy sibling while a whole core is idle in the
    /// same cache.
    fn prefers_another_core(&self, cpu: u32) -> bool {
        let threads = self.machine.threads_per_core;
        threads > 1 && !self.free_cores.contains(cpu - cpu % threads) && self.free_cores.count() > 0
    }

    /// Best idle CPU of `start .. end`, which contains `last`: not reserved,
    /// and within the limit of the task's group. The core decides the order,
    /// which prefers a core that is idle as a whole.
    pub(super) fn best_idle(&self, task: u32, last: u32, start: u32, end: u32) -> Option<u32> {
        let group = &self.groups[self.tasks[task as usize].group as usize];
        let below_limit = group.below_limit.as_ref();
        let any = self.free.next_of_both(below_limit, last, start, end)?;
        let threads = self.machine.threads_per_core;
        if threads == 1 {
            return Some(any);
        }
        let whole = self.free_cores.next_of_both(below_limit, last, start, end);
        let Some(whole) = whole else {
            return Some(any);
        };
        let known = |core_idle| batch::Cpu {
            core_idle,
            room_ppm: plimsoll_policy::PPM as u32,
            ..batch::Cpu::default()
        };
        let any_is_whole = self.free_cores.contains(any - any % threads);
        let better = batch::better_cpu(&known(true), &known(any_is_whole), batch::SLICE_DEFAULT_NS);
        Some(if better { whole } else { any })
    }

    /// Kicks the CPU that should run a task just queued on `cpu`.
    pub(super) fn kick_cpu(&mut self, task: u32, cpu: u32) {
        if self.is_batch(task) {
            self.kick_idle_cpu(task);
            return;
        }
        let own = &self.cpus[cpu as usize];
        if own.current == NONE || own.batch {
            self.reserve(cpu);
            self.must_choose(cpu);
            return;
        }
        self.charge(cpu, true);
        let current = self.cpus[cpu as usize].current;
        let margin = self.vruntime_moved(task, WAKEUP_GRANULARITY_NS);
        let waking = self.tasks[task as usize].vruntime.wrapping_add(margin);
        if batch::before(waking, self.tasks[current as usize].vruntime) {
            self.cpus[cpu as usize].give_way = true;
            self.must_choose(cpu);
        } else if self.free.count() > 0 && !self.tasks[task as usize].pinned {
            // The task waits here although CPUs elsewhere are idle: one of them
            // may take it.
            self.set_pull_timer();
        }
    }

    /// Kicks an idle CPU that may run a batch task that waits, if there is one.
    pub(super) fn kick_idle_cpu(&mut self, task: u32) {
        let now_ns = self.clock.now_ns;
        let own = &self.tasks[task as usize];
        if !self.is_batch(task) || own.state != State::Queued || self.idle.count() == 0 {
            return;
        }
        if !self.batch_grant.may_start(self.idle.count() - 1, now_ns) {
            return;
        }
        let (cpu, pinned) = (own.cpu, own.pinned);
        if pinned {
            if self.idle.contains(cpu) {
                self.reserve(cpu);
                self.must_choose(cpu);
            }
            return;
        }
        let llc = self.machine.cpus_per_llc;
        let start = cpu - cpu % llc;
        match self.best_idle(task, cpu, start, start + llc) {
            Some(idle) => {
                self.reserve(idle);
                self.must_choose(idle);
            }
            None => self.retry_pulls(),
        }
    }

    /// Moves a task whose class has changed to the queue of its new class.
    pub(super) fn change_class(&mut self, task: u32) {
        let own = &self.tasks[task as usize];
        let (state, cpu) = (own.state, own.cpu);
        match state {
            State::Running => {
                self.cpus[cpu as usize].give_way = true;
                self.must_choose(cpu);
            }
            State::Queued => {
                // This invalidates the entry in the other queue.
                self.dequeued(task);
                self.queue(task, cpu);
                self.kick_cpu(task, cpu);
            }
            State::Asleep | State::Parked => {}
        }
    }
}
