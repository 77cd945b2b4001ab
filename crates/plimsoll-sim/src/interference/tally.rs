//! Tally of WCETs.

/// WCETs up to this many periods are counted separately.
pub const LENGTHS: usize = 64;

/// WCETs, counted per period: a run of `L` periods of which the last meets the
/// deadline contributes `L, L−1, … 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    /// Periods whose WCET is known.
    pub periods: u64,
    /// Number of those periods by WCET: 1, 2, … [`LENGTHS`].
    pub by_length: [u64; LENGTHS],
    /// Number of those periods with a longer WCET.
    pub longer: u64,
    pub wcet_sum: u64,
    /// Longest WCET, 0 without periods.
    pub wcet_max: u64,
    /// CPU time used in `counted` periods, as a share of the machine, summed.
    pub used_sum: f64,
    /// Number of periods in `used_sum`.
    pub counted: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            periods: 0,
            by_length: [0; LENGTHS],
            longer: 0,
            wcet_sum: 0,
            wcet_max: 0,
            used_sum: 0.0,
            counted: 0,
        }
    }
}

impl Tally {
    /// Adds a run of `length` periods. The last `not_counted` of them began
    /// after the end of the experiment and do not count.
    #[inline]
    pub fn run(&mut self, length: u64, not_counted: u64) {
        if length == 1 && not_counted == 0 {
            self.periods += 1;
            self.by_length[0] += 1;
            self.wcet_sum += 1;
            self.wcet_max = self.wcet_max.max(1);
        } else if length > not_counted {
            self.long_run(length, not_counted);
        }
    }

    fn long_run(&mut self, length: u64, not_counted: u64) {
        let triangle = |n: u64| n * (n + 1) / 2;
        self.periods += length - not_counted;
        self.wcet_sum += triangle(length) - triangle(not_counted);
        self.wcet_max = self.wcet_max.max(length);
        let bin = |n: u64| n.min(LENGTHS as u64) as usize;
        for count in &mut self.by_length[bin(not_counted)..bin(length)] {
            *count += 1;
        }
        let beyond = |n: u64| n.saturating_sub(LENGTHS as u64);
        self.longer += beyond(length) - beyond(not_counted);
    }

    pub fn add(&mut self, other: &Self) {
        self.periods += other.periods;
        for (count, more) in self.by_length.iter_mut().zip(&other.by_length) {
            *count += more;
        }
        self.longer += other.longer;
        self.wcet_sum += other.wcet_sum;
        self.wcet_max = self.wcet_max.max(other.wcet_max);
        self.used_sum += other.used_sum;
        self.counted += other.counted;
    }

    /// E(WCET), in periods; 1 without periods.
    #[must_use]
    pub fn wcet_mean(&self) -> f64 {
        if self.periods == 0 {
            return 1.0;
        }
        self.wcet_sum as f64 / self.periods as f64
    }

    /// P(WCET > 1), 0 to 1.
    #[must_use]
    pub fn missed(&self) -> f64 {
        let missed = self.periods - self.by_length[0];
        missed as f64 / self.periods.max(1) as f64
    }

    /// CPU time used, as a share of the machine.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.used_sum / self.counted.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_once_for_each_of_its_periods() {
        let mut tally = Tally::default();
        tally.run(1, 0);
        tally.run(3, 0);
        assert_eq!(tally.by_length[..4], [2, 1, 1, 0]);
        assert_eq!((tally.periods, tally.wcet_sum, tally.wcet_max), (4, 7, 3));
        assert_eq!(tally.wcet_mean(), 1.75);
        assert_eq!(tally.missed(), 0.5);
    }

    #[test]
    fn periods_after_the_end_only_lengthen_the_others() {
        let mut tally = Tally::default();
        // Five periods, the last two after the end, add 5, 4 and 3.
        tally.run(5, 2);
        assert_eq!(tally.by_length[..6], [0, 0, 1, 1, 1, 0]);
        assert_eq!((tally.periods, tally.wcet_sum), (3, 12));
        tally.run(2, 2);
        tally.run(1, 1);
        assert_eq!(tally.periods, 3);
    }

    #[test]
    fn long_ones_are_counted_together() {
        let mut tally = Tally::default();
        tally.run(70, 0);
        assert_eq!(tally.longer, 6);
        assert_eq!(tally.by_length.iter().sum::<u64>() + tally.longer, 70);
        assert_eq!(tally.missed(), 69.0 / 70.0);
        let mut other = Tally::default();
        other.run(80, 66);
        assert_eq!((other.longer, other.periods), (14, 14));
        tally.add(&other);
        assert_eq!((tally.longer, tally.periods, tally.wcet_max), (20, 84, 80));
    }
}
