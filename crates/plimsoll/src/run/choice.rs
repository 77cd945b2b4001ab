//! Which enforcer a group gets.

use plimsoll_engine::host::{Mode, SchedExt};
use plimsoll_engine::knobs::Knobs;
#[cfg(feature = "sched-ext")]
use plimsoll_engine::plan::{is_scheduled, needs_sched_ext};
#[cfg(feature = "sched-ext")]
use plimsoll_engine::runtime::RuntimeFolder;
#[cfg(feature = "sched-ext")]
use plimsoll_scx::Host;

use crate::cli::{EnforcerChoice, PlanArgs};
use crate::error::{CommandError, Result};

/// What enforces a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The stock kernel's control groups.
    Stock,
    /// Plimsoll's BPF scheduler.
    SchedExt(SchedExt),
}

/// Chooses for a group with these knobs. Starting a command must stay fast:
/// by itself, the scheduler is loaded only for what nothing else can do.
///
/// # Errors
/// When what was asked for is not to be had; it says why.
pub fn choose(knobs: &Knobs, args: &PlanArgs) -> Result<Means> {
    let wanted = args.mode.map(Mode::from);
    match args.enforcer {
        EnforcerChoice::SchedExt => sched_ext(wanted).map(Means::SchedExt),
        EnforcerChoice::Cgroup if wanted == Some(Mode::All) => Err(CommandError::Other(
            "mode: `all` takes a sched_ext scheduler; allowed with --enforcer cgroup: partial"
                .into(),
        )),
        EnforcerChoice::Cgroup => Ok(Means::Stock),
        EnforcerChoice::Auto if wanted == Some(Mode::All) => sched_ext(wanted).map(Means::SchedExt),
        EnforcerChoice::Auto => Ok(automatic(knobs, wanted)),
    }
}

#[cfg(feature = "sched-ext")]
fn automatic(knobs: &Knobs, wanted: Option<Mode>) -> Means {
    let runtime = RuntimeFolder::of_this_user();
    let useful = match Host::loaded(&runtime) {
        Some(loaded) => is_scheduled(knobs, loaded),
        None => needs_sched_ext(knobs, wanted.unwrap_or_default()),
    };
    if !useful {
        return Means::Stock;
    }
    let ready = Host::readiness(&runtime);
    let usable = ready.check().and_then(|()| ready.sched_ext(wanted));
    usable.map_or(Means::Stock, Means::SchedExt)
}

#[cfg(feature = "sched-ext")]
fn sched_ext(wanted: Option<Mode>) -> Result<SchedExt> {
    let ready = Host::readiness(&RuntimeFolder::of_this_user());
    let usable = ready.check().and_then(|()| ready.sched_ext(wanted));
    usable.map_err(|error| {
        CommandError::Other(format!(
            "enforcer: `sched-ext` cannot be used here: {error}; allowed: auto, cgroup"
        ))
    })
}

#[cfg(not(feature = "sched-ext"))]
fn automatic(_knobs: &Knobs, _wanted: Option<Mode>) -> Means {
    Means::Stock
}

#[cfg(not(feature = "sched-ext"))]
fn sched_ext(_wanted: Option<Mode>) -> Result<SchedExt> {
    Err(CommandError::Other(
        "enforcer: `sched-ext` is not in this build; allowed: auto, cgroup".into(),
    ))
}
