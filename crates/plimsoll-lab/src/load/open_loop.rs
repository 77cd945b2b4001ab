//! Requests at random times that do not depend on the answers. A latency counts from the time at
//! which its request was due.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use plimsoll_load::clock::{now_ns, precise_timers};
use plimsoll_load::{Latency, Requests, nanos};
use serde::Serialize;

use super::{failed, figures, wait_until};
use crate::error::{LabError, Result};

/// Time for the threads to start before the run does.
const LEAD: Duration = Duration::from_millis(20);
/// Time after the end to wait for answers, and how often that is checked.
const GRACE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Figures of a run, without the requests of the warm-up.
#[derive(Debug, Serialize)]
pub struct Report {
    pub requests: usize,
    /// Requests that were answered late, with an error, or not at all.
    pub failures: u64,
    /// For requests without an answer: the time until they were given up.
    pub latency: Latency,
}

/// The requests that are on their way, and the figures of the others.
#[derive(Debug)]
pub struct Ledger {
    /// Start of the run, on the monotonic clock.
    begin_ns: u64,
    warmup_ns: u64,
    deadline_ns: u64,
    state: Mutex<State>,
    is_lost: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Due times by the number of the request, in ns after the start.
    pending: HashMap<u64, u64>,
    latencies_ns: Vec<u64>,
    failures: u64,
}

impl Ledger {
    /// A run that begins in a moment.
    pub fn new(requests: &Requests) -> Self {
        Self {
            begin_ns: now_ns() + nanos(LEAD),
            warmup_ns: nanos(requests.warmup),
            deadline_ns: nanos(requests.deadline),
            state: Mutex::default(),
            is_lost: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn answered(&self, number: u64, is_good: bool) {
        self.answered_at(number, is_good, self.now_ns());
    }

    /// The time since the start.
    fn now_ns(&self) -> u64 {
        now_ns().saturating_sub(self.begin_ns)
    }

    fn answered_at(&self, number: u64, is_good: bool, now_ns: u64) {
        let mut state = self.state();
        if let Some(due_ns) = state.pending.remove(&number) {
            self.count(&mut state, due_ns, now_ns, is_good);
        }
    }

    fn count(&self, state: &mut State, due_ns: u64, now_ns: u64, is_good: bool) {
        if due_ns < self.warmup_ns {
            return;
        }
        let latency_ns = now_ns.saturating_sub(due_ns);
        state.latencies_ns.push(latency_ns);
        state.failures += u64::from(!is_good || latency_ns > self.deadline_ns);
    }

    /// Ends the run, because a connection is closed.
    pub fn lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Sends each request when it is due, by its number and CPU time in ns; waits for the answers.
    pub fn run(
        &self,
        requests: &Requests,
        mut send: impl FnMut(u64, u64) -> io::Result<()>,
    ) -> Result<Report> {
        let end_ns = requests.end_ns();
        precise_timers();
        for (number, (due_ns, demand_ns)) in (0..).zip(requests.schedule()) {
            if due_ns >= end_ns {
                break;
            }
            wait_until(self.begin_ns + due_ns);
            self.check()?;
            self.state().pending.insert(number, due_ns);
            send(number, demand_ns).map_err(failed("sending a request"))?;
        }
        let give_up_ns = self.begin_ns + end_ns + nanos(GRACE);
        while !self.state().pending.is_empty() && now_ns() < give_up_ns {
            self.check()?;
            thread::sleep(LOOK_EVERY);
        }
        Ok(self.report_at(self.now_ns()))
    }

    fn check(&self) -> Result<()> {
        if self.is_lost.load(Ordering::Relaxed) {
            let why = "the server has closed a connection";
            return Err(LabError::Load(why.to_owned()));
        }
        Ok(())
    }

    fn report_at(&self, now_ns: u64) -> Report {
        let mut state = self.state();
        for (_, due_ns) in std::mem::take(&mut state.pending) {
            self.count(&mut state, due_ns, now_ns, false);
        }
        Report {
            requests: state.latencies_ns.len(),
            failures: state.failures,
            latency: figures::latency(std::mem::take(&mut state.latencies_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_load::Arrivals;

    use super::*;

    fn requests() -> Requests {
        Requests {
            arrivals: Arrivals {
                rate: 2_000.0,
                burst_size: None,
                burst_every: None,
            },
            service: "exp:1ms".parse().unwrap(),
            duration: Duration::from_millis(40),
            warmup: Duration::from_millis(20),
            deadline: Duration::from_secs(3_600),
            seed: 1,
        }
    }

    #[test]
    fn each_request_is_sent_once_and_the_warmup_is_not_measured() {
        let ledger = Ledger::new(&requests());
        let mut sent = Vec::new();
        let report = ledger.run(&requests(), |number, demand_ns| {
            sent.push((number, demand_ns));
            ledger.answered(number, true);
            ledger.answered(number, false);
            Ok(())
        });
        let report = report.unwrap();
        let schedule = requests().schedule();
        let due: Vec<_> = schedule.take_while(|(ns, _)| *ns < 60_000_000).collect();
        let measured = due.iter().filter(|(ns, _)| *ns >= 20_000_000).count();
        let demands = due.iter().map(|(_, demand_ns)| *demand_ns);
        assert_eq!(sent, (0..).zip(demands).collect::<Vec<_>>());
        assert_eq!((report.requests, report.failures), (measured, 0));
    }

    #[test]
    fn latency_counts_from_the_due_time_and_late_bad_and_missing_answers_are_failures() {
        const MS: u64 = 1_000_000;
        let ledger = Ledger {
            deadline_ns: 5_000 * MS,
            ..Ledger::new(&requests())
        };
        let due = [(0, 9_000), (1, 1_000), (2, 9_000), (3, 9_000)];
        let due = due.map(|(number, ms)| (number, ms * MS));
        ledger.state().pending.extend(due);
        for (number, is_good) in [(0, true), (1, true), (2, false)] {
            ledger.answered_at(number, is_good, 10_000 * MS);
        }
        let report = ledger.report_at(10_500 * MS);
        assert_eq!((report.requests, report.failures), (4, 3));
        let latency = report.latency;
        assert_eq!((latency.p50_us, latency.max_us), (1e6, 9e6));
    }

    #[test]
    fn closed_connection_is_an_error() {
        let ledger = Ledger::new(&requests());
        ledger.lost();
        let why = ledger.run(&requests(), |_, _| Ok(())).unwrap_err();
        assert!(why.to_string().contains("closed"), "{why}");
    }
}
