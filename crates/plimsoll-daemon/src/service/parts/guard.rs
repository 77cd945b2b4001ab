//! The guard of the fair class: attached while batch work is there, and a little longer.

use std::time::Instant;

use nix::sched::CpuSet;

use super::super::options::{Attached, AttachedGuard, LINGER, LOOK_INTERVAL};
use crate::log::Log;
use crate::state::GuardState;

#[derive(Default)]
pub(in crate::service) enum GuardSwitch {
    #[default]
    Off,
    /// A thread attaches the guard.
    Attaching,
    On {
        guard: Box<dyn AttachedGuard>,
        /// Time since which there is nothing to guard; `None`: there is something.
        idle_since: Option<Instant>,
    },
    /// This host has no guard, for this reason. After a time without batch groups, the next batch
    /// group has it tried again.
    Refused(String),
}

impl GuardSwitch {
    /// Has the guard attached if it is needed, and attached anew when `cpus` change: those that are
    /// online and allowed to this process. A guard that is needed no longer stays for [`LINGER`]:
    /// one command often follows another. Returns whether the guard is to be attached; the result
    /// goes to [`GuardSwitch::attached`].
    #[must_use]
    pub fn follow(&mut self, is_needed: bool, cpus: CpuSet, now: Instant) -> bool {
        match self {
            Self::On { guard, .. } if guard.cpus() != cpus => *self = Self::Off,
            Self::On { idle_since, .. } if is_needed => *idle_since = None,
            Self::On { idle_since, .. } => {
                let since = *idle_since.get_or_insert(now);
                if now.saturating_duration_since(since) >= LINGER {
                    *self = Self::Off;
                }
            }
            Self::Refused(_) if !is_needed => *self = Self::Off,
            _ => (),
        }
        if !is_needed || !matches!(self, Self::Off) {
            return false;
        }
        *self = Self::Attaching;
        true
    }

    /// Returns when to follow again without an event; `None`: never. `has_batch`: there is batch
    /// work, for which no event tells that CPUs come online or go, that this process may use others,
    /// or that a scheduler is loaded.
    pub fn due(&self, has_batch: bool, now: Instant) -> Option<Instant> {
        let idle_since = match self {
            Self::On { idle_since, .. } => *idle_since,
            _ => None,
        };
        let look = has_batch.then(|| now + LOOK_INTERVAL);
        let end = idle_since.map(|since| since + LINGER);
        look.into_iter().chain(end).min()
    }

    pub fn is_attaching(&self) -> bool {
        matches!(self, Self::Attaching)
    }

    /// Takes the guard that [`GuardSwitch::follow`] has asked for, or the reason why there is none.
    pub fn attached(&mut self, attached: Attached, log: &Log) {
        if !self.is_attaching() {
            return;
        }
        *self = match attached {
            Ok(guard) => {
                log.debug("guard", "attached");
                Self::On {
                    guard,
                    idle_since: None,
                }
            }
            Err(error) => {
                let text = format!("batch work delays normal work at times: {error}");
                log.info("guard", &text);
                Self::Refused(error.to_string())
            }
        };
    }

    /// Returns whether there is no guard, or will be none; `may_attach`: the answer before it is
    /// tried.
    pub fn is_lacking(&self, may_attach: impl FnOnce() -> bool) -> bool {
        match self {
            Self::Off | Self::Attaching => !may_attach(),
            Self::On { .. } => false,
            Self::Refused(_) => true,
        }
    }

    /// Returns the state of the guard, once it is attached or refused.
    pub fn state(&self) -> Option<GuardState> {
        match self {
            Self::Off | Self::Attaching => None,
            Self::On { guard, .. } => Some(GuardState {
                counts: guard.counts(),
                problem: None,
            }),
            Self::Refused(problem) => Some(GuardState {
                problem: Some(problem.clone()),
                ..GuardState::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_cgroupfs::os;

    use super::*;
    use crate::log::Priority;
    use crate::state::GuardCounts;

    struct FakeGuard(CpuSet);

    impl AttachedGuard for FakeGuard {
        fn cpus(&self) -> CpuSet {
            self.0
        }

        fn counts(&self) -> GuardCounts {
            GuardCounts {
                nr_woken: 7,
                ..GuardCounts::default()
            }
        }
    }

    fn cpus(list: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for cpu in list {
            set.set(*cpu).expect("it is small");
        }
        set
    }

    fn attach(switch: &mut GuardSwitch, cpus: CpuSet) {
        switch.attached(Ok(Box::new(FakeGuard(cpus))), &Log::new(Priority::Error));
    }

    /// Follows and attaches, as the service does each time round. Returns whether it attached.
    fn follow(switch: &mut GuardSwitch, is_needed: bool, cpus: CpuSet, now: Instant) -> bool {
        let is_asked = switch.follow(is_needed, cpus, now);
        if is_asked {
            assert!(switch.state().is_none(), "nothing is there yet");
            attach(switch, cpus);
        }
        is_asked
    }

    #[test]
    fn one_guard_is_attached_while_it_is_needed_and_lingers() {
        let (mut switch, mut now) = (GuardSwitch::default(), os::now());
        let mut nr_attached = 0;
        let short = LINGER / 2;
        for (is_needed, time, is_there) in [
            (false, short, false),
            (true, short, true),
            (true, LINGER, true),
            (false, LINGER, true),
            (false, short, true),
            // One command often follows another.
            (true, short, true),
            (false, short, true),
            (false, short, true),
            (false, short, false),
            (true, short, true),
        ] {
            now += time;
            nr_attached += u32::from(follow(&mut switch, is_needed, cpus(&[0]), now));
            let woken = switch.state().map(|state| state.counts.nr_woken);
            assert_eq!(woken, is_there.then_some(7));
        }
        assert_eq!(nr_attached, 2);
    }

    #[test]
    fn a_cpu_that_comes_online_or_takes_the_place_of_another_has_a_guard() {
        let mut switch = GuardSwitch::default();
        let steps: [(&[usize], bool); _] = [
            (&[0], true),
            (&[0], false),
            (&[0, 1], true),
            (&[0, 2], true),
            (&[0], true),
        ];
        for (online, is_another) in steps {
            let attached = follow(&mut switch, true, cpus(online), os::now());
            assert_eq!(attached, is_another, "{online:?}");
        }
    }

    #[test]
    fn while_it_is_being_attached_it_is_not_asked_for_again() {
        let (mut switch, now) = (GuardSwitch::default(), os::now());
        assert!(switch.follow(true, cpus(&[0]), now));
        let (one, two) = (cpus(&[0]), cpus(&[0, 1]));
        for (is_needed, cpus) in [(true, one), (false, one), (true, two)] {
            assert!(!switch.follow(is_needed, cpus, now));
        }
        attach(&mut switch, one);
        assert!(switch.state().is_some());
        // Another guard is needed for the CPU that has come online meanwhile.
        assert!(follow(&mut switch, true, two, now));
    }

    #[test]
    fn a_host_without_one_is_asked_once_and_says_why() {
        let (mut switch, now) = (GuardSwitch::default(), os::now());
        let one = cpus(&[0]);
        assert!(switch.follow(true, one, now));
        switch.attached(Err("no BPF".into()), &Log::new(Priority::Error));
        let state = switch.state().expect("it is needed");
        assert_eq!(state.problem.as_deref(), Some("no BPF"));
        assert!(!follow(&mut switch, true, one, now));
        assert!(!follow(&mut switch, false, one, now));
        assert!(switch.state().is_none());
        assert!(follow(&mut switch, true, one, now));
    }
}
