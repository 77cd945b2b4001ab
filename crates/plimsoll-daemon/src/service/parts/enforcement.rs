//! The enforcer with its planner and its control loop: they are replaced together.

use std::sync::{Arc, MutexGuard};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::Result;
use plimsoll_engine::action::Action;
use plimsoll_engine::enforcer::Enforcer;
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::undo::UndoReport;

use super::super::handle::Handle;
use super::super::options::{Handover, Starter};
use super::control_loop::{ControlLoop, Heartbeat, Shared};
use super::planner::Planner;
use crate::config::{Config, EnforcerWanted};

pub(in crate::service) struct Enforcement {
    hierarchy: Arc<Hierarchy>,
    starter: Box<dyn Starter>,
    planner: Planner,
    control: ControlLoop,
    /// The policy that was handed to the enforcer.
    machine: Option<MachinePolicy>,
    hands_over_again: bool,
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
        let enforcement = Self {
            planner: Planner::new(&hierarchy, enforcing.kind, enforcing.is_scheduled),
            control: ControlLoop::start(enforcing.enforcer, heartbeat, service),
            machine: None,
            hands_over_again: false,
            handover: enforcing.handover,
            starter,
            hierarchy,
        };
        Ok((enforcement, enforcing.left_behind))
    }

    /// Starts another enforcer in the place of the present one, which has left its groups. Returns
    /// the undo of changes that the new one cannot adopt.
    ///
    /// # Errors
    /// When the new one cannot be started; the present one stays, and has no groups.
    pub fn replace(&mut self, wanted: EnforcerWanted) -> Result<UndoReport> {
        // Else the next enforcer could not have what this holds.
        self.handover = None;
        let enforcing = self.starter.start(wanted)?;
        drop(self.control.replace(enforcing.enforcer));
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

    /// Hands the machine's policy to the enforcer. `None`: it has this policy already. A policy
    /// that the kernel has refused is not tried again by itself.
    pub fn set_machine(&mut self, policy: MachinePolicy) -> Option<Result<()>> {
        if self.machine == Some(policy) && !std::mem::take(&mut self.hands_over_again) {
            return None;
        }
        self.machine = Some(policy);
        self.hands_over_again = false;
        Some(self.make(Action::SetMachine(policy)).map(drop))
    }

    /// Whether groups yield to headroom.
    pub fn has_headroom(&self) -> bool {
        self.machine
            .is_some_and(|machine| machine.demand.has_headroom())
    }

    /// Has the next policy handed over even if it is the same.
    pub fn hand_over_again(&mut self) {
        self.hands_over_again = true;
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
        self.control.shared().enforcer()
    }

    /// Does the control loop's work where the loop has no thread of its own.
    pub fn control_without_a_thread(&self, service: &Handle) {
        self.control.tick_without_a_thread(service);
    }

    pub fn shared(&self) -> &Shared {
        self.control.shared()
    }

    /// Chooses whether the scheduler enforces a group, where the owner leaves the choice to
    /// clients.
    pub fn choose(&self, wanted: EnforcerWanted) -> Result<bool> {
        self.starter.choose(wanted)
    }

    /// Whether the scheduler is loaded: then the fair class has no tasks.
    pub fn has_all_tasks(&self) -> bool {
        self.starter.choose(EnforcerWanted::Auto).unwrap_or(false)
    }

    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    pub fn starter(&self) -> &dyn Starter {
        self.starter.as_ref()
    }
}
