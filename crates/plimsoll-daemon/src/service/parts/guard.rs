//! The guard of the fair class: attached while batch work is there.

use super::super::options::{Guard, Starter};
use crate::log::Log;
use crate::state::GuardState;

/// Attaches and detaches the guard.
#[derive(Default)]
pub(in crate::service) enum GuardSwitch {
    #[default]
    Off,
    On {
        guard: Box<dyn Guard>,
        /// CPUs online when it was attached: it is on those.
        nr_cpus: u32,
    },
    /// This host has none, for this reason. Tried again for the next batch group after the last.
    Refused(String),
}

impl GuardSwitch {
    /// Has the guard attached to the CPUs that are online if it is needed, and only then.
    pub fn follow(&mut self, is_needed: bool, nr_cpus: u32, starter: &dyn Starter, log: &Log) {
        if matches!(self, Self::On { nr_cpus: had, .. } if *had != nr_cpus) {
            *self = Self::Off;
        }
        match self {
            Self::Off if is_needed => match starter.guard() {
                Ok(guard) => {
                    log.debug("guard", "attached");
                    *self = Self::On { guard, nr_cpus };
                }
                Err(error) => {
                    let text = format!("batch work delays normal work at times: {error}");
                    log.info("guard", &text);
                    *self = Self::Refused(error.to_string());
                }
            },
            Self::On { .. } | Self::Refused(_) if !is_needed => *self = Self::Off,
            _ => (),
        }
    }

    /// Its state while there is something to guard.
    pub fn state(&self) -> Option<GuardState> {
        match self {
            Self::Off => None,
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
    use std::error::Error;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::config::EnforcerWanted;
    use crate::log::Priority;
    use crate::service::Enforcing;
    use crate::state::GuardCounts;

    /// A host that counts the guards that are attached, or has none.
    struct Host {
        attached: Arc<AtomicUsize>,
        attempts: AtomicUsize,
        refuses: bool,
    }

    struct Attached(Arc<AtomicUsize>);

    impl Guard for Attached {
        fn counts(&self) -> GuardCounts {
            GuardCounts {
                nr_woken: 7,
                ..GuardCounts::default()
            }
        }
    }

    impl Drop for Attached {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Starter for Host {
        fn guard(&self) -> Result<Box<dyn Guard>, Box<dyn Error + Send + Sync>> {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            if self.refuses {
                return Err("no BPF".into());
            }
            self.attached.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Attached(Arc::clone(&self.attached))))
        }

        fn start(&mut self, _: EnforcerWanted) -> plimsoll_engine::Result<Enforcing> {
            unreachable!("no enforcer is started")
        }

        fn start_for_any(&mut self) -> plimsoll_engine::Result<Enforcing> {
            unreachable!("no enforcer is started")
        }

        fn choose(&self, _: EnforcerWanted) -> plimsoll_engine::Result<bool> {
            Ok(false)
        }
    }

    fn host(refuses: bool) -> Host {
        Host {
            attached: Arc::default(),
            attempts: AtomicUsize::default(),
            refuses,
        }
    }

    #[test]
    fn one_guard_is_attached_while_it_is_needed() {
        let (host, log) = (host(false), Log::new(Priority::Error));
        let mut switch = GuardSwitch::default();
        for is_needed in [false, true, true, false, true] {
            switch.follow(is_needed, 2, &host, &log);
            let attached = host.attached.load(Ordering::Relaxed);
            assert_eq!(attached, usize::from(is_needed));
            let woken = switch.state().map(|state| state.counts.nr_woken);
            assert_eq!(woken, is_needed.then_some(7));
        }
    }

    #[test]
    fn a_cpu_that_comes_online_has_a_guard() {
        let (host, log) = (host(false), Log::new(Priority::Error));
        let mut switch = GuardSwitch::default();
        for (nr_cpus, nr_attempts) in [(2, 1), (2, 1), (3, 2), (2, 3)] {
            switch.follow(true, nr_cpus, &host, &log);
            assert_eq!(host.attached.load(Ordering::Relaxed), 1);
            assert_eq!(host.attempts.load(Ordering::Relaxed), nr_attempts);
        }
    }

    #[test]
    fn a_host_without_one_is_asked_once_and_says_why() {
        let (host, log) = (host(true), Log::new(Priority::Error));
        let mut switch = GuardSwitch::default();
        switch.follow(true, 2, &host, &log);
        let state = switch.state().expect("it is needed");
        assert_eq!(state.problem.as_deref(), Some("no BPF"));
        let other = Host {
            refuses: false,
            ..host
        };
        switch.follow(true, 2, &other, &log);
        assert_eq!(other.attached.load(Ordering::Relaxed), 0);
        switch.follow(false, 2, &other, &log);
        assert!(switch.state().is_none());
        switch.follow(true, 2, &other, &log);
        assert_eq!(other.attached.load(Ordering::Relaxed), 1);
    }
}
