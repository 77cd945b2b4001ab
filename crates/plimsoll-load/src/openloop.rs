//! Open-loop generator: submits each request when it is due, independent of
//! earlier ones.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::{now_ns, precise_timers, sleep_until};
use crate::error::LoadError;
use crate::limits::LATENCY_MAX_NS;
use crate::measure::{Measure, Request, Timing};
use crate::requests::Requests;
use crate::units::nanos;

/// Time between the start of the threads and the start of the run, so that all
/// threads are ready.
const LEAD_TIME: Duration = Duration::from_millis(20);
/// Longest sleep before the generator checks whether the run was stopped.
const SLEEP_MAX_NS: u64 = 50_000_000;

/// Delay of the generator in submitting the measured requests.
pub(crate) type Lag = Histogram<u64>;

/// Creates the measurement of a run that begins [`LEAD_TIME`]
/// from now, with one lane for each of `recorders` threads and a last one for
/// the generator.
pub(crate) fn new_measure(
    requests: &Requests,
    series_interval: Option<Duration>,
    recorders: usize,
) -> Result<Arc<Measure>, LoadError> {
    let timing = Timing::new(
        now_ns() + nanos(LEAD_TIME),
        nanos(requests.warmup),
        requests.end_ns(),
        nanos(requests.deadline),
    );
    Measure::new(timing, series_interval.map(nanos), recorders + 1).map(Arc::new)
}

/// Starts the generator's thread. `submit` returns a request if the service
/// accepts no more, now or later.
pub(crate) fn spawn_generator(
    requests: &Requests,
    measure: &Arc<Measure>,
    lane: usize,
    submit: impl Fn(Request) -> Result<(), Request> + Send + 'static,
) -> Result<JoinHandle<Lag>, LoadError> {
    let requests = all(requests);
    let lag = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
        .map_err(|e| LoadError::io("allocating a histogram", std::io::Error::other(e)))?;
    let measure = Arc::clone(measure);
    spawn("load-generator", move || {
        generate(requests, &measure, lane, submit, lag)
    })
}

/// The requests of a run in order of arrival, without an end.
fn all(requests: &Requests) -> impl Iterator<Item = Request> + use<> {
    let all = (0..).zip(requests.schedule());
    all.map(|(id, (intended_ns, demand_ns))| Request {
        id,
        intended_ns,
        demand_ns,
    })
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LoadError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|e| LoadError::io(format!("starting thread {name}"), e))
}

fn generate(
    requests: impl Iterator<Item = Request>,
    measure: &Measure,
    lane: usize,
    submit: impl Fn(Request) -> Result<(), Request>,
    mut lag: Lag,
) -> Lag {
    precise_timers();
    let timing = &measure.timing;
    let mut refused = false;
    for request in requests {
        if !refused && !sleep_until_due(timing, request.intended_ns) {
            break;
        }
        if request.intended_ns >= timing.end_ns() {
            break;
        }
        if request.intended_ns >= timing.warmup_ns {
            let late_ns = timing.elapsed_ns().saturating_sub(request.intended_ns);
            lag.saturating_record(late_ns.max(1));
        }
        measure.submitted();
        let outcome = if refused {
            Err(request)
        } else {
            submit(request)
        };
        if let Err(request) = outcome {
            // The service is gone, or the grace is over. All requests that have
            // arrived and were not submitted are recorded as failures.
            timing.end_early();
            refused = true;
            measure.unfinished(lane, request, 0);
        }
    }
    lag
}

/// Sleeps until `due_ns` after the start. False if the run ends first.
fn sleep_until_due(timing: &Timing, due_ns: u64) -> bool {
    let due_at_ns = timing.origin_ns.saturating_add(due_ns);
    loop {
        if due_ns >= timing.end_ns() {
            return false;
        }
        let now = now_ns();
        if now >= due_at_ns {
            return true;
        }
        sleep_until(due_at_ns.min(now + SLEEP_MAX_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use crate::arrivals::Arrivals;

    fn requests() -> Requests {
        Requests {
            arrivals: Arrivals::in_bursts(1, Duration::from_millis(1)),
            duration: Duration::from_millis(100),
            warmup: Duration::ZERO,
            ..Requests::default()
        }
    }

    /// Runs a service that accepts a number of requests and then refuses.
    fn run(accepted: usize) -> (Vec<Request>, Arc<Measure>, Lag) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let measure = new_measure(&requests(), None, 0).unwrap();
        let shared = Arc::clone(&taken);
        let submit = move |request| {
            let mut taken = shared.lock().unwrap();
            if taken.len() >= accepted {
                return Err(request);
            }
            taken.push(request);
            Ok(())
        };
        let generator = spawn_generator(&requests(), &measure, 0, submit).unwrap();
        let lag = generator.join().unwrap();
        let taken = taken.lock().unwrap().clone();
        (taken, measure, lag)
    }

    #[test]
    fn every_request_of_the_schedule_is_sent_once_and_in_order() {
        let (taken, measure, lag) = run(usize::MAX);
        // The schedule does not depend on the generator's wake-up delays.
        assert_eq!(taken.len(), 100);
        assert!(taken.iter().enumerate().all(|(n, r)| r.id == n as u64));
        assert_eq!(lag.len(), 100);
        assert_eq!(measure.totals().requests(), 0);
    }

    #[test]
    fn refused_requests_are_failures() {
        let (taken, measure, _) = run(10);
        let failed = measure.totals().unfinished;
        assert_eq!(taken.len(), 10);
        // At least the refused request, and those that were due by then.
        assert!((1..=90).contains(&failed), "{failed}");
    }
}
