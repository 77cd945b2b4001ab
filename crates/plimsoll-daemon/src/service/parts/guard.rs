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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use plimsoll_cgroupfs::os;

    use super::*;
    use crate::log::Priority;
    use crate::state::GuardCounts;

    /// A host that counts the guards that are attached, or has none.
    struct Host {
        attached: Arc<AtomicUsize>,
        attempts: AtomicUsize,
        refuses: bool,
    }

    struct Counted {
        attached: Arc<AtomicUsize>,
        cpus: CpuSet,
    }

    impl AttachedGuard for Counted {
        fn cpus(&self) -> CpuSet {
            self.cpus
        }

        fn counts(&self) -> GuardCounts {
            GuardCounts {
                nr_woken: 7,
                ..GuardCounts::default()
            }
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.attached.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Host {
        fn attach(&self, cpus: CpuSet) -> Attached {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            if self.refuses {
                return Err("no BPF".into());
            }
            self.attached.fetch_add(1, Ordering::Relaxed);
            let attached = Arc::clone(&self.attached);
            Ok(Box::new(Counted { attached, cpus }))
        }
    }

    fn host(refuses: bool) -> Host {
        Host {
            attached: Arc::default(),
            attempts: AtomicUsize::default(),
            refuses,
        }
    }

    fn cpus(list: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for cpu in list {
            set.set(*cpu).expect("it is small");
        }
        set
    }

    /// Follows and attaches, as the service does each time round.
    fn follow(switch: &mut GuardSwitch, is_needed: bool, cpus: CpuSet, now: Instant, host: &Host) {
        if switch.follow(is_needed, cpus, now) {
            assert!(switch.state().is_none(), "nothing is there yet");
            switch.attached(host.attach(cpus), &Log::new(Priority::Error));
        }
    }

    #[test]
    fn one_guard_is_attached_while_it_is_needed_and_lingers() {
        let host = host(false);
        let (mut switch, mut now) = (GuardSwitch::default(), os::now());
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
            follow(&mut switch, is_needed, cpus(&[0]), now, &host);
            let attached = host.attached.load(Ordering::Relaxed);
            assert_eq!(attached, usize::from(is_there));
            let woken = switch.state().map(|state| state.counts.nr_woken);
            assert_eq!(woken, is_there.then_some(7));
        }
        assert_eq!(host.attempts.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_cpu_that_comes_online_or_takes_the_place_of_another_has_a_guard() {
        let host = host(false);
        let mut switch = GuardSwitch::default();
        let steps: [(&[usize], usize); _] =
            [(&[0], 1), (&[0], 1), (&[0, 1], 2), (&[0, 2], 3), (&[0], 4)];
        for (online, nr_attempts) in steps {
            follow(&mut switch, true, cpus(online), os::now(), &host);
            assert_eq!(host.attached.load(Ordering::Relaxed), 1);
            assert_eq!(host.attempts.load(Ordering::Relaxed), nr_attempts);
        }
    }

    #[test]
    fn while_it_is_being_attached_it_is_not_asked_for_again() {
        let host = host(false);
        let (mut switch, now) = (GuardSwitch::default(), os::now());
        assert!(switch.follow(true, cpus(&[0]), now));
        let (one, two) = (cpus(&[0]), cpus(&[0, 1]));
        for (is_needed, cpus) in [(true, one), (false, one), (true, two)] {
            assert!(!switch.follow(is_needed, cpus, now));
        }
        switch.attached(host.attach(one), &Log::new(Priority::Error));
        assert!(switch.state().is_some());
        // Another guard is needed for the CPU that has come online meanwhile.
        assert!(switch.follow(true, two, now));
        assert_eq!(host.attached.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_host_without_one_is_asked_once_and_says_why() {
        let host = host(true);
        let (mut switch, now) = (GuardSwitch::default(), os::now());
        follow(&mut switch, true, cpus(&[0]), now, &host);
        let state = switch.state().expect("it is needed");
        assert_eq!(state.problem.as_deref(), Some("no BPF"));
        let other = Host {
            refuses: false,
            ..host
        };
        follow(&mut switch, true, cpus(&[0]), now, &other);
        assert_eq!(other.attached.load(Ordering::Relaxed), 0);
        follow(&mut switch, false, cpus(&[0]), now, &other);
        assert!(switch.state().is_none());
        follow(&mut switch, true, cpus(&[0]), now, &other);
        assert_eq!(other.attached.load(Ordering::Relaxed), 1);
    }
}
