//! Recording of requests during a run, and their totals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;

use crate::clock::now_ns;
use crate::error::LoadError;
use crate::limits::LATENCY_MAX_NS;
use crate::series::Series;

/// Three significant digits: within 0.1 %.
const DIGITS: u8 = 3;
/// Number of samples that a thread buffers before it adds them to the totals,
/// which takes a lock.
const SAMPLES_PER_FLUSH: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Position in the schedule, from 0.
    pub(crate) id: u64,
    /// Arrival, in ns after the start of the run, warm-up included. Latency
    /// counts from here.
    pub(crate) intended_ns: u64,
    pub(crate) demand_ns: u64,
}

/// Outcome of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) request: Request,
    /// Time from the intended arrival to the answer, or until the request was
    /// given up.
    pub(crate) latency_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) answered: bool,
}

/// Sums over all measured requests (those that arrived after the warm-up).
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) latency: Histogram<u64>,
    pub(crate) latency_sum_ns: u128,
    pub(crate) latency_max_ns: u64,
    pub(crate) answered: u64,
    /// Number answered before the end of the run, not during the grace.
    pub(crate) answered_in_time: u64,
    pub(crate) late: u64,
    pub(crate) unfinished: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) demand_ns: u64,
    pub(crate) series: Option<Series>,
}

/// Times of a run, in ns after its origin unless stated otherwise.
#[derive(Debug)]
pub(crate) struct Timing {
    /// Monotonic clock at the start of the run.
    pub(crate) origin_ns: u64,
    pub(crate) warmup_ns: u64,
    /// End of the run; requests that arrive later are not part of it. Moved
    /// forward when the run is stopped.
    end_ns: AtomicU64,
    pub(crate) deadline_ns: u64,
}

impl Timing {
    pub(crate) fn new(origin_ns: u64, warmup_ns: u64, end_ns: u64, deadline_ns: u64) -> Self {
        Self {
            origin_ns,
            warmup_ns,
            end_ns: AtomicU64::new(end_ns),
            deadline_ns,
        }
    }

    /// Time since the start; 0 before it.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        now_ns().saturating_sub(self.origin_ns)
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    /// Ends the run now, unless it has ended already.
    pub(crate) fn end_early(&self) {
        self.end_ns.fetch_min(self.elapsed_ns(), Ordering::Relaxed);
    }
}

/// Collects samples from several threads without contention.
#[derive(Debug)]
pub(crate) struct Measure {
    pub(crate) timing: Timing,
    totals: Mutex<Totals>,
    /// Buffer of each recording thread. Rarely locked by another thread.
    lanes: Vec<Mutex<Vec<Sample>>>,
    submitted: AtomicU64,
    settled: AtomicU64,
}

impl Measure {
    pub(crate) fn new(
        timing: Timing,
        series_interval_ns: Option<u64>,
        lanes: usize,
    ) -> Result<Self, LoadError> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
            .map_err(|e| LoadError::io("allocating a histogram", std::io::Error::other(e)))?;
        let span_ns = timing.end_ns().saturating_sub(timing.warmup_ns);
        let totals = Totals {
            latency,
            latency_sum_ns: 0,
            latency_max_ns: 0,
            answered: 0,
            answered_in_time: 0,
            late: 0,
            unfinished: 0,
            cpu_ns: 0,
            demand_ns: 0,
            series: series_interval_ns.map(|interval_ns| Series::new(interval_ns, span_ns)),
        };
        let lane = || Mutex::new(Vec::with_capacity(2 * SAMPLES_PER_FLUSH));
        Ok(Self {
            timing,
            totals: Mutex::new(totals),
            lanes: std::iter::repeat_with(lane).take(lanes).collect(),
            submitted: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        })
    }

    /// Counts a request as submitted to the service.
    pub(crate) fn submitted(&self) {
        self.submitted.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests submitted and not yet answered or given up.
    pub(crate) fn outstanding(&self) -> u64 {
        let settled = self.settled.load(Ordering::Acquire);
        self.submitted
            .load(Ordering::Relaxed)
            .saturating_sub(settled)
    }

    pub(crate) fn answered(&self, lane: usize, request: Request, cpu_ns: u64) {
        self.record(lane, request, cpu_ns, true);
    }

    /// Records that `request` was given up now.
    pub(crate) fn unfinished(&self, lane: usize, request: Request, cpu_ns: u64) {
        self.record(lane, request, cpu_ns, false);
    }

    fn record(&self, lane: usize, request: Request, cpu_ns: u64, answered: bool) {
        let sample = Sample {
            request,
            latency_ns: self.timing.elapsed_ns().saturating_sub(request.intended_ns),
            cpu_ns,
            answered,
        };
        if request.intended_ns >= self.timing.warmup_ns {
            self.keep(lane, sample);
        }
        self.settled.fetch_add(1, Ordering::Release);
    }

    fn keep(&self, lane: usize, sample: Sample) {
        let mut samples = self.lane(lane);
        samples.push(sample);
        if samples.len() < SAMPLES_PER_FLUSH {
            return;
        }
        // If another thread is adding up, keeps the samples for the next time
        // instead of waiting.
        if let Ok(mut totals) = self.totals.try_lock() {
            samples.drain(..).for_each(|s| totals.add(&s, &self.timing));
        }
    }

    fn lane(&self, lane: usize) -> MutexGuard<'_, Vec<Sample>> {
        self.lanes[lane]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Totals of everything recorded so far.
    ///
    /// Locks the totals, then the lanes. Recorders lock in the opposite order
    /// but only *try* the totals, so there is no deadlock.
    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in 0..self.lanes.len() {
            let fresh = Vec::with_capacity(2 * SAMPLES_PER_FLUSH);
            let samples = std::mem::replace(&mut *self.lane(lane), fresh);
            samples.iter().for_each(|s| totals.add(s, &self.timing));
        }
        totals
    }
}

