//! Quota, caps and per-CPU limits: whether a task may run on a CPU and for how
//! long, and the charging of its run time.

use plimsoll_policy::batch::{self, Limit};
use plimsoll_policy::ratecap::Bucket;

use super::engine::Host;
use super::observe::{Event, Observer};
use super::task::{NONE, State};
use super::throttled::Throttle;

/// Answer of the limits of a task. Values are durations unless a variant says
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may run for this long; then the limits are checked again.
    Run(u64),
    /// The group has no runtime on this CPU.
    Throttled,
    /// The group is over its cap until this time.
    Capped(u64),
    /// The task is over its own cap until this time.
    OwnCapped(u64),
    /// The group has used up its limit of this CPU.
    Limited(u64),
}

/// Longest run between two checks where several CPUs share a bucket: the delay
/// with which a change on another CPU is noticed.
const SHARED_RUN_NS: u64 = plimsoll_policy::NSEC_PER_MSEC;
/// Delay after which tasks of a capped group are tried again that found no CPU.
const CAP_RETRY_NS: u64 = plimsoll_policy::NSEC_PER_MSEC;

/// Shortest run, as in the kernel: without it, a task that has just become
/// eligible would be over its cap again after a few nanoseconds. The overrun is
/// charged and waited for.
const CAPPED_RUN_MIN_NS: u64 = plimsoll_policy::NSEC_PER_MSEC;

/// How long the owner of a bucket may run, or else when it may run again.
fn bucket_run_ns(bucket: &Bucket, nr_running: u32, now_ns: u64) -> Result<u64, u64> {
    if !bucket.may_run(now_ns) {
        return Err(bucket.eligible_ns());
    }
    let run_ns = bucket.run_ns(nr_running, now_ns);
    Ok(run_ns.map_or(u64::MAX, |ns| ns.max(CAPPED_RUN_MIN_NS)))
}

/// Charges a run to the limit of a CPU, split at window boundaries. Unlike a
/// pool, which is refilled at each boundary, a bucket has no windows.
fn charge_limit(limit: &mut Limit, limit_ppm: u32, start_ns: u64, now_ns: u64) {
    let mut from_ns = start_ns;
    let end_ns = limit.until_ns();
    if start_ns < end_ns && end_ns <= now_ns {
        limit.charge(limit_ppm, end_ns - start_ns, end_ns - 1);
        from_ns = end_ns;
    }
    limit.charge(limit_ppm, now_ns - from_ns, now_ns);
}

impl<O: Observer> Host<O> {
    /// Checks whether `task` may run on `cpu`; `runs` if it is running already.
    /// A group within its quota acquires a slice of runtime.
    pub(super) fn ask_limits(&mut self, cpu: u32, task: u32, runs: bool) -> Verdict {
        let now_ns = self.clock.now_ns;
        let group = &mut self.groups[self.tasks[task as usize].group as usize];
        let mut run_ns = u64::MAX;
        group.charge_bucket(now_ns);
        if let Some(bucket) = &group.bucket {
            let nr_running = group.running.len() as u32 + u32::from(!runs);
            match bucket_run_ns(bucket, nr_running, now_ns) {
                Ok(ns) if nr_running > 1 => run_ns = ns.min(SHARED_RUN_NS),
                Ok(ns) => run_ns = ns,
                Err(at_ns) => return Verdict::Capped(at_ns),
            }
        }
        if let Some(own) = &self.tasks[task as usize].own {
            match bucket_run_ns(&own.bucket, 1, now_ns) {
                Ok(ns) => run_ns = run_ns.min(ns),
                Err(at_ns) => return Verdict::OwnCapped(at_ns),
            }
        }
        if let Some(limit_ppm) = group.limit_ppm {
            let limit = &mut group.on_cpu[cpu as usize].limit;
            match limit.charge(limit_ppm, 0, now_ns) {
                0 => return Verdict::Limited(limit.until_ns()),
                ns => run_ns = run_ns.min(ns),
            }
        }
        if let Some(pool) = &mut group.pool {
            let lane = &mut group.lanes[cpu as usize];
            let was_throttled = lane.is_throttled();
            if !pool.charge(lane, 0, now_ns) {
                if !was_throttled {
                    self.throttle_cpu(self.tasks[task as usize].group, cpu);
                }
                return Verdict::Throttled;
            }
            run_ns = run_ns.min(lane.runtime_ns().max(1) as u64);
        }
        Verdict::Run(run_ns)
    }

