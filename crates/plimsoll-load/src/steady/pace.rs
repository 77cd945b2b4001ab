//! What a thread of a steady load does when: the one place that the threads of a real run and a
//! model of them ask.

use crate::limits::STEADY_DEBT_MAX;
use crate::profile::Profile;
use crate::units::nanos;

use super::SteadyConfig;

/// One thread of a steady load. It runs what it owes up to the end of each grain, then sleeps
/// until that end.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    profile: Profile,
    grain_ns: u64,
    /// Grain boundaries lie at this time + k × the grain.
    offset_ns: u64,
    written_off_ns: u64,
}

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Which stretch of equal load it is in, from 0.
    pub phase: usize,
    /// CPU time that it is to have used, since its start, before it asks again.
    pub target_ns: u64,
    /// CPU time that is due at the end of the grain. Where it has used that much, it sleeps until
    /// `until_ns`; else it asks again at once.
    pub due_ns: u64,
    /// End of the grain, or of the stretch, in ns after the start of the run.
    pub until_ns: u64,
    /// CPU time that was owed for too long and is written off now.
    pub written_off_ns: u64,
}

impl Pace {
    /// Of thread `index` of `count`, counted from 0.
    pub(super) fn new(config: &SteadyConfig, index: u64, count: u64) -> Self {
        let grain_ns = nanos(config.grain);
        Self {
            profile: config.profile(),
            grain_ns,
            // Grains begin spread over their length: CPUs are then busy in turn, not in step.
            offset_ns: grain_ns * index / count.max(1),
            written_off_ns: 0,
        }
    }

    /// What is to do at `at_ns` after the start, with `used_ns` of CPU time used since then.
    /// `None`: the run is over.
    pub fn turn(&mut self, at_ns: u64, used_ns: u64) -> Option<Turn> {
        let phase = self.profile.index_at(at_ns)?;
        let grain_end_ns = next_grain(at_ns, self.grain_ns, self.offset_ns);
        let until_ns = grain_end_ns.min(self.profile.phases()[phase].to_ns);
        let owed_ns = self
            .profile
            .due_ns(until_ns)
            .saturating_sub(self.written_off_ns);
        let excess_ns = owed_ns
            .saturating_sub(used_ns)
            .saturating_sub(nanos(STEADY_DEBT_MAX));
        self.written_off_ns += excess_ns;
        let due_ns = owed_ns - excess_ns;
        Some(Turn {
            phase,
            // No more than a grain in one go, so that the end of a phase is not run over.
            target_ns: due_ns.min(used_ns + self.grain_ns),
            due_ns,
            until_ns,
            written_off_ns: excess_ns,
        })
    }
}

/// The first grain boundary after `at_ns`; boundaries lie at `offset_ns + k × grain_ns`.
fn next_grain(at_ns: u64, grain_ns: u64, offset_ns: u64) -> u64 {
    let shifted = at_ns + grain_ns - offset_ns;
    (shifted / grain_ns) * grain_ns + offset_ns
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn grains_follow_each_other() {
        assert_eq!(next_grain(0, 10, 0), 10);
        assert_eq!(next_grain(9, 10, 0), 10);
        assert_eq!(next_grain(10, 10, 0), 20);
        assert_eq!(next_grain(0, 10, 5), 5);
        assert_eq!(next_grain(5, 10, 5), 15);
        assert_eq!(next_grain(14, 10, 5), 15);
    }

    #[test]
    fn a_thread_that_is_never_kept_waiting_uses_its_share_of_every_grain() {
        let config = SteadyConfig::default();
        let mut pace = config.pace(1, 2);
        let (mut at_ns, mut used_ns, mut turns) = (0, 0, 0);
        while let Some(turn) = pace.turn(at_ns, used_ns) {
            assert_eq!((turn.target_ns, turn.written_off_ns), (turn.due_ns, 0));
            (used_ns, at_ns) = (turn.target_ns, turn.until_ns);
            turns += 1;
        }
        // 10 s in grains of 2 ms, of which the first and the last are halves.
        assert_eq!(
            (turns, at_ns, used_ns),
            (5_001, 10_000_000_000, 4_000_000_000)
        );
    }

    #[test]
    fn what_is_owed_for_too_long_is_written_off() {
        let config = SteadyConfig {
            percent: 100.0,
            duration: Duration::from_secs(60),
            ..SteadyConfig::default()
        };
        let mut pace = config.pace(0, 1);
        let turn = pace.turn(9_999_000_000, 0).unwrap();
        assert_eq!(turn.written_off_ns, 9_000_000_000);
        assert_eq!((turn.due_ns, turn.target_ns), (1_000_000_000, 2_000_000));
        // And once only.
        assert_eq!(pace.turn(9_999_000_000, 0).unwrap().written_off_ns, 0);
    }
}
