//! Picks the task that a CPU runs next, and sets its slice.

use plimsoll_policy::batch;

use super::clock::{scaled, stretched, work_of_ns};
use super::engine::Host;
use super::limits::Verdict;
use super::observe::{Observer, Span};
use super::task::{ENDLESS, NONE, State, WORK_PER_NS};
use super::{FAIR_SLICE_NS, work::Step};

/// A task that was picked, and until when it may run.
struct Chosen {
    task: u32,
    batch: bool,
    /// When its limits are checked again.
    limit_ns: u64,
    /// Until when batch work may run on this CPU.
    batch_until_ns: u64,
}

impl<O: Observer> Host<O> {
    /// Reschedules a CPU: it keeps its current task, switches to a waiting one,
    /// or goes idle.
    pub(super) fn choose(&mut self, cpu: u32) {
        let index = cpu as usize;
        let current = self.cpus[index].current;
        if current != NONE {
            self.charge(cpu, true);
            if self.keeps_cpu(cpu) {
                return;
            }
            self.put_back(cpu);
            self.balance(cpu, current);
        }
        match self.next_task(cpu) {
            Some(chosen) => self.start(cpu, &chosen),
            None => self.go_idle(cpu),
        }
        // The task that was put back may have moved to an idle CPU.
        if current != NONE && self.tasks[current as usize].state == State::Queued {
            self.kick_idle_cpu(current);
        }
    }

    /// Whether the current task keeps the CPU; starts a new slice if need be.
    fn keeps_cpu(&mut self, cpu: u32) -> bool {
        let now_ns = self.clock.now_ns;
        let own = &mut self.cpus[cpu as usize];
        let gives_way = std::mem::take(&mut own.give_way);
        let (task, batch) = (own.current, own.batch);
        let slice_is_over = own.slice_end_ns <= now_ns;
        let in_server = own.server_end_ns > now_ns;
        if batch != self.is_batch(task) || gives_way && in_server != batch {
            return false;
        }
        if batch && !in_server && !(self.fair_is_empty(cpu) && self.batch_stays(cpu)) {
            return false;
        }
        if gives_way || slice_is_over {
            let others_wait = if batch {
                self.batch_waits_at(cpu) || slice_is_over && self.balance_lone_batch(cpu)
            } else {
                !self.fair_is_empty(cpu)
            };
            if others_wait {
                return false;
            }
        }
        let Verdict::Run(limit_ns) = self.ask_limits(cpu, task, true) else {
            return false;
        };
        if slice_is_over {
            self.begin_slice(cpu);
        }
        let own = &mut self.cpus[cpu as usize];
        if batch && own.server_end_ns != 0 && !in_server {
            own.server_end_ns = 0;
            self.fair_changes(cpu);
        }
        self.cpus[cpu as usize].limit_end_ns = now_ns.saturating_add(limit_ns);
        self.set_timer(cpu);
        true
    }

    /// Whether headroom lets the current batch task keep the CPU.
    fn batch_stays(&mut self, cpu: u32) -> bool {
        let now_ns = self.clock.now_ns;
        let until_ns = self.cpus[cpu as usize].batch_until_ns;
        if until_ns != u64::MAX {
            if until_ns > now_ns {
                return true;
            }
            // This CPU is not counted among the idle ones.
            let until_ns = self.batch_grant.take(self.idle.count(), now_ns);
            self.cpus[cpu as usize].batch_until_ns = until_ns;
            return until_ns > now_ns;
        }
        self.batch_grant.idle_cpus == 0 || self.idle.count() >= self.batch_grant.idle_cpus
    }

    /// Puts the current task back into its queue.
    fn put_back(&mut self, cpu: u32) {
        let own = &self.cpus[cpu as usize];
        let (task, early) = (own.current, own.slice_end_ns > self.clock.now_ns);
        self.leave(cpu);
        let group = self.tasks[task as usize].group as usize;
        if early {
            self.groups[group].counters.nr_preemptions += 1;
        }
        self.tasks[task as usize].runnable_ns = self.clock.now_ns;
        self.queue(task, cpu);
    }

