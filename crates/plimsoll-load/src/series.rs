//! Latency over time: one small histogram per interval of intended arrival.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::limits::LATENCY_MAX_NS;
use crate::units::{micros, seconds};

/// Two significant digits: within 1 %, and some 10 KiB per interval.
const DIGITS: u8 = 2;

/// An interval of a time series. A request belongs to the interval of its
/// intended arrival.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Start of the interval, in seconds after the end of the warm-up.
    pub at_seconds: f64,
    pub count: u64,
    pub failures: u64,
    /// Median latency; within 1 %.
    pub p50_us: f64,
    /// 99th percentile; within 1 %.
    pub p99_us: f64,
    pub max_us: f64,
}

#[derive(Debug)]
pub(crate) struct Series {
    interval_ns: u64,
    bins: Vec<Bin>,
}

#[derive(Debug)]
struct Bin {
    /// Allocated with the first sample; resizes itself.
    latency: Option<Histogram<u32>>,
    failures: u64,
    max_ns: u64,
}

impl Series {
    pub(crate) fn new(interval_ns: u64, span_ns: u64) -> Self {
        let count = span_ns.div_ceil(interval_ns.max(1));
        let bins = (0..count).map(|_| Bin {
            latency: None,
            failures: 0,
            max_ns: 0,
        });
        Self {
            interval_ns,
            bins: bins.collect(),
        }
    }

    /// Adds a request that arrived `at_ns` after the start of the measurement.
    pub(crate) fn add(&mut self, at_ns: u64, latency_ns: u64, failed: bool) {
        let index = usize::try_from(at_ns / self.interval_ns).unwrap_or(usize::MAX);
        let Some(bin) = self.bins.get_mut(index) else {
            debug_assert!(false, "a request outside of the measured time");
            return;
        };
        if bin.latency.is_none() {
            bin.latency = Histogram::new(DIGITS).ok();
        }
        if let Some(latency) = &mut bin.latency {
            // The histogram resizes itself, so this fails only beyond its
            // absolute maximum.
            let _ = latency.record(latency_ns.clamp(1, LATENCY_MAX_NS));
        }
        bin.failures += u64::from(failed);
        bin.max_ns = bin.max_ns.max(latency_ns);
    }

    /// The intervals that start before `until_ns`; those without requests are
    /// zero.
    pub(crate) fn points(&self, until_ns: u64) -> Vec<SeriesPoint> {
        let starts = (0..).map(|index: u64| index * self.interval_ns);
        self.bins
            .iter()
            .zip(starts)
            .take_while(|&(_, start_ns)| start_ns < until_ns)
            .map(|(bin, start_ns)| bin.point(start_ns))
            .collect()
    }
}

impl Bin {
    fn point(&self, start_ns: u64) -> SeriesPoint {
        let quantile_us = |q| {
            let ns = self.latency.as_ref().map_or(0, |h| h.value_at_quantile(q));
            micros(ns.min(self.max_ns))
        };
        SeriesPoint {
            at_seconds: seconds(start_ns),
            count: self.latency.as_ref().map_or(0, Histogram::len),
            failures: self.failures,
            p50_us: quantile_us(0.5),
            p99_us: quantile_us(0.99),
            max_us: micros(self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_counts_in_the_interval_of_its_arrival() {
        let mut series = Series::new(250, 1_000);
        series.add(0, 1_000, false);
        series.add(249, 3_000, true);
        series.add(750, 2_000, false);
        let points = series.points(1_000);
        let counts: Vec<u64> = points.iter().map(|p| p.count).collect();
        assert_eq!(counts, [2, 0, 0, 1]);
        assert_eq!((points[0].failures, points[0].max_us), (1, 3.0));
        assert_eq!(points[1].p99_us, 0.0);
        assert_eq!(series.points(500).len(), 2);
    }
}
