//! Dequeuing tasks and load balancing: a CPU takes tasks from its own queue and
//! from those of other CPUs.

use plimsoll_policy::batch;

use super::engine::Host;
use super::observe::Observer;
use super::runqueue::{RunQueue, Waiting};
use super::task::{State, Task};

/// Number of other CPUs or caches that a CPU tries in one search for work; the
/// next search goes on from there. One is enough unless its waiting tasks may
/// not run here or have not waited for long.
const VICTIMS_MAX: u32 = 4;

/// Whether a run queue entry is valid, that is, the task has not been dequeued
/// since.
fn is_current(tasks: &[Task], waiting: &Waiting) -> bool {
    let task = &tasks[waiting.task as usize];
    task.ticket == waiting.ticket && task.state == State::Queued
}

/// Whether the first of the tasks bound to a CPU precedes the first of the
/// others.
fn comes_first(bound: &RunQueue, others: &RunQueue) -> bool {
    match (bound.first(), others.first()) {
        (Some(bound), Some(other)) => bound.precedes(other),
        (bound, _) => bound.is_some(),
    }
}

/// Scrambles a counter: the finalizer of MurmurHash3 (Appleby, public domain).
fn mixed(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ number >> 13).wrapping_mul(0xc2b2_ae35);
    number ^ number >> 16
}

impl<O: Observer> Host<O> {
    /// Takes the next task of the fair class from the queue of a CPU.
    pub(super) fn take_fair(&mut self, cpu: u32) -> Option<u32> {
        while !self.fair_is_empty(cpu) {
            let own = &mut self.cpus[cpu as usize];
            let waiting = if comes_first(&own.fair_bound, &own.fair) {
                own.fair_bound.pop()
            } else {
                own.fair.pop()
            };
            self.fair_changes(cpu);
            let waiting = waiting?;
            if is_current(&self.tasks, &waiting) {
                self.dequeued(waiting.task);
                return Some(waiting.task);
            }
        }
        None
    }

    /// Updates the sets of waiting CPUs after the fair queue or the current
    /// task of a CPU has changed.
    pub(super) fn fair_changes(&mut self, cpu: u32) {
        let own = &self.cpus[cpu as usize];
        let gives = own.runs_batch() && own.server_end_ns <= self.clock.now_ns;
        self.fair_waits.set(cpu, !own.fair.is_empty());
        self.yielding.set(cpu, gives && self.fair_is_empty(cpu));
    }

    /// Number of fair tasks in the queue of a CPU.
    fn fair_len(&self, cpu: u32) -> u32 {
        let own = &self.cpus[cpu as usize];
        (own.fair.len() + own.fair_bound.len()) as u32 + self.nr_throttled[cpu as usize]
    }

    /// Number of batch tasks in the queue of a cache.
    fn batch_len(&self, llc: u32) -> u32 {
        let nr_throttled = self.nr_throttled[(self.machine.cpus + llc) as usize];
        self.shared[llc as usize].len() as u32 + nr_throttled
    }

    pub(super) fn fair_is_empty(&self, cpu: u32) -> bool {
        let own = &self.cpus[cpu as usize];
        own.fair.is_empty() && own.fair_bound.is_empty()
    }

    /// Takes the next batch task that may run on a CPU.
    pub(super) fn take_batch(&mut self, cpu: u32) -> Option<u32> {
        let llc = self.llc_of(cpu);
        loop {
            let own = &mut self.cpus[cpu as usize];
            let waiting = if comes_first(&own.bound, &self.shared[llc as usize]) {
                let waiting = own.bound.pop();
                self.bound_waits.set(cpu, !own.bound.is_empty());
                waiting
            } else {
                self.pop_shared(llc)
            };
            match waiting {
                Some(waiting) if is_current(&self.tasks, &waiting) => {
                    self.dequeued(waiting.task);
                    return Some(waiting.task);
                }
                Some(_) => {}
                None => {
                    let pulled = self.pull_batch(cpu);
                    return pulled.or_else(|| self.pull_throttled(cpu));
                }
            }
        }
    }

    fn pop_shared(&mut self, llc: u32) -> Option<Waiting> {
        let queue = &mut self.shared[llc as usize];
        let waiting = queue.pop()?;
        self.nr_shared -= 1;
        self.batch_waits.set(llc, !queue.is_empty());
        Some(waiting)
    }

    /// Drops invalid entries from the head of the queue.
    fn clear_first(&mut self, llc: u32) {
        while let Some(first) = self.shared[llc as usize].first()
            && !is_current(&self.tasks, first)
        {
            self.pop_shared(llc);
        }
    }

    /// Whether batch tasks that may run on a CPU wait in its queues.
    pub(super) fn batch_waits_at(&self, cpu: u32) -> bool {
        !self.cpus[cpu as usize].bound.is_empty()
            || !self.shared[self.llc_of(cpu) as usize].is_empty()
    }

