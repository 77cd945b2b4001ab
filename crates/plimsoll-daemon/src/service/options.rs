//! Parameters of a service, and the interface to enforcers, which differ between builds.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::sched::CpuSet;
use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::enforcer::{Enforcer, EnforcerKind};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::undo::UndoReport;

use crate::config::EnforcerWanted;
use crate::log::Log;
use crate::state::GuardCounts;

/// Time after its last group at which an owner without a configuration file ends, and after the
/// last batch group at which any owner's guard is detached: a script that runs one command after
/// another has one owner, and one guard.
pub const LINGER: Duration = Duration::from_secs(2);
/// Interval of looks at conditions that no event tells.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Enforcing {
    pub enforcer: Box<dyn Enforcer>,
    pub kind: EnforcerKind,
    /// The BPF scheduler enforces groups whose client has no choice; else stock knobs do.
    pub is_scheduled: bool,
    /// Undo of changes that earlier processes left behind.
    pub left_behind: UndoReport,
    /// Undo of what holds limits until all groups are in force.
    pub handover: Option<Handover>,
}

/// Undoes changes of an earlier owner.
pub type Handover = Box<dyn FnOnce() -> UndoReport + Send>;

/// An attached guard: it has the kernel's fair class look again where the class runs batch work
/// before normal work. Dropping it detaches it.
pub trait AttachedGuard: Send {
    /// Returns the CPUs that were online and allowed to this process when the guard was attached.
    fn cpus(&self) -> CpuSet;

    /// Returns the looks and wake-ups since then.
    fn counts(&self) -> GuardCounts;
}

/// A guard, or why there is none.
pub type Attached = Result<Box<dyn AttachedGuard>, Box<dyn Error + Send + Sync>>;

/// Takes the guard, on any thread.
pub type TakeGuard = Arc<dyn Fn(Attached) + Send + Sync>;

/// Starts enforcers and the guard, of the host or of a test.
pub trait Starter: Send {
    /// Returns at once whether this process may attach the guard, as far as it knows.
    fn may_attach_guard(&self) -> bool;

    /// Attaches the guard, or says why this host has none. Loading a BPF program
    /// takes tenths of a second, so a thread does it: no client should wait for it.
    fn attach_guard(&self, take: TakeGuard);

    /// Starts the enforcer that the operator wants, or the best one of the host.
    ///
    /// # Errors
    /// When this host cannot run it.
    fn start(&mut self, wanted: EnforcerWanted) -> plimsoll_engine::Result<Enforcing>;

    /// Starts an enforcer that loads the scheduler for groups that want it, and for no others.
    ///
    /// # Errors
    /// When there is no permission.
    fn start_for_any(&mut self) -> plimsoll_engine::Result<Enforcing>;

    /// Chooses whether the scheduler enforces a group; else stock knobs do.
    ///
    /// # Errors
    /// When this host cannot run the wanted enforcer; the error says why.
    fn choose(&self, wanted: EnforcerWanted) -> plimsoll_engine::Result<bool>;
}

/// Called while the control loop is alive, for a watchdog.
pub type Heartbeat = Box<dyn Fn() + Send>;

pub struct Options {
    /// The configuration file; `None`: a client has started the owner, which serves those that come
    /// and ends [`LINGER`] after the last group, unless a daemon that was killed has left it a file.
    pub config: Option<PathBuf>,
    pub runtime: RuntimeFolder,
    pub hierarchy: Arc<Hierarchy>,
    pub starter: Box<dyn Starter>,
    /// Called while control loop and service are alive. `None`: the control loop has no thread of
    /// its own, and each turn of the service does its work.
    pub heartbeat: Option<Heartbeat>,
    pub log: Arc<Log>,
}
