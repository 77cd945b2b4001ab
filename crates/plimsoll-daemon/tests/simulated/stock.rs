//! Owner of the kernel in memory, on stock knobs.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use plimsoll_cgroupfs::simulated::{self, MOUNT};
use plimsoll_cgroupfs::{Hierarchy, Version};
use plimsoll_daemon::config::EnforcerWanted;
use plimsoll_daemon::log::Log;
use plimsoll_daemon::service::{Enforcing, Handover, Options, Starter, TakeGuard};
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::runtime::RuntimeFolder;

pub const RUNTIME: &str = "/simulated/run/plimsoll";
pub const CONFIG: &str = "/simulated/etc/plimsoll.toml";

/// Starts enforcers of stock kernels; there is no guard.
struct Stock {
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    handover: Option<Handover>,
}

impl Starter for Stock {
    fn may_attach_guard(&self) -> bool {
        false
    }

    fn attach_guard(&self, take: TakeGuard) {
        take(Err("no BPF".into()));
    }

    fn start(&mut self, _: EnforcerWanted) -> Result<Enforcing> {
        let (enforcer, left_behind) = CgroupEnforcer::adopting(&self.hierarchy, &self.runtime)?;
        Ok(Enforcing {
            enforcer: Box::new(enforcer),
            kind: EnforcerKind::Cgroup,
            is_scheduled: false,
            left_behind,
            handover: self.handover.take(),
        })
    }

    fn start_for_any(&mut self) -> Result<Enforcing> {
        self.start(EnforcerWanted::Auto)
    }

    fn choose(&self, _: EnforcerWanted) -> Result<bool> {
        Ok(false)
    }
}

/// Returns the options of an owner without threads: with the configuration file or without, and with
/// something of an earlier owner that holds limits or without.
pub fn options(version: Version, has_file: bool, log: Log, handover: Option<Handover>) -> Options {
    let hierarchy = Arc::new(Hierarchy::at_folder(Path::new(MOUNT), version));
    let runtime = RuntimeFolder::at(RUNTIME);
    Options {
        config: has_file.then(|| CONFIG.into()),
        runtime: runtime.clone(),
        hierarchy: Arc::clone(&hierarchy),
        starter: Box::new(Stock {
            hierarchy,
            runtime,
            handover,
        }),
        heartbeat: None,
        log: Arc::new(log),
    }
}

/// Returns a file that the kernel in memory takes for a pidfd of a process.
pub fn handle_of(pid: i32) -> OwnedFd {
    let file = std::fs::File::open("/dev/null").expect("every system has it");
    let handle: OwnedFd = file.into();
    let number = handle.as_raw_fd();
    simulated::with(|kernel| kernel.handles.insert(number, pid));
    handle
}
