//! Builds the report of a host, at its end or before.

use plimsoll_policy::PPM;

use super::engine::Host;
use super::group::Group;
use super::observe::Observer;
use super::report::{
    BandwidthFigures, GroupReport, HeadroomFigures, HostReport, MachineFigures, WorkloadReport,
};
use super::task::{NONE, State, WORK_SHIFT};
use super::workload::{Kind, Work};

impl<O: Observer> Host<O> {
    /// Report of the run so far. Before the end of the warm-up, the figures are
    /// those of the warm-up.
    #[must_use]
    pub fn report(&self) -> HostReport {
        let groups = (0..self.groups.len()).map(|index| self.group_report(index));
        let headroom = self
            .batch_grant
            .shortfall_ns(self.clock.missing_ns)
            .map(|shortfall_ns| HeadroomFigures {
                headroom_ratio: f64::from(self.batch_grant.headroom_ppm) / PPM as f64,
                shortfall_ns,
            });
        HostReport {
            seed: self.seed,
            measured_ns: self.measured_ns(),
            complete: self.is_over(),
            events: self.events,
            machine: self.machine_figures(),
            headroom,
            groups: groups.collect(),
        }
    }

    fn measured_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns;
        now_ns.checked_sub(self.from_ns).unwrap_or(now_ns)
    }

    fn machine_figures(&self) -> MachineFigures {
        let cpus = self.machine.cpus;
        let all_ns = self.measured_ns() * u64::from(cpus);
        let normal_ns = self.clock.normal_ns - self.normal_before_ns;
        let batch_ns = self.clock.batch_ns - self.batch_before_ns;
        let ratio = |ns: u64| ns as f64 / all_ns.max(1) as f64;
        MachineFigures {
            cpus,
            normal_ratio: ratio(normal_ns),
            batch_ratio: ratio(batch_ns),
            idle_ratio: ratio(all_ns - normal_ns - batch_ns),
        }
    }

    /// Time of running tasks that is not charged yet, of those for which
    /// `counts` holds.
    fn running_ns(&self, counts: impl Fn(u32, bool) -> bool) -> u64 {
        let running = self.cpus.iter().filter(|cpu| cpu.current != NONE);
        running
            .filter(|cpu| counts(cpu.current, cpu.batch))
            .map(|cpu| self.clock.now_ns - cpu.charged_ns)
            .sum()
    }

    fn group_report(&self, index: usize) -> GroupReport {
        let now_ns = self.clock.now_ns;
        let group = &self.groups[index];
        let of_group = |task: u32| self.tasks[task as usize].group as usize == index;
        let cpu_ns = group.counters.cpu_ns + self.running_ns(|task, _| of_group(task));
        let batch_ns =
            group.counters.batch_ns + self.running_ns(|task, batch| batch && of_group(task));
        let waits = |state| matches!(state, State::Queued | State::Parked);
        let waiting = self
            .tasks
            .iter()
            .filter(|task| waits(task.state) && task.group as usize == index);
        let from_ns = self.from_ns.min(now_ns);
        let waiting_ns: u64 = waiting
            .map(|task| now_ns - task.runnable_ns.max(from_ns))
            .sum();
        let works = self
            .works
            .iter()
            .filter(|work| work.group as usize == index);
        GroupReport {
            name: group.name.clone(),
            cpu_ns,
            cpus_used: cpu_ns as f64 / self.measured_ns().max(1) as f64,
            batch_ns,
            wait_ns: group.counters.wait_ns + waiting_ns,
            nr_switches: group.counters.nr_switches,
            nr_preemptions: group.counters.nr_preemptions,
            bandwidth: bandwidth_figures(group),
            nr_capped: group.counters.nr_capped,
            workloads: works.map(|work| self.work_report(work)).collect(),
        }
    }

    fn work_report(&self, work: &Work) -> WorkloadReport {
        let now_ns = self.clock.now_ns;
        let tasks = &self.tasks[work.tasks.start as usize..work.tasks.end as usize];
        let running_ns = self.running_ns(|task, _| work.tasks.contains(&task));
        let cpu_ns = tasks.iter().map(|task| task.cpu_ns).sum::<u64>() + running_ns;
        match &work.kind {
            Kind::Service(service) => {
                let given_up_ns = service.given_up_ns(now_ns, self.in_service(work));
                WorkloadReport::Service {
                    requests: service.nr_arrived,
                    answered: service.nr_answered,
                    failures: service.nr_failed + given_up_ns.len() as u64,
                    latency: service.latency.latency_with(&given_up_ns),
                }
            }
            Kind::Burn => {
                let done_ns = |task| self.done_ns(task);
                let done = work.tasks.clone().map(done_ns);
                WorkloadReport::Burn {
                    cpu_ns,
                    work_ns: done.clone().sum(),
                    work_least_ns: done.clone().min().unwrap_or(0),
                    work_most_ns: done.max().unwrap_or(0),
                }
            }
            Kind::Storm {
                nr_ended,
                ended_ns,
                unfinished,
                ..
            } => WorkloadReport::Storm {
                processes: *nr_ended,
                elapsed_ns: if *unfinished == 0 { *ended_ns } else { now_ns },
                cpu_ns,
            },
            Kind::Need {
                unfinished,
                ended_ns,
            } => {
                let complete = *unfinished == 0;
                let elapsed_ns = if complete { *ended_ns } else { now_ns };
                WorkloadReport::Need {
                    complete,
                    elapsed_ns,
                    cpu_ns,
                    rate: cpu_ns as f64 / elapsed_ns.max(1) as f64,
                }
            }
            Kind::Steady { .. } => WorkloadReport::Steady {
                cpu_ns,
                percent_achieved: 100.0 * cpu_ns as f64
                    / (self.measured_ns() * u64::from(self.machine.cpus)).max(1) as f64,
            },
            Kind::Wake { late, .. } => WorkloadReport::Wake {
                wakeups: late.count(),
                late: late.latency(),
            },
        }
    }

    /// Arrival times of the requests in service.
    fn in_service<'a>(&'a self, work: &'a Work) -> impl Iterator<Item = u64> + 'a {
        let tasks = &self.tasks[work.tasks.start as usize..work.tasks.end as usize];
        let busy = tasks.iter().filter(|task| task.state != State::Asleep);
        busy.filter_map(|task| match task.role {
            super::task::Role::Worker { arrived_ns } => Some(arrived_ns),
            _ => None,
        })
    }

    /// Work of a task up to now.
    fn done_ns(&self, task: u32) -> u64 {
        let own = &self.tasks[task as usize];
        let cpu = &self.cpus[own.cpu as usize];
        let mut done = own.done;
        if own.state == State::Running && cpu.current == task {
            let elapsed = self.clock.work.saturating_sub(cpu.work_mark);
            done += super::clock::scaled(elapsed, cpu.rate_ppm);
        }
        done >> WORK_SHIFT
    }
}

fn bandwidth_figures(group: &Group) -> Option<BandwidthFigures> {
    let (now, before) = (group.pool?.stats(), group.stats_before);
    Some(BandwidthFigures {
        nr_periods: now.nr_periods - before.nr_periods,
        nr_throttled: now.nr_throttled - before.nr_throttled,
        throttled_ns: now.throttled_ns - before.throttled_ns,
        nr_bursts: now.nr_bursts - before.nr_bursts,
        burst_ns: now.burst_ns - before.burst_ns,
    })
}
