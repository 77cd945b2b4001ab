//! Utilisation of the machine over time, for the picture.

use plimsoll_sim::host::Span;
use plimsoll_sim::scenario::Scenario;

/// Number of points of a picture, limited by its resolution.
const POINTS: u64 = 200;

/// Utilisation during the measured time, in intervals of equal length.
#[derive(Debug, Clone)]
pub struct Usage {
    from_ns: u64,
    interval_ns: u64,
    cpus: u32,
    /// CPU time of the fair and the batch class in each interval.
    used_ns: Vec<[u64; 2]>,
}

/// Shares of the machine in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Middle of the interval, in seconds after the warm-up.
    pub at_seconds: f64,
    /// Share of the fair class.
    pub normal_ratio: f64,
    /// Share of the batch class.
    pub batch_ratio: f64,
}

impl Usage {
    /// Creates the intervals for a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let interval_ns = scenario.duration_ns.div_ceil(POINTS).max(1);
        let count = scenario.duration_ns.div_ceil(interval_ns);
        Self {
            from_ns: scenario.warmup_ns,
            interval_ns,
            cpus: scenario.machine.cpus,
            // At most POINTS.
            used_ns: vec![[0; 2]; count as usize],
        }
    }

    /// Adds a span, which may extend over several intervals.
    pub fn ran(&mut self, span: &Span) {
        let mut at_ns = span.start_ns.max(self.from_ns);
        while at_ns < span.end_ns {
            let index = (at_ns - self.from_ns) / self.interval_ns;
            let until_ns = (self.from_ns + (index + 1) * self.interval_ns).min(span.end_ns);
            let Some(used) = usize::try_from(index)
                .ok()
                .and_then(|i| self.used_ns.get_mut(i))
            else {
                return;
            };
            used[usize::from(span.batch)] += until_ns - at_ns;
            at_ns = until_ns;
        }
    }

    /// Shares over time, up to `measured_ns` after the warm-up.
    pub fn points(&self, measured_ns: u64) -> Vec<Point> {
        let whole_ns = self.interval_ns as f64 * f64::from(self.cpus);
        let point = |(index, used): (u64, &[u64; 2])| Point {
            at_seconds: (index as f64 + 0.5) * self.interval_ns as f64 / 1e9,
            normal_ratio: used[0] as f64 / whole_ns,
            batch_ratio: used[1] as f64 / whole_ns,
        };
        let count = usize::try_from(measured_ns / self.interval_ns).unwrap_or(usize::MAX);
        (0..).zip(&self.used_ns).take(count).map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_sim::scenario::{Overrides, ScenarioFile};

    use super::*;

    fn usage() -> Usage {
        let text = "duration = '2s'\nwarmup = '1s'\nmachine.cpus = 2\n\
                    [[group]]\nname = 'a'\n[[group.workload]]\nkind = 'burn'\n";
        let file = ScenarioFile::parse("s", text, Path::new(""), Overrides::default()).unwrap();
        Usage::of(&file.runs[0].scenario)
    }

    fn span(start_ms: u64, end_ms: u64, batch: bool) -> Span {
        Span {
            cpu: 0,
            group: 0,
            task: 0,
            start_ns: start_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
            batch,
        }
    }

    #[test]
    fn spans_are_split_over_intervals_and_exclude_the_warm_up() {
        let mut usage = usage();
        // Intervals of 10 ms. Of 995 to 1015 ms, the five in the warm-up do not
        // count.
        usage.ran(&span(995, 1_015, false));
        usage.ran(&span(1_005, 1_010, true));
        usage.ran(&span(2_995, 3_500, false));
        let points = usage.points(2_000_000_000);
        assert_eq!(points.len(), 200);
        assert_eq!((points[0].normal_ratio, points[0].batch_ratio), (0.5, 0.25));
        assert_eq!(points[1].normal_ratio, 0.25);
        assert_eq!(
            (points[199].normal_ratio, points[199].at_seconds),
            (0.25, 1.995)
        );
        assert_eq!(usage.points(15_000_000).len(), 1, "a run that ended early");
    }
}
