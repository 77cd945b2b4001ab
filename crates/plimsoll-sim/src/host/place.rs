//! On which CPU a task that wakes up waits, and who is told.

use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_policy::batch;

use super::FAIR_SLICE_NS;
use super::engine::Host;
use super::observe::Observer;
use super::runqueue::Waiting;
use super::task::{NONE, State};

/// A waking task does not take a CPU from one that is no further ahead of it
/// than this: else two would take turns at every wake-up.
const WAKEUP_GRANULARITY_NS: u64 = NSEC_PER_MSEC;

impl<O: Observer> Host<O> {
    /// A task that slept has work again.
    pub(super) fn wake(&mut self, task: u32) {
        self.becomes_runnable(task);
        let cpu = self.place_of(task);
        self.rejoin(task);
        self.queue(task, cpu);
        self.tell_cpu(task, cpu);
    }

    /// A new task: it waits a slice behind those that are there, so that a
    /// stream of short ones does not keep everybody else from running.
    pub(super) fn begin_task(&mut self, task: u32) {
        self.becomes_runnable(task);
        let cpu = self.place_of(task);
        let home = self.home_of(task, cpu);
        let behind = self.vruntime_moved(task, self.slice_ns_of(task));
        let own = &mut self.tasks[task as usize];
        own.home = home;
        own.vruntime = self.minima[home as usize].wrapping_add(behind);
        self.queue(task, cpu);
        self.tell_cpu(task, cpu);
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

    /// Places the virtual runtime of a task that was off the queues: where it
    /// was, but no further back than a slice before the minimum.
    pub(super) fn rejoin(&mut self, task: u32) {
        let slice = self.vruntime_moved(task, self.slice_ns_of(task));
        let own = &mut self.tasks[task as usize];
        let least = self.minima[own.home as usize];
        // The slice is spread over the group already: weight 1 for 1.
        own.vruntime = batch::place(own.vruntime, least, slice, batch::WEIGHT_NICE_0);
    }

    fn home_of(&self, task: u32, cpu: u32) -> u32 {
        if self.is_batch(task) {
            self.machine.cpus + self.llc_of(cpu)
        } else {
            cpu
        }
    }

    /// Puts a runnable task into the queue of its class on `cpu`, or of the
    /// cache that `cpu` shares.
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

    /// Where a task that becomes runnable queues.
    pub(super) fn place_of(&mut self, task: u32) -> u32 {
        let own = &self.tasks[task as usize];
        let last = own.cpu;
        let group = &self.groups[own.group as usize];
        let here = || self.free.contains(last) && group.has_room_on(last);
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
            // A CPU with batch work only is as good as idle.
            if let Some(cpu) = self.giving.next_within(last, start, end) {
                return cpu;
            }
        }
        if let Some(cpu) = self.best_idle(task, last, 0, self.machine.cpus) {
            return cpu;
        }
        if !is_batch && let Some(cpu) = self.giving.next_from(last) {
            return cpu;
        }
        last
    }

    /// A task is on its way to a CPU: no other goes there because it is idle.
    pub(super) fn claim(&mut self, cpu: u32) {
        self.free.set(cpu, false);
        self.free_cores
            .set(cpu - cpu % self.machine.threads_per_core, false);
    }

    /// A CPU is idle, and no task is on its way there.
    pub(super) fn release(&mut self, cpu: u32) {
        self.free.set(cpu, true);
        let threads = self.machine.threads_per_core;
        let first = cpu - cpu % threads;
        let is_free = (first..first + threads).all(|sibling| self.free.contains(sibling));
        self.free_cores.set(first, is_free);
    }

    /// An idle CPU with a busy sibling, while a whole core is idle near by.
    fn prefers_another_core(&self, cpu: u32) -> bool {
        let threads = self.machine.threads_per_core;
        threads > 1 && !self.free_cores.contains(cpu - cpu % threads) && self.free_cores.count() > 0
    }

    /// The best idle CPU of `start .. end` that no task is on its way to and
    /// where the limit of a task's group has room, `last` being among them: by
    /// the core's order, which prefers a core that is idle as a whole.
    pub(super) fn best_idle(&self, task: u32, last: u32, start: u32, end: u32) -> Option<u32> {
        let group = &self.groups[self.tasks[task as usize].group as usize];
        let room = group.room.as_ref();
        let any = self.free.next_of_both(room, last, start, end)?;
        let threads = self.machine.threads_per_core;
        if threads == 1 {
            return Some(any);
        }
        let whole = self.free_cores.next_of_both(room, last, start, end);
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

    /// A task was queued on `cpu`: whoever should run it is told.
    pub(super) fn tell_cpu(&mut self, task: u32, cpu: u32) {
        if self.is_batch(task) {
            self.tell_idle_cpu(task);
            return;
        }
        let own = &self.cpus[cpu as usize];
        if own.current == NONE || own.batch {
            self.claim(cpu);
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
            // It waits here although CPUs elsewhere are idle: one may take it.
            self.look_again_later();
        }
    }

    /// A batch task waits: an idle CPU that may run it is told, if there is one.
    pub(super) fn tell_idle_cpu(&mut self, task: u32) {
        let now_ns = self.clock.now_ns;
        let own = &self.tasks[task as usize];
        if !self.is_batch(task) || own.state != State::Queued || self.idle.count() == 0 {
            return;
        }
        if !self.side.has_room(self.idle.count() - 1, now_ns) {
            return;
        }
        let (cpu, pinned) = (own.cpu, own.pinned);
        if pinned {
            if self.idle.contains(cpu) {
                self.claim(cpu);
                self.must_choose(cpu);
            }
            return;
        }
        let llc = self.machine.cpus_per_llc;
        let start = cpu - cpu % llc;
        match self.best_idle(task, cpu, start, start + llc) {
            Some(idle) => {
                self.claim(idle);
                self.must_choose(idle);
            }
            None => self.look_again_for_batch(),
        }
    }

    /// A task's class has changed: it moves to the queue of the other.
    pub(super) fn change_class(&mut self, task: u32) {
        let own = &self.tasks[task as usize];
        let (state, cpu) = (own.state, own.cpu);
        match state {
            State::Running => {
                self.cpus[cpu as usize].give_way = true;
                self.must_choose(cpu);
            }
            State::Queued => {
                // The entry in the other queue is out of date from here on.
                self.dequeued(task);
                self.queue(task, cpu);
                self.tell_cpu(task, cpu);
            }
            State::Asleep | State::Parked => {}
        }
    }
}
