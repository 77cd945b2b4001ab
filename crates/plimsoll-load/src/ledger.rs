//! Requests that are sent when they are due, independent of the answers to earlier ones. A latency
//! counts from the time at which its request was due.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock::{now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::report::{Ending, Latency, SeriesPoint, ServiceReport};
use crate::requests::Requests;
use crate::units::{nanos, seconds};

/// Time for the threads to start before the run does.
const LEAD: Duration = Duration::from_millis(20);
/// Longest sleep before a check whether the run was stopped.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Interval at which outstanding answers are checked after the end.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The requests of a run that are on their way, and the outcomes of the others.
#[derive(Debug)]
pub struct Ledger {
    requests: Requests,
    /// Start of the run, on the monotonic clock.
    begin_ns: u64,
    state: Mutex<State>,
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Due times by the number of the request, in ns after the start.
    pending: HashMap<u64, u64>,
    outcomes: Vec<Outcome>,
}

/// Outcome of a request that was due after the warm-up.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    /// Due time, in ns after the warm-up.
    due_ns: u64,
    /// Time from then to the answer, or until the request was given up.
    latency_ns: u64,
    failed: bool,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Run {
    measured_ns: u64,
    ending: Ending,
    outcomes: Vec<Outcome>,
}

impl Ledger {
    /// A run that begins in a moment.
    #[must_use]
    pub fn new(requests: &Requests) -> Self {
        Self {
            requests: requests.clone(),
            begin_ns: now_ns() + nanos(LEAD),
            state: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since the start.
    fn now_ns(&self) -> u64 {
        now_ns().saturating_sub(self.begin_ns)
    }

    /// Records an answer. One that is not good counts as a failure.
    pub fn answered(&self, number: u64, is_good: bool) {
        self.answered_at(number, is_good, self.now_ns());
    }

    fn answered_at(&self, number: u64, is_good: bool, now_ns: u64) {
        let mut state = self.state();
        if let Some(due_ns) = state.pending.remove(&number) {
            self.count(&mut state, due_ns, now_ns, is_good);
        }
    }

    fn count(&self, state: &mut State, due_ns: u64, now_ns: u64, is_good: bool) {
        let Some(after_warmup_ns) = due_ns.checked_sub(nanos(self.requests.warmup)) else {
            return;
        };
        let latency_ns = now_ns.saturating_sub(due_ns);
        state.outcomes.push(Outcome {
            due_ns: after_warmup_ns,
            latency_ns,
            failed: !is_good || latency_ns > nanos(self.requests.deadline),
        });
    }

    /// Ends the run now: no more requests are sent.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Sends each request when it is due, by its number and CPU time in ns. After the end, waits
    /// for answers as long as `grace`.
    ///
    /// # Errors
    /// [`LoadError::Io`] if `send` fails.
    pub fn run(
        &self,
        grace: Duration,
        mut send: impl FnMut(u64, u64) -> io::Result<()>,
    ) -> Result<Run, LoadError> {
        let mut end_ns = self.requests.end_ns();
        precise_timers();
        for (number, (due_ns, demand_ns)) in (0..).zip(self.requests.schedule()) {
            self.sleep_until(due_ns.min(end_ns));
            if self.is_stopped() {
                end_ns = end_ns.min(self.now_ns());
            }
            if due_ns >= end_ns {
                break;
            }
            self.state().pending.insert(number, due_ns);
            // The sender may be behind. No answer would count any more.
            if self.now_ns() < end_ns.saturating_add(nanos(grace)) {
                send(number, demand_ns).map_err(|e| LoadError::io("sending a request", e))?;
            }
        }
        let give_up_ns = end_ns.saturating_add(nanos(grace));
        while !self.state().pending.is_empty() && self.now_ns() < give_up_ns {
            thread::sleep(LOOK_EVERY);
        }
        Ok(self.ended_at(end_ns, self.now_ns()))
    }

    /// Sleeps until a time after the start, or the run is stopped.
    fn sleep_until(&self, due_ns: u64) {
        loop {
            let now_ns = self.now_ns();
            if now_ns >= due_ns || self.is_stopped() {
                return;
            }
            sleep_until(self.begin_ns + due_ns.min(now_ns + nanos(SLEEP_MAX)));
        }
    }

    /// Gives up all pending requests.
    fn ended_at(&self, end_ns: u64, now_ns: u64) -> Run {
        let mut state = self.state();
        for (_, due_ns) in std::mem::take(&mut state.pending) {
            self.count(&mut state, due_ns, now_ns, false);
        }
        Run {
            measured_ns: end_ns.saturating_sub(nanos(self.requests.warmup)),
            ending: if end_ns < self.requests.end_ns() {
                Ending::Stopped
            } else {
                Ending::Complete
            },
            outcomes: std::mem::take(&mut state.outcomes),
        }
    }
}

impl Run {
    /// Figures of the run, also over time if there is an interval.
    #[must_use]
    pub fn report(&self, series_interval: Option<Duration>) -> ServiceReport {
        let (latency, failures) = figures(&self.outcomes);
        ServiceReport {
            measured_seconds: seconds(self.measured_ns),
            requests: self.outcomes.len() as u64,
            failures,
            latency,
            ending: self.ending,
            series: series_interval.map_or_else(Vec::new, |every| self.series(nanos(every))),
        }
    }

    fn series(&self, interval_ns: u64) -> Vec<SeriesPoint> {
        let count = self.measured_ns.div_ceil(interval_ns) as usize;
        let mut intervals = vec![Vec::new(); count];
        for outcome in &self.outcomes {
            if let Some(interval) = intervals.get_mut((outcome.due_ns / interval_ns) as usize) {
                interval.push(*outcome);
            }
        }
        let point = |(index, outcomes): (u64, &Vec<Outcome>)| {
            let (latency, failures) = figures(outcomes);
            SeriesPoint {
                at_seconds: seconds(index * interval_ns),
                count: outcomes.len() as u64,
                failures,
                p50_us: latency.p50_us,
                p99_us: latency.p99_us,
                max_us: latency.max_us,
            }
        };
        (0..).zip(&intervals).map(point).collect()
    }
}

/// Latencies, and the number of failures.
fn figures(outcomes: &[Outcome]) -> (Latency, u64) {
    let failures = outcomes.iter().filter(|outcome| outcome.failed).count();
    let latencies = outcomes.iter().map(|outcome| outcome.latency_ns);
    (Latency::of(latencies.collect()), failures as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrivals::Arrivals;

    const MS: u64 = 1_000_000;
    const HOUR: Duration = Duration::from_secs(3_600);

    fn requests() -> Requests {
        Requests {
            arrivals: Arrivals::poisson(2_000.0),
            service: "exp:1ms".parse().unwrap(),
            duration: Duration::from_millis(40),
            warmup: Duration::from_millis(20),
            deadline: HOUR,
            seed: 1,
        }
    }

    #[test]
    fn each_request_is_sent_once_and_the_warmup_is_not_measured() {
        let ledger = Ledger::new(&requests());
        let mut sent = Vec::new();
        let run = ledger.run(HOUR, |number, demand_ns| {
            sent.push((number, demand_ns));
            ledger.answered(number, true);
            ledger.answered(number, false);
            Ok(())
        });
        let report = run.unwrap().report(None);
        let schedule = requests().schedule();
        let due: Vec<_> = schedule.take_while(|(ns, _)| *ns < 60 * MS).collect();
        let measured = due.iter().filter(|(ns, _)| *ns >= 20 * MS).count() as u64;
        let demands = due.iter().map(|(_, demand_ns)| *demand_ns);
        assert_eq!(sent, (0..).zip(demands).collect::<Vec<_>>());
        assert_eq!((report.requests, report.failures), (measured, 0));
        assert_eq!(report.ending, Ending::Complete);
    }

    #[test]
    fn latency_counts_from_the_due_time_and_late_bad_and_missing_answers_are_failures() {
        let mut requests = requests();
        requests.deadline = Duration::from_secs(5);
        let ledger = Ledger::new(&requests);
        let due = [(0, 9_000), (1, 1_000), (2, 9_000), (3, 9_000)];
        let due = due.map(|(number, ms)| (number, ms * MS));
        ledger.state().pending.extend(due);
        for (number, is_good) in [(0, true), (1, true), (2, false)] {
            ledger.answered_at(number, is_good, 10_000 * MS);
        }
        let report = ledger.ended_at(60 * MS, 10_500 * MS).report(None);
        assert_eq!((report.requests, report.failures), (4, 3));
        let latency = report.latency;
        assert_eq!((latency.p50_us, latency.max_us), (1e6, 9e6));
    }

    #[test]
    fn stopped_run_reports_its_measurements() {
        let mut requests = requests();
        requests.duration = HOUR;
        let ledger = Ledger::new(&requests);
        let run = ledger.run(HOUR, |number, _| {
            ledger.answered(number, true);
            if number == 200 {
                ledger.stop();
            }
            Ok(())
        });
        let report = run.unwrap().report(None);
        assert_eq!((report.ending, report.failures), (Ending::Stopped, 0));
        assert!(report.requests > 0 && report.measured_seconds < 3_600.0);
    }

    #[test]
    fn request_counts_in_the_interval_of_its_arrival() {
        let outcome = |due_ns, latency_ns, failed| Outcome {
            due_ns,
            latency_ns,
            failed,
        };
        let run = Run {
            measured_ns: 1_000,
            ending: Ending::Complete,
            outcomes: vec![
                outcome(750, 2_000, false),
                outcome(0, 1_000, false),
                outcome(249, 3_000, true),
            ],
        };
        let points = run.report(Some(Duration::from_nanos(250))).series;
        let counts: Vec<u64> = points.iter().map(|p| p.count).collect();
        assert_eq!(counts, [2, 0, 0, 1]);
        assert_eq!((points[0].failures, points[0].max_us), (1, 3.0));
        assert_eq!(points[1].p99_us, 0.0);
        assert_eq!(points[3].at_seconds, 750e-9);
    }
}
