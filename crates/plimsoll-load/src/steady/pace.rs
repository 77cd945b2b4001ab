//! Pace of a thread of a steady load.

use crate::limits::STEADY_DEBT_MAX;
use crate::units::nanos;

use super::args::SteadyArgs;

/// Pace of one thread. In each grain it runs until it has used the CPU time
/// that is due at the grain's end, then sleeps until that end.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// Share of one CPU, 0 to 1.
    share: f64,
    end_ns: u64,
    grain_ns: u64,
    /// Grain boundaries are at this time + k × the grain.
    offset_ns: u64,
    written_off_ns: u64,
}

/// Next step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextStep {
    /// CPU time since the start that the thread uses before its next step.
    pub target_ns: u64,
    /// CPU time that is due at the end of the grain. A thread that has used as
    /// much sleeps until `until_ns`; else it takes its next step at once.
    pub due_ns: u64,
    /// End of the grain or of the run, in ns after the start of the run.
    pub until_ns: u64,
    /// CPU time that was due for too long and is written off now.
    pub written_off_ns: u64,
}

impl Pace {
    /// Pace of thread `index` of `count`, counted from 0.
    pub(super) fn new(config: &SteadyArgs, index: u64, count: u64) -> Self {
        let grain_ns = nanos(config.grain);
        Self {
            share: config.percent / 100.0,
            end_ns: nanos(config.duration),
            grain_ns,
            // The offsets of the threads spread over a grain, so that the CPUs
            // are not busy all at the same time.
            offset_ns: grain_ns * index / count.max(1),
            written_off_ns: 0,
        }
    }

    /// Next step at `at_ns` after the start, with `used_ns` of CPU time used
    /// since then. `None` if the run is over.
    pub fn next_step(&mut self, at_ns: u64, used_ns: u64) -> Option<NextStep> {
        if at_ns >= self.end_ns {
            return None;
        }
        let until_ns = next_grain(at_ns, self.grain_ns, self.offset_ns).min(self.end_ns);
        let due_ns = (self.share * until_ns as f64) as u64;
        let owed_ns = due_ns.saturating_sub(self.written_off_ns);
        let excess_ns = owed_ns
            .saturating_sub(used_ns)
            .saturating_sub(nanos(STEADY_DEBT_MAX));
        self.written_off_ns += excess_ns;
        let due_ns = owed_ns - excess_ns;
        Some(NextStep {
            // At most a grain at once, so that the thread does not run past the
            // end of the run.
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

    use super::super::tests::config;
    use super::*;

    #[test]
    fn undisturbed_thread_uses_its_share_of_every_grain() {
        let mut pace = Pace::new(&config(), 1, 2);
        let (mut at_ns, mut used_ns, mut turns) = (0, 0, 0);
        while let Some(step) = pace.next_step(at_ns, used_ns) {
            assert_eq!((step.target_ns, step.written_off_ns), (step.due_ns, 0));
            (used_ns, at_ns) = (step.target_ns, step.until_ns);
            turns += 1;
        }
        // 10 s in grains of 2 ms; the first and the last are halves.
        assert_eq!(
            (turns, at_ns, used_ns),
            (5_001, 10_000_000_000, 4_000_000_000)
        );
    }

    #[test]
    fn time_due_for_too_long_is_written_off() {
        let full = SteadyArgs {
            percent: 100.0,
            duration: Duration::from_secs(60),
            ..config()
        };
        let mut pace = Pace::new(&full, 0, 1);
        let step = pace.next_step(9_999_000_000, 0).unwrap();
        assert_eq!(step.written_off_ns, 9_000_000_000);
        assert_eq!((step.due_ns, step.target_ns), (1_000_000_000, 2_000_000));
        // Written off only once.
        assert_eq!(pace.next_step(9_999_000_000, 0).unwrap().written_off_ns, 0);
    }
}