    /// When a capped group starts on a second CPU, makes the first one, which
    /// had the whole cap, check its limits again as early as the second.
    pub(super) fn first_shares_bucket(&mut self, index: u32) {
        let group = &self.groups[index as usize];
        let (Some(_), &[first, _]) = (&group.bucket, &group.running[..]) else {
            return;
        };
        let shared_end_ns = self.clock.now_ns + SHARED_RUN_NS;
        let own = &mut self.cpus[first as usize];
        if own.limit_end_ns > shared_end_ns {
            own.limit_end_ns = shared_end_ns;
            self.set_timer(first);
        }
    }

    /// Parks a runnable task off the queues, by the limit that refused it.
    pub(super) fn park(&mut self, cpu: u32, task: u32, refusal: Verdict) {
        let own = &mut self.tasks[task as usize];
        own.state = State::Parked;
        let index = own.group;
        let group = &mut self.groups[index as usize];
        match refusal {
            Verdict::Run(_) => {}
            Verdict::Throttled => self.throttle(task, Throttle::Quota(cpu)),
            Verdict::Limited(at_ns) => {
                let reason = if own.pinned {
                    Throttle::Limit(cpu)
                } else {
                    Throttle::Cache(cpu / self.machine.cpus_per_llc)
                };
                if let Some(below_limit) = &mut group.below_limit {
                    below_limit.set(cpu, false);
                }
                self.timers.set_no_later(self.owners.window(), at_ns);
                self.throttle(task, reason);
            }
            Verdict::OwnCapped(at_ns) => {
                group.counters.nr_capped += 1;
                self.timers.set(self.owners.task(task), at_ns);
            }
            Verdict::Capped(at_ns) => {
                group.counters.nr_capped += 1;
                group.capped.push_back(task);
                self.timers.set(self.owners.cap(index), at_ns);
            }
        }
    }

    /// Called when a parked task is back in a queue.
    pub(super) fn unpark(&mut self, task: u32) {
        let cpu = self.select_cpu(task);
        self.rejoin(task);
        self.queue(task, cpu);
        self.kick_cpu(task, cpu);
    }

    /// Charges the run time of a CPU's current task since the last call. With
    /// `asks`, the task would continue, so its group may acquire more runtime.
    pub(super) fn charge(&mut self, cpu: u32, asks: bool) {
        let now_ns = self.clock.now_ns;
        let own = &mut self.cpus[cpu as usize];
        let ran_ns = now_ns - own.charged_ns;
        if own.current == NONE || ran_ns == 0 {
            return;
        }
        let (start_ns, current, in_batch) = (own.charged_ns, own.current, own.batch);
        own.charged_ns = now_ns;
        self.account_work(cpu);
        let moved = self.vruntime_moved(current, ran_ns);
        let task = &mut self.tasks[current as usize];
        task.cpu_ns += ran_ns;
        task.vruntime = task.vruntime.wrapping_add(moved);
        if let Some(own) = &mut task.own {
            own.bucket.charge(start_ns, ran_ns);
            own.rate_ran_ns += ran_ns;
        }
        let group = &mut self.groups[task.group as usize];
        group.counters.cpu_ns += ran_ns;
        group.rate_ran_ns += ran_ns;
        if in_batch {
            group.counters.batch_ns += ran_ns;
        }
        group.charge_bucket(now_ns);
        if let Some(limit_ppm) = group.limit_ppm {
            let limit = &mut group.on_cpu[cpu as usize].limit;
            charge_limit(limit, limit_ppm, start_ns, now_ns);
        }
        if let Some(pool) = &mut group.pool {
            let lane = &mut group.lanes[cpu as usize];
            if !asks {
                pool.book(lane, ran_ns);
            } else if !pool.charge(lane, ran_ns, now_ns) {
                let group = task.group;
                self.throttle_cpu(group, cpu);
            }
        }
    }

    /// Throttles a group that has run out of runtime on a CPU.
    fn throttle_cpu(&mut self, group: u32, cpu: u32) {
        self.groups[group as usize].throttled_cpus.push_back(cpu);
        self.throttle_changed(group, Throttle::Quota(cpu));
        self.observer
            .happened(self.clock.now_ns, Event::Throttled { group, cpu });
    }

