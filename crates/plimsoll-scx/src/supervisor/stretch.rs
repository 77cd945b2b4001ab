//! Turns of the ext servers come less often where they last too long.
//!
//! The kernel forgives a server what it ran beyond its deadline, near which a
//! turn begins, and the next turn comes a period later all the same. Where a
//! turn of 100 µs ends late, as in a virtual machine, batch work would have
//! several times its tolerance. So what it had is counted, and the periods are
//! made longer by as much as it was too much.

use std::time::Duration;

use plimsoll_engine::knobs::Tolerance;

use crate::ext_server::{PERIOD_MAX_NS, Setting};

/// What was had is compared with the tolerance over this time.
const WINDOW: Duration = Duration::from_secs(1);
/// Above the tolerance by less than this it is the grain of turns.
const TOO_MUCH: f64 = 1.25;
/// Below that part of it for [`CALM`], periods become shorter again.
const TOO_LITTLE: f64 = 0.8;
const CALM: Duration = Duration::from_mins(1);
/// At once, up and down.
const STEP_MAX: f64 = 4.0;
const STEP_DOWN: f64 = 0.7;

/// What was counted, and when.
#[derive(Clone, Copy)]
struct Mark {
    ran_ns: u64,
    at_ns: u64,
}

/// By how much the periods of the servers are longer than the tolerance says.
pub(super) struct Stretch {
    factor: f64,
    window: Option<Mark>,
    /// Since when batch work has had little of it.
    calm_since_ns: Option<u64>,
}

impl Default for Stretch {
    fn default() -> Self {
        Self {
            factor: 1.0,
            window: None,
            calm_since_ns: None,
        }
    }
}

impl Stretch {
    /// Takes what batch work has run on its tolerance on all CPUs, ever, at a
    /// time. `setting`: what is made longer. Returns whether the periods change.
    pub fn look(
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
        // Too much for all of a window is too much before it ends.
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
        // No turn at all says nothing: none may have been asked for, or none fell due.
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

    /// The setting with its longer period.
    pub fn of(&self, setting: Setting) -> Setting {
        // Below 2^53 ns, and no less than it was.
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

    /// Looks each 100 ms while two CPUs have turns of some length. Returns what
    /// they had in each second, in ms.
    fn seconds(stretch: &mut Stretch, turn_ns: u64, count: u64) -> Vec<f64> {
        let mut ran_ns = 0.0;
        let mut had = Vec::new();
        for second in 0..count {
            let before = ran_ns;
            for look in 0..10 {
                let turns = 2.0 * 100.0 * MS as f64 / stretch.of(SETTING).period_ns as f64;
                ran_ns += turns * turn_ns as f64;
                let at_ns = (second * 10 + look) * 100 * MS;
                stretch.look(TOLERANCE, SETTING, ran_ns as u64, at_ns);
            }
            had.push((ran_ns - before) / MS as f64);
        }
        had
    }

    /// After 20 s in which batch work had a whole CPU; and what it has run.
    fn at_its_longest() -> (Stretch, u64) {
        let mut stretch = Stretch::default();
        let mut ran_ns = 0;
        for second in 0..20 {
            ran_ns += 1000 * MS;
            stretch.look(TOLERANCE, SETTING, ran_ns, second * 1000 * MS);
        }
        (stretch, ran_ns)
    }

    #[test]
    fn turns_that_end_in_time_come_as_often_as_the_tolerance_says() {
        let mut stretch = Stretch::default();
        assert!(
            seconds(&mut stretch, 110_000, 60)
                .iter()
                .all(|had| *had < 12.0)
        );
        assert_eq!(stretch.of(SETTING), SETTING);
    }

    #[test]
    fn turns_of_five_times_their_length_soon_come_a_fifth_as_often() {
        let mut stretch = Stretch::default();
        let had = seconds(&mut stretch, 500_000, 60);
        assert!(
            had[3..].iter().all(|had| (8.0..=12.6).contains(had)),
            "{had:?}"
        );
        let period_ns = stretch.of(SETTING).period_ns;
        assert!((80 * MS..=125 * MS).contains(&period_ns), "{period_ns}");
    }

    #[test]
    fn periods_become_shorter_only_after_a_minute_of_too_little() {
        let mut stretch = Stretch::default();
        seconds(&mut stretch, 1_000_000, 10);
        let long_ns = stretch.of(SETTING).period_ns;
        let mut look = |second: u64, ran_ns: u64| {
            stretch.look(TOLERANCE, SETTING, ran_ns, (100 + second) * 1000 * MS);
            stretch.of(SETTING).period_ns
        };
        // Nothing at all says nothing about turns: none may have been asked for.
        let base_ns = 1000 * MS;
        for second in 0..200 {
            assert_eq!(look(second, base_ns), long_ns);
        }
        for second in 0..60 {
            assert_eq!(look(200 + second, base_ns + (second + 1) * MS), long_ns);
        }
        assert!(look(260, base_ns + 61 * MS) < long_ns);
    }

    #[test]
    fn turns_that_come_less_than_once_a_second_come_more_often_again_too() {
        let (mut stretch, mut ran_ns) = at_its_longest();
        // The machine was slow and is not any more: a turn of 0.1 ms every other second.
        for second in 20..900 {
            ran_ns += if second % 2 == 0 { MS / 10 } else { 0 };
            stretch.look(TOLERANCE, SETTING, ran_ns, second * 1000 * MS);
        }
        assert!(stretch.of(SETTING).period_ns < 100 * MS);
    }

    #[test]
    fn no_period_is_longer_than_the_kernel_takes() {
        let (mut stretch, _) = at_its_longest();
        assert_eq!(stretch.of(SETTING).period_ns, PERIOD_MAX_NS);
        let long = Setting {
            runtime_ns: MS / 10,
            period_ns: 640 * MS,
        };
        assert_eq!(stretch.of(long).period_ns, PERIOD_MAX_NS);
        assert!(!stretch.look(
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
