//! Back-off of the period of the ext servers if their slices last too long.
//!
//! The kernel forgets the overrun of a server beyond its deadline, near which a slice begins, and
//! the next slice comes a period later all the same. If a slice of 100 µs ends late, as in a
//! virtual machine, batch work would get several times its tolerance. So its run time is measured,
//! and the periods are extended by the ratio of that to the tolerance.

use std::time::Duration;

use plimsoll_engine::knobs::Tolerance;

use crate::ext_server::{PERIOD_MAX_NS, Setting};

/// Time over which the run time is compared with the tolerance.
const WINDOW: Duration = Duration::from_secs(1);
/// Ratio to the tolerance above which periods are extended; less is the grain of slices.
const TOO_MUCH: f64 = 1.25;
/// Ratio below which, for [`CALM`], periods are shortened again.
const TOO_LITTLE: f64 = 0.8;
const CALM: Duration = Duration::from_mins(1);
/// Largest factor of one step, up and down.
const STEP_MAX: f64 = 4.0;
const STEP_DOWN: f64 = 0.7;

/// A measured run time, and its time.
#[derive(Clone, Copy)]
struct Mark {
    ran_ns: u64,
    at_ns: u64,
}

/// The factor by which the periods of the servers are extended.
pub(super) struct PeriodBackoff {
    factor: f64,
    window: Option<Mark>,
    /// Time since which batch work has got little of its tolerance.
    calm_since_ns: Option<u64>,
}

impl Default for PeriodBackoff {
    fn default() -> Self {
        Self {
            factor: 1.0,
            window: None,
            calm_since_ns: None,
        }
    }
}

impl PeriodBackoff {
    /// Updates the factor. `ran_ns`: total run time of batch work on its tolerance, on all CPUs, at
    /// time `at_ns`. `setting`: the setting to extend. Returns whether the periods change.
    pub fn update(
        &mut self,
        tolerance: Tolerance,
        setting: Setting,
        ran_ns: u64,
        at_ns: u64,
    ) -> bool {
        let now = Mark { ran_ns, at_ns };
        let begun = *self.window.get_or_insert(now);
        let elapsed_ns = at_ns.saturating_sub(begun.at_ns);
        let had_ns = ran_ns.saturating_sub(begun.ran_ns) as f64;
        if tolerance.runtime_ns == 0 || tolerance.period_ns == 0 || elapsed_ns == 0 {
            return false;
        }
        let share = tolerance.runtime_ns as f64 / tolerance.period_ns as f64;
        let window_ns = WINDOW.as_nanos() as f64;
        // Too much for a whole window is too much before it ends.
        let is_whole = elapsed_ns as f64 >= window_ns;
        if !is_whole && had_ns <= TOO_MUCH * share * window_ns {
            return false;
        }
        self.window = Some(now);
        let ratio = had_ns / (share * window_ns.max(elapsed_ns as f64));
        if ratio > TOO_MUCH {
            self.calm_since_ns = None;
            return self.multiply(ratio.min(STEP_MAX), setting);
        }
        // No slice at all means nothing: none may have been needed, or none was due.
        if had_ns == 0.0 {
            return false;
        }
        if ratio >= TOO_LITTLE {
            self.calm_since_ns = None;
            return false;
        }
        let calm_since_ns = *self.calm_since_ns.get_or_insert(at_ns);
        if u128::from(at_ns.saturating_sub(calm_since_ns)) < CALM.as_nanos() {
            return false;
        }
        self.calm_since_ns = None;
        self.multiply(STEP_DOWN, setting)
    }

    fn multiply(&mut self, by: f64, setting: Setting) -> bool {
        let most = PERIOD_MAX_NS as f64 / setting.period_ns.max(1) as f64;
        let factor = (self.factor * by).clamp(1.0, most.max(1.0));
        let is_new = factor.to_bits() != self.factor.to_bits();
        self.factor = factor;
        is_new
    }

