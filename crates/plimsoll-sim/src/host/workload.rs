//! The workloads of `plimsoll load` as tasks of the model.

use std::collections::VecDeque;
use std::ops::Range;

use hdrhistogram::Histogram;
use plimsoll_load::schedule::{Request, Requests};
use plimsoll_load::steady::Pace;
use plimsoll_load::{Latency, LoadError};

use crate::scenario::Workload;

use super::task::{ENDLESS, Role};

/// Number of times that are recorded into a histogram at once. A histogram is
/// large; recording each time separately would be a cache miss each.
const AT_ONCE: usize = 128;

/// Histogram of waiting times, in ns.
#[derive(Debug)]
pub(super) struct Waits {
    histogram: Histogram<u64>,
    /// Times that are not in the histogram yet.
    latest: Vec<u64>,
    count: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Waits {
    fn new() -> Self {
        // Three digits and automatic resize: construction cannot fail with
        // these bounds.
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        histogram.auto(true);
        Self {
            histogram,
            latest: Vec::with_capacity(AT_ONCE),
            count: 0,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.latest.push(ns);
        if self.latest.len() == AT_ONCE {
            record(&mut self.histogram, self.latest.iter());
            self.latest.clear();
        }
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn latency(&self) -> Latency {
        self.latency_with(&[])
    }

    /// Latency including tasks that still wait.
    pub(super) fn latency_with(&self, waiting_ns: &[u64]) -> Latency {
        let count = self.count + waiting_ns.len() as u64;
        let more_ns: u128 = waiting_ns.iter().copied().map(u128::from).sum();
        let mean_us = (self.sum_ns + more_ns) as f64 / count.max(1) as f64 / 1e3;
        let max_ns = waiting_ns.iter().copied().fold(self.max_ns, u64::max);
        let mut histogram = self.histogram.clone();
        record(&mut histogram, self.latest.iter().chain(waiting_ns));
        Latency::of_histogram(&histogram, max_ns, mean_us)
    }
}

fn record<'a>(histogram: &mut Histogram<u64>, times_ns: impl Iterator<Item = &'a u64>) {
    for ns in times_ns {
        // The histogram resizes itself, so no value is too large for it.
        let _ = histogram.record(*ns);
    }
}

/// Requests, and the workers that serve them.
#[derive(Debug)]
pub(super) struct Service {
    requests: Requests,
    pub(super) next: Option<Request>,
    pub(super) queue: VecDeque<Request>,
    /// Workers without a request; the last one to become free is the first to
    /// be used.
    pub(super) free: Vec<u32>,
    deadline_ns: u64,
    /// Longest wait of a pending request before it counts as not answered.
    patience_ns: u64,
    from_ns: u64,
    pub(super) nr_arrived: u64,
    pub(super) nr_answered: u64,
    pub(super) nr_failed: u64,
    pub(super) latency: Waits,
}

impl Service {
    /// Draws the next request; none that arrives after `end_ns`.
    pub(super) fn advance(&mut self, end_ns: u64) {
        self.next = self.requests.next().filter(|r| r.intended_ns < end_ns);
    }

    pub(super) fn arrive(&mut self, request: Request) {
        self.nr_arrived += u64::from(request.intended_ns >= self.from_ns);
        self.queue.push_back(request);
    }

    /// Waiting times of pending requests that count as not answered: those past
    /// their deadline, or that have waited as long as the grace of `plimsoll
    /// load`. The outcome of the other pending requests is unknown.
    /// `in_service` has the arrival times of the requests being served.
    pub(super) fn given_up_ns(
        &self,
        now_ns: u64,
        in_service: impl Iterator<Item = u64>,
    ) -> Vec<u64> {
        let waiting = self.queue.iter().map(|request| request.intended_ns);
        let measured = waiting
            .chain(in_service)
            .filter(|&at_ns| at_ns >= self.from_ns);
        measured
            .map(|at_ns| now_ns - at_ns)
            .filter(|&waited_ns| waited_ns > self.patience_ns)
            .collect()
    }

    pub(super) fn answer(&mut self, arrived_ns: u64, now_ns: u64) {
        if arrived_ns < self.from_ns {
            return;
        }
        let waited_ns = now_ns - arrived_ns;
        self.nr_answered += 1;
        self.nr_failed += u64::from(waited_ns > self.deadline_ns);
        self.latency.add(waited_ns);
    }
}

#[derive(Debug)]
pub(super) enum Kind {
    Service(Box<Service>),
    Burn,
    Storm {
        /// Number of processes that have yet to start.
        left: u32,
        each_ns: u64,
        nr_ended: u64,
        ended_ns: u64,
        unfinished: u32,
    },
    Need {
        unfinished: u32,
        ended_ns: u64,
    },
    Steady {
        paces: Vec<Pace>,
    },
    Wake {
        every_ns: u64,
        late: Waits,
        from_ns: u64,
    },
}

/// A workload of a group.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) group: u32,
    pub(super) kind: Kind,
    pub(super) tasks: Range<u32>,
}

/// Initial tasks of a workload.
pub(super) struct Beginning {
    pub(super) kind: Kind,
    pub(super) roles: Vec<Role>,
    /// Work of each task in ns, or [`ENDLESS`].
    pub(super) work_ns: u64,
    /// Whether each task is bound to a CPU of its own.
    pub(super) pinned: bool,
}

/// CPU time of a wake-up: the cost of reading the clock.
pub(super) const WAKE_NS: u64 = 5_000;

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(ENDLESS)
}

