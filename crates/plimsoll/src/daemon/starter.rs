//! Choice of the daemon's enforcer on this host.

use std::sync::Arc;
use std::thread;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::service::{Enforcing, Handover, Starter, TakeGuard};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::{EngineError, Result};
use plimsoll_scx::SchedExtHost;

use super::guard;

pub struct HostStarter {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    /// Whether an enforcer was started: from then on, moves under way are those of this process.
    has_started: bool,
}

impl HostStarter {
    pub fn new(hierarchy: &Arc<Hierarchy>, runtime: &RuntimeFolder) -> Self {
        Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            has_started: false,
        }
    }

    /// Frees tasks that an earlier owner has left bound.
    fn with_left_tasks(&mut self, enforcing: Result<Enforcing>) -> Result<Enforcing> {
        let mut enforcing = enforcing?;
        if !self.has_started {
            let freed = guard::free_left_tasks(&self.runtime);
            enforcing.left_behind.extend(freed);
            self.has_started = true;
        }
        Ok(enforcing)
    }

    fn stock(&self) -> Result<Enforcing> {
        let handover = self.left_scheduler();
        let (enforcer, left_behind) = CgroupEnforcer::adopting(&self.hierarchy, &self.runtime)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            kind: EnforcerKind::Cgroup,
            is_scheduled: false,
            left_behind,
            handover,
        })
    }

    /// Unloads the scheduler that an earlier owner has left, which holds quotas and caps until
    /// the kernel's files hold them.
    fn left_scheduler(&self) -> Option<Handover> {
        let runtime = self.runtime.clone();
        let is_left = SchedExtHost::is_of(&runtime);
        is_left.then(|| Box::new(move || SchedExtHost::unload(&runtime)) as Handover)
    }

    fn sched_ext(&self, is_lazy: bool) -> Result<Enforcing> {
        let start = plimsoll_scx::SchedExtEnforcer::adopting;
        let (enforcer, left_behind) = start(&self.hierarchy, &self.runtime, is_lazy)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            kind: EnforcerKind::SchedExt,
            is_scheduled: !is_lazy,
            left_behind,
            handover: None,
        })
    }

    /// Checks that the scheduler is loaded or could be.
    ///
    /// # Errors
    /// When this host lacks a requirement.
    fn check_scheduler(&self) -> Result<()> {
        let ready = SchedExtHost::readiness(&self.runtime);
        ready.check().map_err(|error| EngineError::SchedExt {
            problem: error.to_string(),
        })
    }

    fn is_loaded(&self) -> bool {
        SchedExtHost::serves(&self.runtime)
    }
}

impl Starter for HostStarter {
    fn may_attach_guard(&self) -> bool {
        guard::may_be_attached()
    }

    fn attach_guard(&self, take: TakeGuard) {
        let runtime = self.runtime.clone();
        let taken = Arc::clone(&take);
        let attach = move || taken(guard::attach(&runtime));
        let spawned = thread::Builder::new().name("guard".into()).spawn(attach);
        if let Err(error) = spawned {
            take(Err(error.into()));
        }
    }

    /// Starts an enforcer. The scheduler takes all tasks of the machine, so only an operator who
    /// asks for it gets it.
    fn start(&mut self, wanted: EnforcerWanted) -> Result<Enforcing> {
        let enforcing = match wanted {
            EnforcerWanted::Cgroup | EnforcerWanted::Auto => self.stock(),
            EnforcerWanted::SchedExt => self.check_scheduler().and_then(|()| self.sched_ext(false)),
        };
        self.with_left_tasks(enforcing)
    }

    fn start_for_any(&mut self) -> Result<Enforcing> {
        let enforcing = self.sched_ext(true);
        self.with_left_tasks(enforcing)
    }

    fn choose(&self, wanted: EnforcerWanted) -> Result<bool> {
        match wanted {
            EnforcerWanted::SchedExt => {
                self.check_scheduler().map_err(only_others)?;
                Ok(true)
            }
            EnforcerWanted::Cgroup => Ok(false),
            EnforcerWanted::Auto => Ok(self.is_loaded()),
        }
    }
}

fn only_others(error: EngineError) -> EngineError {
    EngineError::NotEnforceable {
        knob: "enforcer",
        value: "sched-ext".into(),
        reason: format!("{error}; allowed: auto, cgroup"),
    }
}