    /// The setting with its extended period.
    pub fn of(&self, setting: Setting) -> Setting {
        // Below 2^53 ns, and not less than before.
        let period_ns = (setting.period_ns as f64 * self.factor) as u64;
        Setting {
            period_ns: period_ns.min(PERIOD_MAX_NS).max(setting.period_ns),
            ..setting
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TOLERANCE: Tolerance = Tolerance {
        runtime_ns: MS,
        period_ns: 100 * MS,
    };
    const SETTING: Setting = Setting {
        runtime_ns: MS / 10,
        period_ns: 20 * MS,
    };

    /// Updates each 100 ms while two CPUs get slices of that length. Returns the run time in each
    /// second, in ms.
    fn seconds(backoff: &mut PeriodBackoff, slice_ns: u64, count: u64) -> Vec<f64> {
        let mut ran_ns = 0.0;
        let mut had = Vec::new();
        for second in 0..count {
            let before = ran_ns;
            for look in 0..10 {
                let slices = 2.0 * 100.0 * MS as f64 / backoff.of(SETTING).period_ns as f64;
                ran_ns += slices * slice_ns as f64;
                let at_ns = (second * 10 + look) * 100 * MS;
                backoff.update(TOLERANCE, SETTING, ran_ns as u64, at_ns);
            }
            had.push((ran_ns - before) / MS as f64);
        }
        had
    }

    /// The state after 20 s in which batch work had a whole CPU, and its run time.
    fn at_its_longest() -> (PeriodBackoff, u64) {
        let mut backoff = PeriodBackoff::default();
        let mut ran_ns = 0;
        for second in 0..20 {
            ran_ns += 1000 * MS;
            backoff.update(TOLERANCE, SETTING, ran_ns, second * 1000 * MS);
        }
        (backoff, ran_ns)
    }

    #[test]
    fn slices_that_end_in_time_keep_the_period_of_the_tolerance() {
        let mut backoff = PeriodBackoff::default();
        assert!(
            seconds(&mut backoff, 110_000, 60)
                .iter()
                .all(|had| *had < 12.0)
        );
        assert_eq!(backoff.of(SETTING), SETTING);
    }

    #[test]
    fn slices_of_five_times_their_length_soon_come_a_fifth_as_often() {
        let mut backoff = PeriodBackoff::default();
        let had = seconds(&mut backoff, 500_000, 60);
        assert!(
            had[3..].iter().all(|had| (8.0..=12.6).contains(had)),
            "{had:?}"
        );
        let period_ns = backoff.of(SETTING).period_ns;
        assert!((80 * MS..=125 * MS).contains(&period_ns), "{period_ns}");
    }

    #[test]
    fn periods_become_shorter_only_after_a_minute_of_too_little() {
        let mut backoff = PeriodBackoff::default();
        seconds(&mut backoff, 1_000_000, 10);
        let long_ns = backoff.of(SETTING).period_ns;
        let mut update = |second: u64, ran_ns: u64| {
            backoff.update(TOLERANCE, SETTING, ran_ns, (100 + second) * 1000 * MS);
            backoff.of(SETTING).period_ns
        };
        // No run time means nothing: no slice may have been needed.
        let base_ns = 1000 * MS;
        for second in 0..200 {
            assert_eq!(update(second, base_ns), long_ns);
        }
        for second in 0..60 {
            assert_eq!(update(200 + second, base_ns + (second + 1) * MS), long_ns);
        }
        assert!(update(260, base_ns + 61 * MS) < long_ns);
    }

    #[test]
    fn periods_above_a_second_become_shorter_again_too() {
        let (mut backoff, mut ran_ns) = at_its_longest();
        // The machine was slow and is not any more: a slice of 0.1 ms every other second.
        for second in 20..900 {
            ran_ns += if second % 2 == 0 { MS / 10 } else { 0 };
            backoff.update(TOLERANCE, SETTING, ran_ns, second * 1000 * MS);
        }
        assert!(backoff.of(SETTING).period_ns < 100 * MS);
    }

    #[test]
    fn no_period_is_longer_than_the_kernel_accepts() {
        let (mut backoff, _) = at_its_longest();
        assert_eq!(backoff.of(SETTING).period_ns, PERIOD_MAX_NS);
        let long = Setting {
            runtime_ns: MS / 10,
            period_ns: 640 * MS,
        };
        assert_eq!(backoff.of(long).period_ns, PERIOD_MAX_NS);
        assert!(!backoff.update(
            Tolerance {
                runtime_ns: 0,
                period_ns: MS
            },
            SETTING,
            u64::MAX,
            u64::MAX
        ));
    }
}