impl Totals {
    pub(crate) fn requests(&self) -> u64 {
        self.answered + self.unfinished
    }

    fn add(&mut self, sample: &Sample, timing: &Timing) {
        let request = sample.request;
        let late = sample.answered && sample.latency_ns > timing.deadline_ns;
        self.latency
            .saturating_record(sample.latency_ns.clamp(1, LATENCY_MAX_NS));
        self.latency_sum_ns += u128::from(sample.latency_ns);
        self.latency_max_ns = self.latency_max_ns.max(sample.latency_ns);
        self.late += u64::from(late);
        self.unfinished += u64::from(!sample.answered);
        self.answered += u64::from(sample.answered);
        let done_ns = request.intended_ns.saturating_add(sample.latency_ns);
        self.answered_in_time += u64::from(sample.answered && done_ns <= timing.end_ns());
        self.cpu_ns += sample.cpu_ns;
        self.demand_ns += request.demand_ns;
        if let Some(series) = &mut self.series {
            let at_ns = request.intended_ns.saturating_sub(timing.warmup_ns);
            series.add(at_ns, sample.latency_ns, late || !sample.answered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u64, intended_ns: u64) -> Request {
        Request {
            id,
            intended_ns,
            demand_ns: 1_000,
        }
    }

    /// A run that started `age_ns` ago.
    fn measure(age_ns: u64, warmup_ns: u64) -> Measure {
        let timing = Timing::new(now_ns() - age_ns, warmup_ns, 10_000_000_000, 50_000_000);
        Measure::new(timing, Some(1_000_000_000), 2).unwrap()
    }

    #[test]
    fn latency_counts_from_the_intended_arrival_and_excludes_the_warmup() {
        let measure = measure(5_000_000_000, 1_000_000_000);
        for (id, intended_ns) in [(0, 999_999_999), (1, 1_000_000_000), (2, 4_000_000_000)] {
            measure.submitted();
            measure.answered(0, request(id, intended_ns), 1_500);
        }
        let totals = measure.totals();
        assert_eq!((totals.requests(), totals.late), (2, 2));
        assert!(totals.latency_max_ns >= 4_000_000_000);
        assert_eq!((totals.cpu_ns, totals.demand_ns), (3_000, 2_000));
        assert_eq!(totals.latency.len(), 2);
        assert_eq!(measure.outstanding(), 0);
    }

    #[test]
    fn unfinished_request_is_a_failure_and_in_the_histogram() {
        let measure = measure(2_000_000_000, 0);
        measure.submitted();
        measure.unfinished(1, request(0, 0), 0);
        let totals = measure.totals();
        assert_eq!((totals.unfinished, totals.late, totals.answered), (1, 0, 0));
        assert!(totals.latency.max() >= 1_990_000_000);
    }

    #[test]
    fn no_sample_is_lost_while_another_thread_reads() {
        let measure = measure(0, 0);
        std::thread::scope(|scope| {
            for lane in 0..2 {
                let measure = &measure;
                scope.spawn(move || {
                    (0..10_000).for_each(|n| measure.answered(lane, request(n, n), 1))
                });
            }
            for _ in 0..100 {
                let _ = measure.totals().requests();
            }
        });
        assert_eq!(measure.totals().requests(), 20_000);
    }
}