    /// Advance of a task's virtual runtime for a run: scaled by its weight
    /// among its group's runnable tasks, and by the group's weight.
    pub(super) fn vruntime_moved(&self, task: u32, ran_ns: u64) -> u64 {
        let task = &self.tasks[task as usize];
        let group = &self.groups[task.group as usize];
        let among_tasks = batch::vruntime_delta(ran_ns, task.weight);
        let weight_sum = group.weight_sum.max(u64::from(task.weight));
        let spread = among_tasks.saturating_mul(weight_sum) / u64::from(batch::WEIGHT_NICE_0);
        batch::vruntime_delta(spread, group.weight)
    }

    /// Returns the runtime that a group does not need on a CPU to its pool, if
    /// nothing of the group is left to run there.
    pub(super) fn give_back_runtime(&mut self, index: u32, cpu: u32) {
        let group = &mut self.groups[index as usize];
        let Some(pool) = &mut group.pool else { return };
        let part = &group.on_cpu[cpu as usize];
        if part.nr_queued > 0 || !part.throttled.is_empty() {
            return;
        }
        pool.give_back(&mut group.lanes[cpu as usize], self.machine.burst_enabled);
        if pool.nr_throttled_cpus() > 0 && pool.runtime_ns() > 0 {
            self.serve(index);
        }
    }

    /// End of a period: charges running tasks, refills the pool, and serves
    /// throttled CPUs.
    pub(super) fn period_ends(&mut self, index: u32) {
        let now_ns = self.clock.now_ns;
        for position in 0..self.groups[index as usize].running.len() {
            let cpu = self.groups[index as usize].running[position];
            self.charge(cpu, false);
        }
        let Some(pool) = &mut self.groups[index as usize].pool else {
            return;
        };
        pool.refill(self.machine.burst_enabled, now_ns);
        let runtime_ns = pool.runtime_ns();
        let (next_ns, nr_throttled) = (pool.next_boundary_ns(), pool.nr_throttled_cpus());
        self.timers.set(self.owners.period(index), next_ns);
        let group = index;
        self.observer
            .happened(now_ns, Event::Refilled { group, runtime_ns });
        if nr_throttled > 0 {
            self.serve(index);
        }
    }

    /// Serves throttled CPUs from the pool and unthrottles their tasks, first
    /// throttled first, which is the core's order.
    fn serve(&mut self, index: u32) {
        let now_ns = self.clock.now_ns;
        let group = &mut self.groups[index as usize];
        let Some(pool) = &mut group.pool else { return };
        let mut served = Vec::new();
        while let Some(&cpu) = group.throttled_cpus.front()
            && pool.serve(&mut group.lanes[cpu as usize], now_ns)
        {
            group.throttled_cpus.pop_front();
            served.push(cpu);
        }
        // No CPU takes a slice before all are out of debt.
        served.sort_unstable();
        for cpu in served {
            let group = index;
            self.observer
                .happened(now_ns, Event::Unthrottled { group, cpu });
            self.count_throttled(index, Throttle::Quota(cpu));
            self.unthrottle_one(index, Throttle::Quota(cpu));
        }
    }

    /// End of the windows of all per-CPU limits.
    pub(super) fn window_ends(&mut self) {
        for position in 0..self.limited_groups.len() {
            let index = self.limited_groups[position];
            // A task that was unthrottled may be waiting for another, busy CPU.
            for cpu in 0..self.machine.cpus {
                if !self.groups[index as usize].is_below_limit_on(cpu) && self.batch_waits_at(cpu) {
                    self.choose_if_idle(cpu);
                }
            }
            if let Some(below_limit) = &mut self.groups[index as usize].below_limit {
                below_limit.fill();
            }
            for cpu in 0..self.machine.cpus {
                if !self.groups[index as usize].on_cpu[cpu as usize]
                    .limited
                    .is_empty()
                {
                    self.throttle_changed(index, Throttle::Limit(cpu));
                }
            }
            for llc in 0..self.shared.len() as u32 {
                if !self.groups[index as usize].limited[llc as usize].is_empty() {
                    self.throttle_changed(index, Throttle::Cache(llc));
                }
            }
        }
    }

    /// A capped group may run again: tries as many of its tasks as there are
    /// CPUs, those that have waited longest first.
    pub(super) fn cap_lets_run(&mut self, index: u32) {
        for _ in 0..self.machine.cpus {
            let Some(task) = self.groups[index as usize].capped.pop_front() else {
                return;
            };
            self.unpark(task);
        }
        if !self.groups[index as usize].capped.is_empty() {
            let at_ns = self.clock.now_ns + CAP_RETRY_NS;
            self.timers.set(self.owners.cap(index), at_ns);
        }
    }
}
