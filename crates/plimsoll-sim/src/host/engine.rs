//! The host: its state and its event loop.

use plimsoll_policy::batch;

use crate::scenario::{Machine, Scenario};

use super::batch_grant::{BatchGrant, GRAIN_NS};
use super::clock::{Clock, work_of_ns};
use super::cpu::Cpu;
use super::cpuset::CpuSet;
use super::group::Group;
use super::observe::Observer;
use super::owners::{Owner, Owners};
use super::rates::{RATES_EVERY_NS, Rates};
use super::runqueue::RunQueue;
use super::task::{OwnCap, Role, State, Task};
use super::throttled::Throttle;
use super::timers::Timers;
use super::work::Step;
use super::workload::{self, Kind, Work};
use super::{HostError, LONGEST_NS};

/// A host in virtual time, at some moment of a scenario.
#[derive(Debug)]
pub struct Host<O: Observer = ()> {
    pub(super) machine: Machine,
    pub(super) seed: u64,
    pub(super) from_ns: u64,
    pub(super) end_ns: u64,
    pub(super) clock: Clock,
    /// Timers in wall time.
    pub(super) timers: Timers,
    /// Ends of the work of running tasks, on the work clock.
    pub(super) ends: Timers,
    /// Ends of the work of running tasks that burn CPU time, in wall time.
    pub(super) time_ends: Timers,
    pub(super) owners: Owners,
    pub(super) cpus: Vec<Cpu>,
    pub(super) tasks: Vec<Task>,
    pub(super) groups: Vec<Group>,
    pub(super) works: Vec<Work>,
    /// Groups with a per-CPU limit.
    pub(super) limited_groups: Vec<u32>,
    /// Queues of batch tasks, by last-level cache.
    pub(super) shared: Vec<RunQueue>,
    /// Minimum virtual runtime of each queue: fair queues by CPU, then batch
    /// queues by cache. Never decreases.
    pub(super) minima: Vec<u64>,
    /// For each queue, the number of throttled tasks that may run again but are
    /// not queued yet.
    pub(super) nr_throttled: Vec<u32>,
    /// Throttle reasons to check again, by group.
    pub(super) pending_unthrottles: Vec<(u32, Throttle)>,
    pub(super) idle: CpuSet,
    /// Idle CPUs that no task is on its way to.
    pub(super) free: CpuSet,
    /// First CPUs of cores on which all CPUs are free.
    pub(super) free_cores: CpuSet,
    /// CPUs that run batch work.
    pub(super) batch_on: CpuSet,
    /// CPUs that run batch work and count as idle for normal work: no server
    /// slice is running there, and no task is on its way.
    pub(super) yielding: CpuSet,
    /// CPUs on which unbound fair tasks wait.
    pub(super) fair_waits: CpuSet,
    /// CPUs on which bound batch tasks wait.
    pub(super) bound_waits: CpuSet,
    /// Caches on which batch tasks wait.
    pub(super) batch_waits: CpuSet,
    /// Total number of entries in the batch queues.
    pub(super) nr_shared: u32,
    pub(super) batch_grant: BatchGrant,
    pub(super) rates: Rates,
    /// CPUs to reschedule before time advances.
    resched_cpus: Vec<u32>,
    /// Counter that rotates the starting point of searches.
    pub(super) rotation: u32,
    /// CPU at which the search for idle CPUs to reschedule starts.
    pub(super) rouse_from: u32,
    pub(super) next_ticket: u32,
    pub(super) next_number: u32,
    /// CPU time of batch work at its last server slice.
    pub(super) batch_at_server_ns: u64,
    /// CPU time of the classes at the end of the warm-up.
    pub(super) normal_before_ns: u64,
    pub(super) batch_before_ns: u64,
    pub(super) events: u64,
    pub(super) observer: O,
}

impl Host {
    /// Creates a host at the start of a scenario.
    ///
    /// # Errors
    /// Names the part of the scenario that is invalid.
    pub fn new(scenario: &Scenario) -> Result<Self, HostError> {
        Self::with_observer(scenario, ())
    }
}

