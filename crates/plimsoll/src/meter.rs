//! Utilisation of the whole machine over time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::cgroup::BusyMeter;
use serde::Serialize;

use crate::error::Result;

/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The machine's utilisation around a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BusyPoint {
    /// Middle of the interval, in seconds after the end of the warm-up.
    pub at_seconds: f64,
    /// Busy time ÷ (CPUs × elapsed).
    pub busy_ratio: f64,
}

/// Usage between two samples.
#[derive(Debug, Clone, Copy)]
struct Interval {
    from: Instant,
    to: Instant,
    busy_ns: u64,
}

#[derive(Debug)]
pub struct Meter {
    busy: BusyMeter,
    cpus: u32,
    last: Instant,
    samples: Vec<Interval>,
}

/// Busy time ÷ (CPUs × elapsed time); 0 over no time at all.
fn ratio(busy_ns: u64, cpus: u32, elapsed: Duration) -> f64 {
    let available = f64::from(cpus) * elapsed.as_nanos() as f64;
    if available > 0.0 {
        (busy_ns as f64 / available).min(1.0)
    } else {
        0.0
    }
}

impl Meter {
    pub fn start(hierarchy: &Arc<Hierarchy>, cpus: u32) -> Result<Self> {
        Ok(Self {
            busy: BusyMeter::start(hierarchy)?,
            cpus,
            last: Instant::now(),
            samples: Vec::new(),
        })
    }

    /// Takes a sample if one is due. Returns whether one was.
    pub fn tick(&mut self) -> Result<bool> {
        let due = self.last.elapsed() >= SAMPLE_EVERY;
        if due {
            self.sample()?;
        }
        Ok(due)
    }

    pub fn sample(&mut self) -> Result<()> {
        let busy_ns = self.busy.busy_ns()?;
        let (from, to) = (self.last, Instant::now());
        self.samples.push(Interval { from, to, busy_ns });
        self.last = to;
        Ok(())
    }

    /// Utilisation in the last sample.
    pub fn latest(&self) -> f64 {
        self.samples.last().map_or(0.0, |sample| {
            ratio(sample.busy_ns, self.cpus, sample.to - sample.from)
        })
    }

    /// Utilisation over all samples, without `known_ns` of CPU time.
    pub fn remainder(&self, known_ns: u64) -> f64 {
        let busy_ns: u64 = self.samples.iter().map(|sample| sample.busy_ns).sum();
        let elapsed = self
            .samples
            .iter()
            .map(|sample| sample.to - sample.from)
            .sum();
        ratio(busy_ns.saturating_sub(known_ns), self.cpus, elapsed)
    }

    /// Samples between `begin` and `begin + length`, and their average.
    pub fn window(&self, begin: Instant, length: Duration) -> (Vec<BusyPoint>, f64) {
        let end = begin + length;
        let inside = |it: &&Interval| it.from >= begin && it.to <= end;
        let samples: Vec<&Interval> = self.samples.iter().filter(inside).collect();
        let points = samples.iter().map(|sample| {
            let elapsed = sample.to - sample.from;
            BusyPoint {
                at_seconds: (sample.from - begin + elapsed / 2).as_secs_f64(),
                busy_ratio: ratio(sample.busy_ns, self.cpus, elapsed),
            }
        });
        let busy_ns = samples.iter().map(|sample| sample.busy_ns).sum();
        let elapsed = samples.iter().map(|sample| sample.to - sample.from).sum();
        (points.collect(), ratio(busy_ns, self.cpus, elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_all_cpus_and_never_above_one() {
        let second = Duration::from_secs(1);
        assert_eq!(ratio(500_000_000, 2, second), 0.25);
        assert_eq!(ratio(9_000_000_000, 2, second), 1.0);
        assert_eq!(ratio(1, 2, Duration::ZERO), 0.0);
    }
}