/// Prepares a workload for a machine of `cpus`, measured from `from_ns` on.
pub(super) fn begin(
    workload: &Workload,
    cpus: u32,
    from_ns: u64,
    end_ns: u64,
) -> Result<Beginning, LoadError> {
    let tasks = |kind, roles, work_ns| Beginning {
        kind,
        roles,
        work_ns,
        pinned: false,
    };
    Ok(match workload {
        Workload::Service(config) => {
            config.validate()?;
            let mut service = Service {
                requests: config.requests(config.seed)?,
                next: None,
                queue: VecDeque::new(),
                free: Vec::new(),
                deadline_ns: ns(config.deadline),
                patience_ns: ns(config.deadline.min(config.grace)),
                from_ns,
                nr_arrived: 0,
                nr_answered: 0,
                nr_failed: 0,
                latency: Waits::new(),
            };
            service.advance(end_ns);
            let roles = vec![Role::Worker { arrived_ns: 0 }; config.workers];
            tasks(Kind::Service(Box::new(service)), roles, 0)
        }
        Workload::Burn(config) => tasks(Kind::Burn, vec![Role::Burner; config.burners], ENDLESS),
        Workload::Storm(config) => {
            config.validate()?;
            let first = (config.parallel as u32).min(config.processes);
            let kind = Kind::Storm {
                left: config.processes - first,
                each_ns: ns(config.cpu_each),
                nr_ended: 0,
                ended_ns: 0,
                unfinished: first,
            };
            tasks(
                kind,
                vec![Role::Process; first as usize],
                ns(config.cpu_each),
            )
        }
        Workload::Need(config) => {
            config.validate()?;
            let kind = Kind::Need {
                unfinished: config.tasks as u32,
                ended_ns: 0,
            };
            tasks(kind, vec![Role::Need; config.tasks], ns(config.cpu))
        }
        Workload::Steady(config) => {
            config.validate()?;
            let lanes = u64::from(cpus);
            let paces = (0..lanes).map(|lane| config.pace(lane, lanes)).collect();
            let role = |lane| Role::Steady { lane, given_ns: 0 };
            Beginning {
                kind: Kind::Steady { paces },
                roles: (0..cpus).map(role).collect(),
                work_ns: 0,
                pinned: config.pin,
            }
        }
        Workload::Wake(config) => {
            let every_ns = ns(config.every);
            let kind = Kind::Wake {
                every_ns,
                late: Waits::new(),
                from_ns,
            };
            let role = Role::Sleeper { due_ns: every_ns };
            tasks(kind, vec![role], WAKE_NS)
        }
    })
}