impl<O: Observer> Host<O> {
    /// Creates a host at the start of a scenario, with an observer.
    ///
    /// # Errors
    /// Names the part of the scenario that is invalid.
    pub fn with_observer(scenario: &Scenario, observer: O) -> Result<Self, HostError> {
        let machine = scenario.machine;
        machine.check()?;
        if scenario.groups.is_empty() {
            return Err(HostError::NoGroups);
        }
        let (from_ns, length_ns) = (scenario.warmup_ns, scenario.duration_ns);
        let end_ns = from_ns.saturating_add(length_ns);
        if length_ns == 0 || end_ns > LONGEST_NS {
            return Err(HostError::Length { asked_ns: end_ns });
        }
        let cpus = machine.cpus;
        let llcs = cpus / machine.cpus_per_llc;
        let mut idle = CpuSet::new(cpus);
        let mut free_cores = CpuSet::new(cpus);
        for cpu in 0..cpus {
            idle.set(cpu, true);
            free_cores.set(cpu, cpu.is_multiple_of(machine.threads_per_core));
        }
        let mut host = Self {
            machine,
            seed: scenario.seed,
            from_ns,
            end_ns,
            clock: Clock::new(&machine),
            timers: Timers::new(0),
            ends: Timers::new(cpus as usize),
            time_ends: Timers::new(cpus as usize),
            owners: Owners::new(cpus, 0, 0, 0),
            cpus: (0..cpus).map(Cpu::new).collect(),
            tasks: Vec::new(),
            groups: Vec::new(),
            works: Vec::new(),
            limited_groups: Vec::new(),
            shared: (0..llcs).map(|_| RunQueue::default()).collect(),
            minima: vec![0; (cpus + llcs) as usize],
            nr_throttled: vec![0; (cpus + llcs) as usize],
            pending_unthrottles: Vec::new(),
            free: idle.clone(),
            idle,
            free_cores,
            batch_on: CpuSet::new(cpus),
            yielding: CpuSet::new(cpus),
            fair_waits: CpuSet::new(cpus),
            bound_waits: CpuSet::new(cpus),
            batch_waits: CpuSet::new(llcs),
            nr_shared: 0,
            batch_grant: BatchGrant::new(scenario)?,
            rates: Rates::default(),
            resched_cpus: Vec::new(),
            rotation: 0,
            rouse_from: 0,
            next_ticket: 0,
            next_number: 0,
            batch_at_server_ns: 0,
            normal_before_ns: 0,
            batch_before_ns: 0,
            events: 0,
            observer,
        };
        host.populate(scenario)?;
        host.begin();
        Ok(host)
    }

    fn populate(&mut self, scenario: &Scenario) -> Result<(), HostError> {
        for (index, group) in scenario.groups.iter().enumerate() {
            let mut own = Group::new(&group.name, &group.knobs, &self.machine)?;
            let first = self.tasks.len() as u32;
            own.tasks = first..first;
            if own.limit_ppm.is_some() {
                self.limited_groups.push(index as u32);
            }
            if own.bucket.is_some() && own.has_soft_cap() {
                self.rates.groups.push(index as u32);
            }
            self.groups.push(own);
            for work in &group.workloads {
                let beginning = workload::begin(work, self.machine.cpus, self.from_ns, self.end_ns)
                    .map_err(|source| HostError::Workload {
                        group: group.name.clone(),
                        source: Box::new(source),
                    })?;
                self.add_work(index as u32, beginning);
            }
        }
        let (tasks, works, groups) = (self.tasks.len(), self.works.len(), self.groups.len());
        self.owners = Owners::new(self.machine.cpus, tasks, works, groups);
        self.timers = Timers::new(self.owners.count());
        Ok(())
    }

