//! Taking tasks from queues: a CPU's own, and those of others.

use plimsoll_policy::batch;

use super::engine::Host;
use super::observe::Observer;
use super::runqueue::Waiting;
use super::task::{State, Task};

/// How many other CPUs are tried by one that looks for work.
const VICTIMS_MAX: u32 = 4;

/// Whether an entry of a run queue is the one that counts.
fn is_current(tasks: &[Task], waiting: &Waiting) -> bool {
    let task = &tasks[waiting.task as usize];
    task.ticket == waiting.ticket && task.state == State::Queued
}

impl<O: Observer> Host<O> {
    /// Takes the next task of the fair class that waits on a CPU.
    pub(super) fn take_fair(&mut self, cpu: u32) -> Option<u32> {
        let own = &mut self.cpus[cpu as usize];
        while let Some(waiting) = own.fair.pop() {
            if own.fair.is_empty() {
                self.fair_waits.set(cpu, false);
            }
            if is_current(&self.tasks, &waiting) {
                self.dequeued(waiting.task);
                return Some(waiting.task);
            }
        }
        self.fair_waits.set(cpu, false);
        None
    }

    /// How many tasks of the fair class wait on a CPU.
    fn fair_len(&self, cpu: u32) -> u32 {
        self.cpus[cpu as usize].fair.len() as u32 + self.nr_held[cpu as usize]
    }

    /// How many batch tasks wait in a cache.
    fn batch_len(&self, llc: u32) -> u32 {
        let nr_held = self.nr_held[(self.machine.cpus + llc) as usize];
        self.shared[llc as usize].len() as u32 + nr_held
    }

