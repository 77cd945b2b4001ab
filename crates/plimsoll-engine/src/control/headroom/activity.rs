//! Activity of batch groups: active groups are measured at every update, dormant ones in turns.
//!
//! Bookkeeping only: nothing here reads from the kernel.

use std::time::{Duration, Instant};

/// Time after which a group that used next to nothing is dormant.
const DORMANT_AFTER: Duration = Duration::from_millis(200);
/// Time after which a group that could not have run, because it had used up its quota, is dormant:
/// meanwhile the kernel has refilled its pool.
const DORMANT_AFTER_HUNGER: Duration = Duration::from_millis(1_200);
/// Usage under which a group used next to nothing within these times.
const QUIET_NS: u64 = 50_000;
/// Usage within [`WAKE_WINDOW`] after which a dormant group is active again. A quarter of its
/// quota: a group that needs more never waits for long.
const WAKE_NS: u64 = 250_000;
const WAKE_WINDOW: Duration = Duration::from_secs(1);
/// Time per dormant group for one round over all of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Shortest round.
const ROUND_MIN: Duration = Duration::from_millis(200);
/// Longest round.
pub(super) const ROUND_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub(super) struct GroupActivity {
    since: Instant,
    used_ns: u64,
}

impl GroupActivity {
    pub fn starting_at(now: Instant) -> Self {
        Self {
            since: now,
            used_ns: 0,
        }
    }

    /// Counts usage of an active group. Returns whether it is dormant from now on.
    pub fn goes_idle(&mut self, used_ns: u64, is_hungry: bool, now: Instant) -> bool {
        self.used_ns = self.used_ns.saturating_add(used_ns);
        if self.used_ns >= QUIET_NS {
            *self = Self::starting_at(now);
            return false;
        }
        let after = if is_hungry {
            DORMANT_AFTER_HUNGER
        } else {
            DORMANT_AFTER
        };
        let asleep = now.saturating_duration_since(self.since) >= after;
        if asleep {
            *self = Self::starting_at(now);
        }
        asleep
    }

    /// Counts usage of a dormant group. Returns whether it is active from now on.
    pub fn wakes_up(&mut self, used_ns: u64, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= WAKE_WINDOW {
            *self = Self::starting_at(now);
        }
        self.used_ns = self.used_ns.saturating_add(used_ns);
        let awake = self.used_ns >= WAKE_NS;
        if awake {
            *self = Self::starting_at(now);
        }
        awake
    }
}

/// Number of the `nr_dormant` groups to measure, `elapsed` after the last measurement.
pub(super) fn nr_looks(nr_dormant: usize, elapsed: Duration) -> usize {
    let round = LOOK_INTERVAL
        .saturating_mul(u32::try_from(nr_dormant).unwrap_or(u32::MAX))
        .clamp(ROUND_MIN, ROUND_MAX);
    let looks = (nr_dormant as u128 * elapsed.as_nanos()).div_ceil(round.as_nanos());
    usize::try_from(looks).map_or(nr_dormant, |looks| looks.min(nr_dormant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    const GRAIN: Duration = Duration::from_millis(10);

    /// Feeds the same usage every 10 ms; returns the number of the update at which the group
    /// became dormant.
    fn sleeps_after(used_ns: u64, is_hungry: bool) -> Option<u32> {
        let start = os::now();
        let mut activity = GroupActivity::starting_at(start);
        (1..1_000).find(|tick| activity.goes_idle(used_ns, is_hungry, start + GRAIN * *tick))
    }

    #[test]
    fn a_group_that_does_not_run_is_dormant_after_200_ms() {
        assert_eq!(sleeps_after(0, false), Some(20));
        assert_eq!(sleeps_after(1_000, false), Some(20));
        assert_eq!(sleeps_after(100_000, false), None);
    }

    #[test]
    fn a_group_that_waits_for_quota_is_not_taken_for_an_idle_one() {
        assert_eq!(sleeps_after(0, true), Some(120));
    }

    #[test]
    fn a_group_that_needs_more_than_its_quota_wakes_up_however_often_it_is_measured() {
        // 2 ms a second: twice its quota.
        for looks_a_second in [1_u32, 5, 100] {
            let start = os::now();
            let mut activity = GroupActivity::starting_at(start);
            let pause = Duration::from_secs(1) / looks_a_second;
            let used_ns = 2_000_000 / u64::from(looks_a_second);
            let woken = (1..=2 * looks_a_second)
                .find(|look| activity.wakes_up(used_ns, start + pause * *look))
                .unwrap();
            assert!(pause * woken <= Duration::from_secs(1), "{looks_a_second}");
        }
    }

    #[test]
    fn a_group_that_hardly_runs_stays_dormant() {
        let start = os::now();
        let mut activity = GroupActivity::starting_at(start);
        for second in 1..60 {
            let now = start + Duration::from_secs(second);
            assert!(!activity.wakes_up(200_000, now));
        }
    }
}
