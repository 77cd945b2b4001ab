//! The guard of the fair class, as the owner attaches it.

use std::path::PathBuf;

use nix::sched::CpuSet;
use plimsoll_daemon::service::AttachedGuard;
use plimsoll_daemon::state::GuardCounts;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::owner::GUARD_SWITCH as SWITCH;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct InKernel(plimsoll_guard::Guard);

impl AttachedGuard for InKernel {
    fn cpus(&self) -> CpuSet {
        self.0.cpus()
    }

    fn counts(&self) -> GuardCounts {
        let counts = self.0.counts();
        GuardCounts {
            nr_begun: counts.nr_begun,
            nr_inverted: counts.nr_inverted,
            nr_woken: counts.nr_woken,
            nr_pulled: counts.nr_pulled,
            nr_pushed: counts.nr_pushed,
        }
    }
}

/// The file of the moves under way.
fn moves(runtime: &RuntimeFolder) -> PathBuf {
    runtime.path().join("moves")
}

/// Checks that nobody has switched the guard off.
fn check_switch() -> Result<()> {
    match std::env::var(SWITCH).as_deref() {
        Err(std::env::VarError::NotPresent) | Ok("on") => Ok(()),
        Ok("off") => Err(format!("{SWITCH}=off").into()),
        other => Err(format!("{SWITCH} is {other:?}; allowed: on, off").into()),
    }
}

/// Returns whether this process attaches the guard, unless the kernel refuses its program.
pub fn may_be_attached() -> bool {
    let is_permitted = plimsoll_guard::Guard::is_permitted;
    Capabilities::has_btf() && check_switch().is_ok() && is_permitted()
}

/// Attaches the guard.
///
/// # Errors
/// When this host has no guard, or the guard is switched off; the text says why.
pub fn attach(runtime: &RuntimeFolder) -> Result<Box<dyn AttachedGuard>> {
    check_switch()?;
    plimsoll_scx::silence_libbpf();
    let guard = plimsoll_guard::Guard::attach(&moves(runtime))?;
    Ok(Box::new(InKernel(guard)))
}

/// Checks that the guard could be attached.
///
/// # Errors
/// As of [`attach`].
pub fn check() -> Result<()> {
    check_switch()?;
    plimsoll_scx::silence_libbpf();
    Ok(plimsoll_guard::Guard::check()?)
}

/// Frees the tasks that an owner has left bound to a CPU because it was killed while its guard
/// moved them.
pub fn free_left_tasks(runtime: &RuntimeFolder) -> UndoReport {
    let mut report = UndoReport::default();
    match plimsoll_guard::free_left_tasks(&moves(runtime)) {
        Ok(tids) => {
            let names = tids.iter().map(|tid| format!("CPUs of task {tid}"));
            report.undone.extend(names);
        }
        Err(error) => {
            let problem = format!("cannot read {}: {error}", moves(runtime).display());
            report.problems.push(problem);
        }
    }
    report
}