    fn next_task(&mut self, cpu: u32) -> Option<Chosen> {
        loop {
            let now_ns = self.clock.now_ns;
            let in_server = self.cpus[cpu as usize].server_end_ns > now_ns;
            if !in_server {
                if let Some(task) = self.take_fair(cpu) {
                    if let Some(chosen) = self.try_task(cpu, task, false) {
                        return Some(chosen);
                    }
                    continue;
                }
                if self.pull_fair(cpu) {
                    continue;
                }
            }
            let others_idle = self.idle.count() - u32::from(self.idle.contains(cpu));
            let may_start = in_server || self.batch_grant.may_start(others_idle, now_ns);
            let task = may_start.then(|| self.take_batch(cpu)).flatten();
            if let Some(task) = task {
                if let Some(mut chosen) = self.try_task(cpu, task, true) {
                    if in_server {
                        chosen.batch_until_ns = self.cpus[cpu as usize].server_end_ns;
                    } else if chosen.batch {
                        chosen.batch_until_ns = self.batch_grant.take(others_idle, now_ns);
                    }
                    return Some(chosen);
                }
                continue;
            }
            if !in_server {
                return None;
            }
            self.cpus[cpu as usize].server_end_ns = 0;
        }
    }

    /// Checks the limits of a task just dequeued. A task that they refuse is
    /// parked off the queues.
    fn try_task(&mut self, cpu: u32, task: u32, batch: bool) -> Option<Chosen> {
        match self.ask_limits(cpu, task, false) {
            Verdict::Run(limit_ns) => Some(Chosen {
                task,
                batch,
                limit_ns,
                batch_until_ns: u64::MAX,
            }),
            refusal => {
                self.park(cpu, task, refusal);
                None
            }
        }
    }

    fn start(&mut self, cpu: u32, chosen: &Chosen) {
        let now_ns = self.clock.now_ns;
        let was_idle = self.idle.contains(cpu);
        let task = &mut self.tasks[chosen.task as usize];
        task.state = State::Running;
        task.cpu = cpu;
        let group = &mut self.groups[task.group as usize];
        let running_index = group.running.len() as u32;
        group.charge_bucket(now_ns);
        group.running.push(cpu);
        group.counters.wait_ns += now_ns - task.runnable_ns.max(self.from_ns.min(now_ns));
        let own = &mut self.cpus[cpu as usize];
        let switches = own.last != chosen.task;
        own.running_index = running_index;
        own.last = chosen.task;
        own.current = chosen.task;
        own.batch = chosen.batch;
        own.since_ns = now_ns;
        own.charged_ns = now_ns;
        own.limit_end_ns = now_ns.saturating_add(chosen.limit_ns);
        own.batch_until_ns = chosen.batch_until_ns;
        own.give_way = false;
        self.begin_work(cpu, switches);
        self.clock.count(chosen.batch, true);
        if chosen.batch {
            self.batch_on.set(cpu, true);
            self.fair_changes(cpu);
        }
        if was_idle {
            self.idle.set(cpu, false);
            self.reserve(cpu);
            self.core_changes(cpu);
        }
        self.rate_from_now(chosen.task);
        self.first_shares_bucket(self.tasks[chosen.task as usize].group);
        self.begin_slice(cpu);
        self.set_timer(cpu);
        self.set_end(cpu);
        if !chosen.batch && self.batch_grant.idle_cpus > self.idle.count() {
            self.preempt_batch(cpu);
        }
    }

    /// Starts the work clock of the current task; after a task switch, once the
    /// switch cost is paid.
    fn begin_work(&mut self, cpu: u32, switches: bool) {
        let own = &mut self.cpus[cpu as usize];
        own.work_mark = self.clock.work;
        own.time_mark_ns = self.clock.now_ns;
        if switches {
            own.work_mark += work_of_ns(self.machine.switch_cost_ns);
            own.time_mark_ns += self.machine.switch_cost_ns;
            let group = self.tasks[own.current as usize].group as usize;
            self.groups[group].counters.nr_switches += 1;
        }
    }