    fn add_work(&mut self, group: u32, beginning: workload::Beginning) {
        let first = self.tasks.len() as u32;
        let work = self.works.len() as u32;
        let own = &self.groups[group as usize];
        let weight = batch::weight(own.nice);
        let caps = own.task_caps;
        for (lane, role) in beginning.roles.iter().enumerate() {
            let cpu = (first + lane as u32) % self.machine.cpus;
            let own = caps.and_then(|params| OwnCap::new(params, 0));
            self.tasks.push(Task {
                number: self.next_number,
                group,
                workload: work,
                cpu: if beginning.pinned { lane as u32 } else { cpu },
                pinned: beginning.pinned,
                state: State::Asleep,
                role: *role,
                background: own.as_ref().is_some_and(|own| own.bucket.is_background()),
                weight,
                vruntime: 0,
                home: cpu,
                ticket: 0,
                runnable_ns: 0,
                left: work_of_ns(beginning.work_ns),
                own,
                cpu_ns: 0,
                done: 0,
            });
            self.next_number += 1;
        }
        let end = self.tasks.len() as u32;
        self.groups[group as usize].tasks.end = end;
        self.works.push(Work {
            group,
            kind: beginning.kind,
            tasks: first..end,
        });
    }

    /// Sets the first timers and starts the tasks that have work at the start.
    fn begin(&mut self) {
        self.timers.set(self.owners.warm_up(), self.from_ns);
        for group in 0..self.groups.len() as u32 {
            if let Some(pool) = &self.groups[group as usize].pool {
                self.timers
                    .set(self.owners.period(group), pool.next_boundary_ns());
            }
        }
        if self.groups.iter().any(Group::has_soft_cap) {
            self.timers.set(self.owners.rates(), RATES_EVERY_NS);
        }
        if self.batch_grant.is_limited() {
            self.timers.set(self.owners.grain(), GRAIN_NS);
        }
        let batch = |group: &Group| group.batch || group.has_soft_cap();
        if self.batch_grant.tolerance_runtime_ns > 0 && self.groups.iter().any(batch) {
            let period_ns = self.batch_grant.tolerance_period_ns;
            self.timers.set(self.owners.server(), period_ns);
        }
        for work in 0..self.works.len() as u32 {
            if let Kind::Service(service) = &self.works[work as usize].kind
                && let Some(next) = service.next
            {
                self.timers.set(self.owners.arrival(work), next.intended_ns);
            }
        }
        for task in 0..self.tasks.len() as u32 {
            match self.first_step(task) {
                Step::Work => self.begin_task(task),
                Step::SleepUntil(at_ns) => self.timers.set(self.owners.task(task), at_ns),
                Step::Block | Step::End => {}
            }
        }
        self.reschedule_pending();
    }

