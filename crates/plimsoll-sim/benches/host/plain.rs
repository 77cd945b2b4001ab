//! Naive implementation of the same host, as a baseline for speed and
//! utilisation. It finds the next event and the next task by linear search, and
//! has one run queue for all CPUs, no groups and no limits.

use plimsoll_engine::knobs::Class;
use plimsoll_load::schedule::{Request, Requests};
use plimsoll_sim::scenario::{Scenario, Workload};

const SLICE_NS: u64 = 4_000_000;

struct Task {
    batch: bool,
    service: Option<usize>,
    vruntime_ns: u64,
    /// Remaining work; `None` while the task sleeps.
    left_ns: Option<u64>,
    running: bool,
}

struct Service {
    requests: Requests,
    next: Request,
    queue: Vec<Request>,
}

#[derive(Clone, Copy)]
struct Running {
    task: usize,
    since_ns: u64,
    end_ns: u64,
}

/// A host in virtual time.
pub struct Plain {
    now_ns: u64,
    cpus: Vec<Option<Running>>,
    tasks: Vec<Task>,
    services: Vec<Service>,
    busy_ns: u64,
}

impl Plain {
    /// Builds the services and burners of a scenario; panics on other
    /// workloads.
    pub fn new(scenario: &Scenario) -> Self {
        let mut plain = Self {
            now_ns: 0,
            cpus: vec![None; scenario.machine.cpus as usize],
            tasks: Vec::new(),
            services: Vec::new(),
            busy_ns: 0,
        };
        for group in &scenario.groups {
            let batch = group.knobs.class == Some(Class::Batch);
            for workload in &group.workloads {
                plain.add(batch, workload);
            }
        }
        plain.fill();
        plain
    }

    fn add(&mut self, batch: bool, workload: &Workload) {
        let (count, service, left_ns) = match workload {
            Workload::Service(config) => {
                let mut requests = config.requests(config.seed).expect("a valid demand");
                let next = requests.next().expect("requests have no end");
                self.services.push(Service {
                    requests,
                    next,
                    queue: Vec::new(),
                });
                (config.workers, Some(self.services.len() - 1), None)
            }
            Workload::Burn(config) => (config.burners, None, Some(u64::MAX)),
            other => panic!("{} is not supported by the naive host", other.name()),
        };
        self.tasks.extend((0..count).map(|_| Task {
            batch,
            service,
            vruntime_ns: 0,
            left_ns,
            running: false,
        }));
    }

    /// CPU time used.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// Runs until `until_ns`.
    pub fn run_until(&mut self, until_ns: u64) {
        loop {
            let arrival =
                (0..self.services.len()).min_by_key(|&s| self.services[s].next.intended_ns);
            let arrival_ns = arrival.map_or(u64::MAX, |s| self.services[s].next.intended_ns);
            let ends = |cpu: usize| self.cpus[cpu].map_or(u64::MAX, |running| running.end_ns);
            let cpu = (0..self.cpus.len())
                .min_by_key(|&cpu| ends(cpu))
                .expect("there are CPUs");
            let end_ns = ends(cpu);
            if arrival_ns.min(end_ns) > until_ns {
                return;
            }
            if let Some(service) = arrival.filter(|_| arrival_ns < end_ns) {
                self.now_ns = arrival_ns;
                self.arrive(service);
            } else {
                self.now_ns = end_ns;
                self.stop(cpu);
            }
            self.fill();
        }
    }

    fn arrive(&mut self, service: usize) {
        let own = &mut self.services[service];
        let request = own.next;
        own.next = own.requests.next().expect("requests have no end");
        let asleep = |task: &&mut Task| task.service == Some(service) && task.left_ns.is_none();
        match self.tasks.iter_mut().find(asleep) {
            Some(worker) => worker.left_ns = Some(request.demand_ns),
            None => own.queue.push(request),
        }
        // Without an idle CPU, a CPU that runs batch work yields.
        let runs_batch = |running: &Running| self.tasks[running.task].batch;
        if self.cpus.iter().all(Option::is_some)
            && let Some(cpu) = self
                .cpus
                .iter()
                .position(|cpu| cpu.as_ref().is_some_and(runs_batch))
        {
            self.stop(cpu);
        }
    }

    /// Takes the task off a CPU. If its work is done, the task takes the next
    /// request or sleeps.
    fn stop(&mut self, cpu: usize) {
        let running = self.cpus[cpu].take().expect("the CPU is busy");
        let task = &mut self.tasks[running.task];
        let ran_ns = self.now_ns - running.since_ns;
        self.busy_ns += ran_ns;
        task.running = false;
        task.vruntime_ns += ran_ns;
        let left_ns = task.left_ns.unwrap_or(0);
        if left_ns == u64::MAX {
            return;
        }
        task.left_ns = (left_ns > ran_ns).then(|| left_ns - ran_ns);
        if let (None, Some(service)) = (task.left_ns, task.service) {
            let queue = &mut self.services[service].queue;
            task.left_ns = (!queue.is_empty()).then(|| queue.remove(0).demand_ns);
        }
    }

    /// Gives every idle CPU the runnable task with the highest priority.
    fn fill(&mut self) {
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].is_some() {
                continue;
            }
            let waits =
                |&task: &usize| !self.tasks[task].running && self.tasks[task].left_ns.is_some();
            let order = |&task: &usize| (self.tasks[task].batch, self.tasks[task].vruntime_ns);
            let Some(task) = (0..self.tasks.len()).filter(waits).min_by_key(order) else {
                return;
            };
            let own = &mut self.tasks[task];
            own.running = true;
            let run_ns = own.left_ns.unwrap_or(0).min(SLICE_NS);
            self.cpus[cpu] = Some(Running {
                task,
                since_ns: self.now_ns,
                end_ns: self.now_ns + run_ns,
            });
        }
    }
}