    /// Preempts batch work on another CPU if fewer CPUs are idle than headroom
    /// demands.
    fn preempt_batch(&mut self, cpu: u32) {
        let mut from = cpu;
        for _ in 0..self.batch_on.count() {
            let Some(other) = self.batch_on.next_from(from) else {
                return;
            };
            let own = &self.cpus[other as usize];
            if own.batch_until_ns == u64::MAX && !own.must_choose {
                self.must_choose(other);
                return;
            }
            from = (other + 1) % self.machine.cpus;
        }
    }

    /// Starts a slice and advances the minimum of the queue to the task's
    /// virtual runtime.
    fn begin_slice(&mut self, cpu: u32) {
        let own = &mut self.cpus[cpu as usize];
        let slice_ns = if own.batch {
            batch::SLICE_DEFAULT_NS
        } else {
            FAIR_SLICE_NS
        };
        own.slice_end_ns = self.clock.now_ns + slice_ns;
        let task = &self.tasks[own.current as usize];
        let least = &mut self.minima[task.home as usize];
        *least = batch::later(*least, task.vruntime);
    }

    /// Sets the timer of the next reschedule.
    pub(super) fn set_timer(&mut self, cpu: u32) {
        let own = &self.cpus[cpu as usize];
        let end_ns = own
            .slice_end_ns
            .min(own.limit_end_ns)
            .min(own.batch_until_ns);
        let at_ns = end_ns.max(self.clock.now_ns + 1);
        self.timers.set(self.owners.cpu(cpu), at_ns);
    }

    /// Sets the timer for the end of the current task's work.
    pub(super) fn set_end(&mut self, cpu: u32) {
        let own = &self.cpus[cpu as usize];
        let task = &self.tasks[own.current as usize];
        let left = task.left;
        if task.role.burns_time() {
            let end_ns = own.time_mark_ns + left.div_ceil(WORK_PER_NS);
            self.time_ends.set(cpu, end_ns);
            return;
        }
        let end = own.work_mark.saturating_add(stretched(left, own.rate_ppm));
        if left == ENDLESS || end == ENDLESS {
            self.ends.cancel(cpu);
        } else {
            self.ends.set(cpu, end);
        }
    }

    /// Accounts the work done since the last call.
    pub(super) fn account_work(&mut self, cpu: u32) {
        let now_ns = self.clock.now_ns;
        let own = &mut self.cpus[cpu as usize];
        let task = &mut self.tasks[own.current as usize];
        if task.role.burns_time() {
            let ran_ns = now_ns.saturating_sub(own.time_mark_ns);
            own.time_mark_ns += ran_ns;
            task.left = task.left.saturating_sub(work_of_ns(ran_ns));
            return;
        }
        // The switch cost is not paid yet.
        let Some(elapsed) = self.clock.work.checked_sub(own.work_mark) else {
            return;
        };
        own.work_mark = self.clock.work;
        let done = scaled(elapsed, own.rate_ppm);
        task.done += done;
        if task.left != ENDLESS {
            task.left = task.left.saturating_sub(done);
        }
    }

    /// The current task has done its work: it continues with other work or
    /// leaves the CPU.
    pub(super) fn complete(&mut self, cpu: u32) {
        let task = self.cpus[cpu as usize].current;
        self.charge(cpu, false);
        self.tasks[task as usize].left = 0;
        let number = self.tasks[task as usize].number;
        let step = self.next_step(task);
        let is_another = self.tasks[task as usize].number != number;
        if is_another {
            self.show_ended(cpu, number);
        }
        if step == Step::Work {
            self.begin_work(cpu, is_another);
            self.set_end(cpu);
            // Another process of a storm has replaced it, which may not be over
            // a soft cap.
            if self.is_batch(task) != self.cpus[cpu as usize].batch {
                self.change_class(task);
            }
            return;
        }
        self.leave(cpu);
        let own = &mut self.tasks[task as usize];
        own.state = State::Asleep;
        self.groups[own.group as usize].weight_sum -= u64::from(own.weight);
        if let Step::SleepUntil(at_ns) = step {
            self.timers.set(self.owners.task(task), at_ns);
        }
        self.must_choose(cpu);
    }

