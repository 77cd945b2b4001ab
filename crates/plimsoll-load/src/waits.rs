//! Histogram of waiting times.

use hdrhistogram::Histogram;

use crate::error::LoadError;
use crate::report::Latency;
use crate::units::ratio;

/// Longest wait that the histogram can hold: more than the longest run.
const WAIT_MAX_NS: u64 = 2 * 24 * 3_600 * 1_000_000_000;
/// Quantiles are within 1 ‰.
const DIGITS: u8 = 3;

/// Waits of one kind.
#[derive(Debug)]
pub(crate) struct Waits {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Waits {
    pub(crate) fn new() -> Result<Self, LoadError> {
        let histogram = Histogram::new_with_bounds(1, WAIT_MAX_NS, DIGITS)
            .map_err(|e| LoadError::io("allocating a histogram", std::io::Error::other(e)))?;
        Ok(Self {
            histogram,
            sum_ns: 0,
            max_ns: 0,
        })
    }

    pub(crate) fn add(&mut self, wait_ns: u64) {
        self.histogram
            .saturating_record(wait_ns.clamp(1, WAIT_MAX_NS));
        self.sum_ns += u128::from(wait_ns);
        self.max_ns = self.max_ns.max(wait_ns);
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(crate) fn latency(&self) -> Latency {
        let mean_us = ratio(self.sum_ns as f64 / 1e3, self.count() as f64);
        Latency::of_histogram(&self.histogram, self.max_ns, mean_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maximum_and_mean_are_exact() {
        let mut waits = Waits::new().unwrap();
        assert_eq!(waits.latency(), Latency::default());
        for wait_ns in [1_000, 2_000, 9_003_000] {
            waits.add(wait_ns);
        }
        let latency = waits.latency();
        assert_eq!(waits.count(), 3);
        assert!((latency.max_us - 9_003.0).abs() < 1e-9);
        assert!((latency.mean_us - 3_002.0).abs() < 1e-9);
        assert!((latency.p50_us - 2.0).abs() < 0.01);
    }
}