    pub(super) fn fair_is_empty(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].fair.is_empty()
    }

    /// Takes the next batch task that may run on a CPU.
    pub(super) fn take_batch(&mut self, cpu: u32) -> Option<u32> {
        let llc = self.llc_of(cpu) as usize;
        loop {
            let bound = self.cpus[cpu as usize].bound.first();
            let shared = self.shared[llc].first();
            let bound_first = match (bound, shared) {
                (Some(bound), Some(shared)) => batch::before(bound.vruntime, shared.vruntime),
                (bound, _) => bound.is_some(),
            };
            let waiting = if bound_first {
                self.cpus[cpu as usize].bound.pop()
            } else {
                self.shared[llc].pop()
            };
            match waiting {
                Some(waiting) if is_current(&self.tasks, &waiting) => {
                    self.dequeued(waiting.task);
                    return Some(waiting.task);
                }
                Some(_) => {}
                None => {
                    let pulled = self.pull_batch(cpu);
                    return pulled.or_else(|| self.pull_held(cpu));
                }
            }
        }
    }

    /// Whether batch tasks that may run on a CPU wait there.
    pub(super) fn batch_waits_at(&self, cpu: u32) -> bool {
        !self.cpus[cpu as usize].bound.is_empty()
            || !self.shared[self.llc_of(cpu) as usize].is_empty()
    }

    /// A CPU without work of the fair class takes a task that waits elsewhere:
    /// near by first. Returns whether it has one now.
    pub(super) fn pull_fair(&mut self, cpu: u32) -> bool {
        if self.fair_waits.count() == 0 {
            return false;
        }
        let llc = self.machine.cpus_per_llc;
        let start = cpu - cpu % llc;
        self.pull_fair_within(cpu, start, start + llc)
            || llc < self.machine.cpus && self.pull_fair_within(cpu, 0, self.machine.cpus)
    }

    fn pull_fair_within(&mut self, cpu: u32, start: u32, end: u32) -> bool {
        let mut from = cpu;
        for _ in 0..VICTIMS_MAX {
            let Some(victim) = self.fair_waits.next_within(from, start, end) else {
                return false;
            };
            if victim != cpu && self.move_fair(victim, cpu) {
                return true;
            }
            from = if victim + 1 < end { victim + 1 } else { start };
        }
        false
    }

    /// Moves a waiting task from one CPU to another, if one may be moved. Who
    /// calls for another than the chooser's own queue tells that CPU.
    fn move_fair(&mut self, from: u32, to: u32) -> bool {
        let tasks = &self.tasks;
        let may_go = |w: &Waiting| !tasks[w.task as usize].pinned && is_current(tasks, w);
        let own = &mut self.cpus[from as usize];
        let Some(waiting) = own.fair.take_late(may_go) else {
            return false;
        };
        if own.fair.is_empty() {
            self.fair_waits.set(from, false);
        }
        self.dequeued(waiting.task);
        self.queue(waiting.task, to);
        true
    }

    /// A CPU of another cache may have batch tasks that wait for too long: the
    /// core says whether this one takes the first of them.
    fn pull_batch(&mut self, cpu: u32) -> Option<u32> {
        let own_llc = self.llc_of(cpu);
        let nr_llcs = self.shared.len() as u32;
        for step in 1..nr_llcs {
            let llc = (own_llc + step) % nr_llcs;
            if !self.shared[llc as usize].is_empty() && self.should_pull(llc, cpu) {
                while let Some(waiting) = self.shared[llc as usize].pop() {
                    if is_current(&self.tasks, &waiting) {
                        self.dequeued(waiting.task);
                        self.queue(waiting.task, cpu);
                        return self.take_batch(cpu);
                    }
                }
            }
        }
        None
    }

    fn should_pull(&self, llc: u32, cpu: u32) -> bool {
        let from = self.known_of(llc);
        let own = &self.cpus[cpu as usize];
        let to = batch::Cpu {
            nr_queued: self.batch_len(self.llc_of(cpu)),
            room_ppm: plimsoll_policy::PPM as u32,
            running_normal: own.runs_normal(),
            running_batch: own.runs_batch(),
            ..batch::Cpu::default()
        };
        batch::should_pull(&from, &to, batch::SLICE_DEFAULT_NS)
    }

    /// What load balancing knows of the CPUs of a cache, as if they were one.
    fn known_of(&self, llc: u32) -> batch::Cpu {
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

    /// At the end of a slice: one other CPU, or one other cache, is looked at
    /// for more, or less, to do than here.
    pub(super) fn balance(&mut self, cpu: u32) {
        let cpus = self.machine.cpus;
        if cpus == 1 {
            return;
        }
        self.rotation = self.rotation.wrapping_add(1);
        let other = (cpu + 1 + self.rotation % (cpus - 1)) % cpus;
        let here = self.fair_len(cpu);
        let there = self.fair_len(other);
        if there >= here + 2 {
            self.move_fair(other, cpu);
        } else if here >= there + 2 {
            self.move_fair(cpu, other);
        }
        let (llc, other_llc) = (self.llc_of(cpu), self.llc_of(other));
        if llc != other_llc
            && self.batch_len(other_llc) > self.batch_len(llc) + 1
            && self.should_pull(other_llc, cpu)
        {
            while let Some(waiting) = self.shared[other_llc as usize].pop() {
                if is_current(&self.tasks, &waiting) {
                    self.dequeued(waiting.task);
                    self.queue(waiting.task, cpu);
                    break;
                }
            }
        }
    }

    /// Idle CPUs look again, after the longest that batch work is to wait.
    pub(super) fn look_again_later(&mut self) {
        if self.shared.len() < 2 || self.shared.iter().all(|queue| queue.is_empty()) {
            return;
        }
        let at_ns = self.clock.now_ns + batch::WAIT_MAX_NS;
        if !self.timers.is_set(self.owners.balance()) {
            self.timers.set(self.owners.balance(), at_ns);
        }
    }

    /// Idle CPUs choose anew where batch work waits, as many as there are
    /// tasks for.
    pub(super) fn rouse_idle_cpus(&mut self) {
        let mut nr_waiting: usize = self.shared.iter().map(|queue| queue.len()).sum();
        let cpus = self.machine.cpus;
        let mut from = self.rotation % cpus;
        for _ in 0..self.idle.count() {
            let Some(cpu) = self.idle.next_from(from) else {
                return;
            };
            let is_bound = !self.cpus[cpu as usize].bound.is_empty();
            if is_bound || nr_waiting > 0 {
                nr_waiting = nr_waiting.saturating_sub(1);
                self.must_choose(cpu);
            }
            from = (cpu + 1) % cpus;
        }
    }
}