    fn span(&self, cpu: u32, task: u32, since_ns: u64, batch: bool) -> Span {
        let own = &self.tasks[task as usize];
        Span {
            cpu,
            group: own.group,
            task: own.number,
            start_ns: since_ns,
            end_ns: self.clock.now_ns,
            batch,
        }
    }

    /// Tells the observer that a process has ended and its CPU runs another
    /// one.
    fn show_ended(&mut self, cpu: u32, number: u32) {
        let own = &self.cpus[cpu as usize];
        let mut span = self.span(cpu, own.current, own.since_ns, own.batch);
        span.task = number;
        self.observer.ran(&span);
        self.cpus[cpu as usize].since_ns = self.clock.now_ns;
    }

    /// Tells the observer of the tasks that run now, up to now.
    pub(super) fn show_running(&mut self) {
        for cpu in 0..self.machine.cpus {
            let own = &self.cpus[cpu as usize];
            if own.current != NONE && own.since_ns < self.clock.now_ns {
                let span = self.span(cpu, own.current, own.since_ns, own.batch);
                self.observer.ran(&span);
            }
        }
    }

    /// Takes the current task off the CPU. The caller decides where it goes.
    fn leave(&mut self, cpu: u32) {
        let now_ns = self.clock.now_ns;
        let own = &mut self.cpus[cpu as usize];
        let (task, batch) = (own.current, own.batch);
        own.current = NONE;
        let since_ns = own.since_ns;
        let span = self.span(cpu, task, since_ns, batch);
        let own = &mut self.cpus[cpu as usize];
        if batch && own.server_end_ns <= now_ns {
            self.batch_grant.give_back(own.batch_until_ns, now_ns);
        }
        if span.end_ns > span.start_ns {
            self.observer.ran(&span);
        }
        self.ends.cancel(cpu);
        self.time_ends.cancel(cpu);
        self.clock.count(batch, false);
        if batch {
            self.batch_on.set(cpu, false);
            self.yielding.set(cpu, false);
        }
        let position = self.cpus[cpu as usize].running_index as usize;
        let group = &mut self.groups[span.group as usize];
        group.charge_bucket(now_ns);
        group.running.swap_remove(position);
        if let Some(&moved) = group.running.get(position) {
            self.cpus[moved as usize].running_index = position as u32;
        }
        self.give_back_runtime(span.group, cpu);
    }

    fn go_idle(&mut self, cpu: u32) {
        self.timers.cancel(self.owners.cpu(cpu));
        if !self.idle.contains(cpu) {
            self.idle.set(cpu, true);
            self.core_changes(cpu);
        }
        self.mark_idle(cpu);
        self.retry_pulls();
    }

    /// Updates the speeds of a core's CPUs after one has become busy or idle.
    fn core_changes(&mut self, cpu: u32) {
        let threads = self.machine.threads_per_core;
        if threads == 1 {
            return;
        }
        let first = cpu - cpu % threads;
        let busy = (first..first + threads)
            .filter(|&c| !self.idle.contains(c))
            .count();
        let rate_ppm = if busy > 1 {
            u64::from(self.machine.sibling_speed_ppm)
        } else {
            plimsoll_policy::PPM
        };
        for sibling in first..first + threads {
            if self.cpus[sibling as usize].rate_ppm == rate_ppm {
                continue;
            }
            if self.cpus[sibling as usize].current == NONE {
                self.cpus[sibling as usize].rate_ppm = rate_ppm;
                continue;
            }
            self.account_work(sibling);
            self.cpus[sibling as usize].rate_ppm = rate_ppm;
            self.set_end(sibling);
        }
    }
}