    /// A CPU without fair work takes a task that waits on another CPU, trying
    /// the CPUs of its own cache first. Returns whether it took one.
    pub(super) fn pull_fair(&mut self, cpu: u32) -> bool {
        if self.fair_waits.count() == 0 {
            return false;
        }
        let llc = self.machine.cpus_per_llc;
        let start = cpu - cpu % llc;
        if self
            .pull_fair_within(cpu, cpu, start, start + llc)
            .is_none()
        {
            return true;
        }
        // CPUs that were tried in vain are tried last next time.
        let from = self.cpus[cpu as usize].pull_from;
        let next = self.pull_fair_within(cpu, from, 0, self.machine.cpus);
        self.cpus[cpu as usize].pull_from = next.unwrap_or(cpu);
        next.is_none()
    }

    /// Tries CPUs of `start .. end`, beginning with `from`. Returns the CPU to
    /// continue from, or `None` if a task was taken.
    fn pull_fair_within(&mut self, cpu: u32, from: u32, start: u32, end: u32) -> Option<u32> {
        let mut from = from;
        for _ in 0..VICTIMS_MAX {
            let Some(victim) = self.fair_waits.next_within(from, start, end) else {
                break;
            };
            if victim != cpu && self.move_fair(victim, cpu).is_some() {
                return None;
            }
            from = if victim + 1 < end { victim + 1 } else { start };
        }
        Some(from)
    }

    /// Moves a waiting task from one CPU to another if it may run there. Like
    /// the kernel, load balancing skips tasks whose group is throttled on the
    /// destination.
    fn move_fair(&mut self, from: u32, to: u32) -> Option<u32> {
        let (tasks, groups) = (&self.tasks, &self.groups);
        let counts = |w: &Waiting| is_current(tasks, w);
        let may_go = |w: &Waiting| {
            let group = &groups[tasks[w.task as usize].group as usize];
            let lane = group.lanes.get(to as usize);
            !lane.is_some_and(|lane| lane.is_throttled())
        };
        let taken = self.cpus[from as usize].fair.take_late(counts, may_go);
        self.fair_changes(from);
        let task = taken?.task;
        self.dequeued(task);
        self.queue(task, to);
        Some(task)
    }

    /// Takes a batch task from another cache if one has waited too long there;
    /// the core decides.
    fn pull_batch(&mut self, cpu: u32) -> Option<u32> {
        let own_llc = self.llc_of(cpu);
        let nr_llcs = self.shared.len() as u32;
        let mut from = own_llc;
        for attempt in 0..VICTIMS_MAX {
            let llc = self.batch_waits.next_from(from)?;
            // All caches have been tried.
            if attempt > 0 && llc == self.batch_waits.next_from(own_llc)? {
                return None;
            }
            self.clear_first(llc);
            if self.batch_waits.contains(llc) && self.should_pull(llc) {
                return self.pull_first(llc, cpu);
            }
            from = (llc + 1) % nr_llcs;
        }
        // Starts with another cache next time.
        self.rotation = self.rotation.wrapping_add(1);
        let llc = (own_llc + self.rotation) % nr_llcs;
        let llc = self.batch_waits.next_from(llc)?;
        self.clear_first(llc);
        if self.batch_waits.contains(llc) && self.should_pull(llc) {
            return self.pull_first(llc, cpu);
        }
        None
    }

    fn pull_first(&mut self, llc: u32, cpu: u32) -> Option<u32> {
        let task = self.pop_shared(llc)?.task;
        self.dequeued(task);
        self.queue(task, cpu);
        self.take_batch(cpu)
    }

    /// Whether an idle CPU takes the first batch task of a cache.
    fn should_pull(&self, llc: u32) -> bool {
        let to = batch::Cpu {
            room_ppm: plimsoll_policy::PPM as u32,
            ..batch::Cpu::default()
        };
        batch::should_pull(&self.llc_load(llc), &to, batch::SLICE_DEFAULT_NS)
    }

    /// Load balancing input for a cache: the sum over its CPUs.
    fn llc_load(&self, llc: u32) -> batch::Cpu {
        let now_ns = self.clock.now_ns;
        let queue = &self.shared[llc as usize];
        let size = self.machine.cpus_per_llc;
        let (start, end) = (llc * size, (llc + 1) * size);
        let since_ns = queue
            .first()
            .map_or(now_ns, |w| self.tasks[w.task as usize].runnable_ns);
        let on_batch = self.batch_on.next_within(start, start, end).is_some();
        batch::Cpu {
            waited_ns: now_ns - since_ns,
            nr_queued: self.batch_len(llc).div_ceil(size),
            room_ppm: plimsoll_policy::PPM as u32,
            running_normal: !on_batch,
            running_batch: on_batch,
            core_idle: false,
        }
    }

