//! Which enforcer the daemon has on this host.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::log::Log;
use plimsoll_daemon::service::{Enforcing, Starter};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::host::Mode;
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
                problem: "mode `all` takes a sched_ext scheduler; allowed without one: partial"
                    .into(),
            });
        }
        let (enforcer, left_behind) = CgroupEnforcer::start(&self.hierarchy, &self.runtime)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            scheduler: None,
            left_behind,
        })
    }

    #[cfg(feature = "sched-ext")]
    fn sched_ext(&self, mode: Mode) -> Result<Enforcing> {
        let ready = plimsoll_scx::Host::readiness(&self.runtime);
        let usable = ready.check().and_then(|()| ready.sched_ext(Some(mode)));
        let scheduler = usable.map_err(|error| EngineError::SchedExt {
            problem: error.to_string(),
        })?;
        let start = plimsoll_scx::SchedExtEnforcer::start;
        let (enforcer, left_behind) = start(&self.hierarchy, &self.runtime, scheduler.mode)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            scheduler: Some(scheduler),
            left_behind,
        })
    }

    #[cfg(not(feature = "sched-ext"))]
    fn sched_ext(&self, _mode: Mode) -> Result<Enforcing> {
        Err(EngineError::SchedExt {
            problem: "the scheduler is not in this build; allowed as enforcer: auto, cgroup".into(),
        })
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
}
