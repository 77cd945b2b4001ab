//! Choice of the daemon's enforcer on this host.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::log::Log;
use plimsoll_daemon::service::{Enforcing, Starter};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::host::{Mode, SchedExt};
use plimsoll_engine::knobs::Knobs;
#[cfg(feature = "sched-ext")]
use plimsoll_engine::plan::is_scheduled;
use plimsoll_engine::plan::needs_sched_ext;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::{EngineError, Result};

/// Starts enforcers on this host.
pub struct HostStarter {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    log: Arc<Log>,
}

impl HostStarter {
    pub fn new(hierarchy: &Arc<Hierarchy>, runtime: &RuntimeFolder, log: &Arc<Log>) -> Self {
        Self {
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            log: Arc::clone(log),
        }
    }

    fn stock(&self, mode: Mode) -> Result<Enforcing> {
        if mode == Mode::All {
            return Err(EngineError::SchedExt {
                problem: "mode `all` needs a sched_ext scheduler; allowed without one: partial"
                    .into(),
            });
        }
        let (enforcer, left_behind) = CgroupEnforcer::adopting(&self.hierarchy, &self.runtime)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            scheduler: None,
            left_behind,
        })
    }

    #[cfg(feature = "sched-ext")]
    fn sched_ext(&self, mode: Mode) -> Result<Enforcing> {
        let scheduler = self.usable(Some(mode))?;
        let start = plimsoll_scx::SchedExtEnforcer::adopting;
        let (enforcer, left_behind) = start(&self.hierarchy, &self.runtime, Some(scheduler.mode))?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            scheduler: Some(scheduler),
            left_behind,
        })
    }

    /// Starts the scheduler in a mode, or as it is loaded.
    ///
    /// # Errors
    /// When this host lacks a requirement.
    #[cfg(feature = "sched-ext")]
    fn usable(&self, mode: Option<Mode>) -> Result<SchedExt> {
        let ready = plimsoll_scx::Host::readiness(&self.runtime);
        let usable = ready.check().and_then(|()| ready.sched_ext(mode));
        usable.map_err(|error| EngineError::SchedExt {
            problem: error.to_string(),
        })
    }

    #[cfg(not(feature = "sched-ext"))]
    fn sched_ext(&self, mode: Mode) -> Result<Enforcing> {
        self.usable(Some(mode)).and_then(|_| self.stock(mode))
    }

    #[cfg(not(feature = "sched-ext"))]
    fn usable(&self, _mode: Option<Mode>) -> Result<SchedExt> {
        Err(EngineError::SchedExt {
            problem: "this build has no scheduler".into(),
        })
    }

    /// Loads the scheduler only for knobs that control groups cannot enforce, so that commands
    /// start fast.
    fn is_useful(&self, knobs: &Knobs, wanted: Option<Mode>) -> bool {
        #[cfg(feature = "sched-ext")]
        if let Some(loaded) = plimsoll_scx::Host::loaded(&self.runtime) {
            return is_scheduled(knobs, loaded);
        }
        needs_sched_ext(knobs, wanted.unwrap_or_default())
    }
}

impl Starter for HostStarter {
    fn start(&mut self, wanted: EnforcerWanted, mode: Mode) -> Result<Enforcing> {
        match wanted {
            EnforcerWanted::Cgroup => self.stock(mode),
            EnforcerWanted::SchedExt => self.sched_ext(mode),
            EnforcerWanted::Auto => match self.sched_ext(mode) {
                Ok(enforcing) => Ok(enforcing),
                Err(error) if mode == Mode::All => Err(error),
                Err(error) => {
                    let text = format!("control groups enforce, for: {error}");
                    self.log.info("enforcer", &text);
                    self.stock(mode)
                }
            },
        }
    }

    #[cfg(feature = "sched-ext")]
    fn start_for_any(&mut self) -> Result<Enforcing> {
        let start = plimsoll_scx::SchedExtEnforcer::adopting;
        let (enforcer, left_behind) = start(&self.hierarchy, &self.runtime, None)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            scheduler: None,
            left_behind,
        })
    }

    #[cfg(not(feature = "sched-ext"))]
    fn start_for_any(&mut self) -> Result<Enforcing> {
        self.stock(Mode::Partial)
    }

    fn choose(
        &self,
        knobs: &Knobs,
        wanted: EnforcerWanted,
        mode: Option<Mode>,
    ) -> Result<Option<SchedExt>> {
        match wanted {
            EnforcerWanted::SchedExt => self.usable(mode).map(Some).map_err(only_others),
            EnforcerWanted::Cgroup if mode == Some(Mode::All) => Err(not_allowed(
                "mode",
                "all",
                "it needs a sched_ext scheduler; allowed with --enforcer cgroup: partial",
            )),
            EnforcerWanted::Cgroup => Ok(None),
            EnforcerWanted::Auto if mode == Some(Mode::All) => {
                self.usable(mode).map(Some).map_err(only_others)
            }
            EnforcerWanted::Auto if self.is_useful(knobs, mode) => Ok(self.usable(mode).ok()),
            EnforcerWanted::Auto => Ok(None),
        }
    }
}

fn not_allowed(knob: &'static str, value: &str, reason: impl Into<String>) -> EngineError {
    EngineError::NotEnforceable {
        knob,
        value: value.into(),
        reason: reason.into(),
    }
}

fn only_others(error: EngineError) -> EngineError {
    let reason = format!("{error}; allowed: auto, cgroup");
    not_allowed("enforcer", "sched-ext", reason)
}