    /// Picks the CPU to compare loads with. The order is pseudo-random: with
    /// any simple order, a surplus task could circulate among a few CPUs and
    /// never reach the others.
    fn balance_partner(&mut self, cpu: u32) -> u32 {
        let cpus = self.machine.cpus;
        self.rotation = self.rotation.wrapping_add(1);
        (cpu + 1 + mixed(self.rotation) % (cpus - 1)) % cpus
    }

    /// Load balancing at the end of a slice: compares this CPU and its cache
    /// with one other. `task`, which had the slice, is queued again.
    pub(super) fn balance(&mut self, cpu: u32, task: u32) {
        if self.machine.cpus == 1 {
            return;
        }
        let other = self.balance_partner(cpu);
        self.balance_fair(cpu, other);
        if self.is_batch(task) {
            let is_among = u32::from(!self.tasks[task as usize].pinned);
            let nr_others = self.batch_len(self.llc_of(cpu)).saturating_sub(is_among);
            self.balance_batch(cpu, other, nr_others);
        }
    }

    /// Load balancing at the end of the slice of a batch task that has no
    /// competitor on this CPU. Returns whether a task was taken from another
    /// cache.
    pub(super) fn balance_lone_batch(&mut self, cpu: u32) -> bool {
        if self.shared.len() == 1 || self.nr_shared == 0 {
            return false;
        }
        let other = self.balance_partner(cpu);
        let nr_others = self.batch_len(self.llc_of(cpu));
        self.balance_batch(cpu, other, nr_others)
    }

    fn balance_fair(&mut self, cpu: u32, other: u32) {
        let here = self.fair_len(cpu);
        let there = self.fair_len(other);
        if there >= here + 2 {
            self.move_fair(other, cpu);
        } else if here >= there + 2
            && let Some(task) = self.move_fair(cpu, other)
            && !self.cpus[other as usize].runs_normal()
        {
            // No preemption here: two CPUs could preempt each other without
            // end.
            self.kick_cpu(task, other);
        }
    }

    /// Takes the first batch task of another CPU's cache if more of them wait
    /// there than here, not counting the task whose slice just ended. A surplus
    /// of one task keeps moving between the caches, so that all tasks get equal
    /// time in the long run. Returns whether a task was taken.
    fn balance_batch(&mut self, cpu: u32, other: u32, nr_others: u32) -> bool {
        let (llc, other_llc) = (self.llc_of(cpu), self.llc_of(other));
        if llc == other_llc || self.batch_len(other_llc) <= nr_others {
            return false;
        }
        self.clear_first(other_llc);
        let here = batch::Cpu {
            nr_queued: nr_others / self.machine.cpus_per_llc,
            room_ppm: plimsoll_policy::PPM as u32,
            ..batch::Cpu::default()
        };
        if !batch::better_cpu(&here, &self.llc_load(other_llc), batch::SLICE_DEFAULT_NS) {
            return false;
        }
        let Some(waiting) = self.pop_shared(other_llc) else {
            return false;
        };
        self.dequeued(waiting.task);
        self.queue(waiting.task, cpu);
        true
    }

    /// Sets the timer at which idle CPUs search other caches for batch work.
    pub(super) fn retry_pulls(&mut self) {
        if self.nr_shared > 0 && self.shared.len() > 1 {
            self.set_pull_timer();
        }
    }

    /// Sets the timer to the longest time that a task is to wait.
    pub(super) fn set_pull_timer(&mut self) {
        if !self.timers.is_set(self.owners.balance()) {
            let at_ns = self.clock.now_ns + batch::WAIT_MAX_NS;
            self.timers.set(self.owners.balance(), at_ns);
        }
    }

    /// Reschedules idle CPUs where work waits, as many as there is work and
    /// allowance for.
    pub(super) fn rouse_idle_cpus(&mut self) {
        let cpus = self.machine.cpus;
        let mut from = 0;
        for _ in 0..self.bound_waits.count() {
            let idle = Some(&self.idle);
            let Some(cpu) = self.bound_waits.next_of_both(idle, from, 0, cpus) else {
                break;
            };
            self.must_choose(cpu);
            from = (cpu + 1) % cpus;
        }
        let nr_idle = self.idle.count();
        let nr_tokens = self.batch_grant.nr_tokens(nr_idle, self.clock.now_ns);
        let nr_useful = self.fair_waits.count() + self.nr_shared.min(nr_tokens);
        // Starts with another CPU than last time, because the limits of a
        // waiting task may refuse some CPUs.
        let mut from = self.rouse_from;
        for _ in 0..nr_useful.min(nr_idle) {
            let Some(cpu) = self.idle.next_from(from) else {
                break;
            };
            self.must_choose(cpu);
            from = (cpu + 1) % cpus;
        }
        self.rouse_from = from;
    }
}
