//! The enforcer with its planner and its control loop: they are replaced together.

use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::Result;
use plimsoll_engine::action::Action;
use plimsoll_engine::enforcer::Enforcer;
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::undo::UndoReport;

use super::super::handle::Handle;
use super::super::options::{Handover, Heartbeat, Starter};
use super::control_loop::Shared;
use super::planner::Planner;
use crate::config::{Config, EnforcerWanted};

pub(in crate::service) struct Enforcement {
    hierarchy: Arc<Hierarchy>,
    pub starter: Box<dyn Starter>,
    pub planner: Planner,
    /// The enforcer, and what it shares with the control loop.
    pub shared: Arc<Shared>,
    /// The control loop; `None`: each turn of the service does its work.
    thread: Option<JoinHandle<()>>,
    /// The policy that was handed to the enforcer.
    machine: Option<MachinePolicy>,
    /// Undo of what an earlier owner, or enforcer, has left that still holds limits.
    handover: Option<Handover>,
}

impl Enforcement {
    /// Starts the enforcer of a configuration, or one for any client without a configuration,
    /// and its control loop. Returns the undo of changes that earlier processes left behind.
    pub fn start(
        hierarchy: Arc<Hierarchy>,
        mut starter: Box<dyn Starter>,
        config: Option<&Config>,
        heartbeat: Option<Heartbeat>,
        service: Handle,
    ) -> Result<(Self, UndoReport)> {
        let enforcing = match config {
            Some(config) => starter.start(config.enforcer)?,
            None => starter.start_for_any()?,
        };
        let shared = Arc::new(Shared::new(enforcing.enforcer));
        let enforcement = Self {
            planner: Planner::new(&hierarchy, enforcing.kind, enforcing.is_scheduled),
            thread: heartbeat.map(|heartbeat| shared.spawn(heartbeat, service)),
            shared,
            machine: None,
            handover: enforcing.handover,
            starter,
            hierarchy,
        };
        Ok((enforcement, enforcing.left_behind))
    }

    /// Starts another enforcer in the place of the present one, which has left its groups; `None`:
    /// one for any client. Returns the undo of changes that the new one cannot adopt.
    ///
    /// # Errors
    /// When the new one cannot be started; the present one stays, and has no groups.
    pub fn replace(&mut self, wanted: Option<EnforcerWanted>) -> Result<UndoReport> {
        // The next enforcer may take over what still holds limits.
        self.handover = None;
        let enforcing = match wanted {
            Some(wanted) => self.starter.start(wanted)?,
            None => self.starter.start_for_any()?,
        };
        self.shared.replace(enforcing.enforcer);
        self.machine = None;
        self.handover = enforcing.handover;
        self.planner = Planner::new(&self.hierarchy, enforcing.kind, enforcing.is_scheduled);
        Ok(enforcing.left_behind)
    }

    /// Whether something of an earlier owner, or enforcer, still holds limits.
    pub fn has_handover(&self) -> bool {
        self.handover.is_some()
    }

    /// Undoes what still holds limits. All groups are in force, or are undone.
    pub fn end_handover(&mut self) -> UndoReport {
        let undo = self.handover.take();
        undo.map(|undo| undo()).unwrap_or_default()
    }

    /// Undoes everything.
    pub fn undo_all(&mut self) -> UndoReport {
        let mut report = self.undo(Action::UndoAll);
        report.extend(self.end_handover());
        report
    }

    /// Hands the machine's policy to the enforcer. `None`: it has this policy already, and is not to
    /// have it `again`. A policy that the kernel has refused is not tried again by itself.
    pub fn set_machine(&mut self, policy: MachinePolicy, again: bool) -> Option<Result<()>> {
        if self.machine == Some(policy) && !again {
            return None;
        }
        self.machine = Some(policy);
        Some(self.make(Action::SetMachine(policy)).map(drop))
    }

    /// Whether groups yield to headroom.
    pub fn has_headroom(&self) -> bool {
        self.machine
            .is_some_and(|machine| machine.demand.has_headroom())
    }

    /// Has the enforcer make one change. Returns the undo of changes that it is about.
    ///
    /// # Errors
    /// When the kernel refuses, or there is no such group.
    pub fn make(&self, action: Action) -> Result<UndoReport> {
        // One result for one action.
        let mut done = self.enforcer().apply(&[action]);
        done.pop().unwrap_or_else(|| Ok(UndoReport::default()))
    }

    /// Has the enforcer undo changes. A failure is one of the problems.
    pub fn undo(&self, action: Action) -> UndoReport {
        self.make(action).unwrap_or_else(|error| UndoReport {
            problems: vec![error.to_string()],
            ..UndoReport::default()
        })
    }

    pub fn enforcer(&self) -> MutexGuard<'_, Box<dyn Enforcer>> {
        self.shared.enforcer()
    }

    /// Does the control loop's work where the loop has no thread of its own.
    pub fn control_without_a_thread(&self, service: &Handle) {
        if self.thread.is_none() {
            self.shared.tick_without_a_thread(service);
        }
    }

    /// Whether the scheduler is loaded: then the fair class has no tasks.
    pub fn has_all_tasks(&self) -> bool {
        self.starter.choose(EnforcerWanted::Auto).unwrap_or(false)
    }
}

impl Drop for Enforcement {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed.
            let _ = thread.join();
        }
    }
}