    /// Virtual time since the start of the warm-up.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns
    }

    /// End of the run in virtual time.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Whether the run has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.clock.now_ns >= self.end_ns
    }

    /// Number of events so far: expired timers and finished pieces of work.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the observer, after telling it of the tasks that run now.
    pub fn into_observer(mut self) -> O {
        self.show_running();
        self.observer
    }

    /// Runs until `until_ns` of virtual time, or to the end of the run if that
    /// is earlier. The result does not depend on the number of steps.
    pub fn run_until(&mut self, until_ns: u64) {
        let until_ns = until_ns.min(self.end_ns);
        loop {
            let timer = self.timers.first();
            let end = self.first_end();
            let timer_ns = timer.map_or(u64::MAX, |(at_ns, _)| at_ns);
            let end_ns = end.map_or(u64::MAX, |(at_ns, _)| at_ns);
            let next_ns = timer_ns.min(end_ns);
            if next_ns > until_ns {
                break;
            }
            self.clock.advance(next_ns);
            self.events += 1;
            // A task whose work ends together with its slice has finished.
            match (end, timer) {
                (Some((_, cpu)), _) if end_ns <= timer_ns => self.complete(cpu),
                (_, Some((_, owner))) => self.expire(owner),
                _ => break,
            }
            self.reschedule_pending();
        }
        if until_ns > self.clock.now_ns {
            self.clock.advance(until_ns);
        }
    }

    /// The first task to finish: when, and on which CPU.
    fn first_end(&self) -> Option<(u64, u32)> {
        let end = self.ends.first();
        let end = end.map(|(work, cpu)| (self.clock.when(work), cpu));
        end.into_iter().chain(self.time_ends.first()).min()
    }

    fn expire(&mut self, owner: u32) {
        let kind = self.owners.of(owner);
        // These owners set their timer again or cancel it.
        match kind {
            Owner::Cpu(cpu) => return self.must_choose(cpu),
            Owner::Arrival(work) => return self.request_arrives(work),
            Owner::Period(group) => return self.period_ends(group),
            Owner::Rates => return self.compare_rates(),
            Owner::Grain => return self.grain_ends(),
            Owner::Turn => return self.server_slice_due(),
            _ => self.timers.cancel(owner),
        }
        match kind {
            Owner::Task(task) => self.task_is_due(task),
            Owner::Cap(group) => self.cap_lets_run(group),
            Owner::Window => self.window_ends(),
            Owner::Balance => self.rouse_idle_cpus(),
            _ => self.begin_measuring(),
        }
    }

    /// Reschedules CPUs until none is pending.
    fn reschedule_pending(&mut self) {
        self.unthrottle_pending();
        let mut position = 0;
        while let Some(&cpu) = self.resched_cpus.get(position) {
            position += 1;
            self.cpus[cpu as usize].must_choose = false;
            self.choose(cpu);
            self.unthrottle_pending();
        }
        self.resched_cpus.clear();
        self.update_missing_cpus();
    }

    /// Marks a CPU to be rescheduled before time advances.
    pub(super) fn must_choose(&mut self, cpu: u32) {
        let own = &mut self.cpus[cpu as usize];
        if !own.must_choose {
            own.must_choose = true;
            self.resched_cpus.push(cpu);
        }
    }

    pub(super) fn choose_if_idle(&mut self, cpu: u32) {
        if self.idle.contains(cpu) {
            self.must_choose(cpu);
        }
    }

    fn task_is_due(&mut self, task: u32) {
        match self.tasks[task as usize].state {
            State::Parked => self.unpark(task),
            _ => match self.due_step(task) {
                Step::Work => self.wake(task),
                Step::SleepUntil(at_ns) => self.timers.set(self.owners.task(task), at_ns),
                Step::Block | Step::End => {}
            },
        }
    }

    fn request_arrives(&mut self, work: u32) {
        let end_ns = self.end_ns;
        let Kind::Service(service) = &mut self.works[work as usize].kind else {
            return;
        };
        let Some(request) = service.next else { return };
        service.arrive(request);
        service.advance(end_ns);
        let timer = self.owners.arrival(work);
        match service.next {
            Some(next) => self.timers.set(timer, next.intended_ns),
            None => self.timers.cancel(timer),
        }
        let worker = service.free.pop();
        if let Some(worker) = worker
            && self.due_step(worker) == Step::Work
        {
            self.wake(worker);
        }
    }

    /// Ends the warm-up: resets all figures except those of workloads that have
    /// a beginning and an end of their own.
    fn begin_measuring(&mut self) {
        for cpu in 0..self.machine.cpus {
            self.charge(cpu, false);
        }
        self.normal_before_ns = self.clock.normal_ns;
        self.batch_before_ns = self.clock.batch_ns;
        self.batch_grant.begin_measuring(self.clock.missing_ns);
        for group in &mut self.groups {
            group.counters = super::group::Counters::default();
            group.stats_before = group
                .pool
                .map_or_else(Default::default, |pool| pool.stats());
        }
        for task in &mut self.tasks {
            if !matches!(task.role, Role::Process | Role::Need) {
                task.cpu_ns = 0;
            }
            task.done = 0;
        }
    }

    /// Whether a task is in the batch class now.
    pub(super) fn is_batch(&self, task: u32) -> bool {
        let task = &self.tasks[task as usize];
        let group = &self.groups[task.group as usize];
        group.batch || group.background || task.background
    }

    pub(super) fn llc_of(&self, cpu: u32) -> u32 {
        cpu / self.machine.cpus_per_llc
    }
}
