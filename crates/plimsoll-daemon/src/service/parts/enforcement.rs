//! The enforcer with its planner and its control loop: they are replaced together.

use std::sync::{Arc, MutexGuard};

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::Result;
use plimsoll_engine::cgroup::Enforcer;
use plimsoll_engine::knobs::{Demand, Knobs};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::undo::UndoReport;

use super::super::desired::Desired;
use super::super::handle::Handle;
use super::super::options::{AfterAdoption, Starter};
use super::control_loop::{ControlLoop, Heartbeat, Shared};
use super::planner::{Planned, Planner};
use crate::config::{Config, EnforcerWanted};

pub(in crate::service) struct Enforcement {
    hierarchy: Arc<Hierarchy>,
    starter: Box<dyn Starter>,
    planner: Planner,
    control: ControlLoop,
    /// The policy that was handed to the enforcer.
    machine: Option<MachinePolicy>,
    hands_over_again: bool,
    after_adoption: Option<AfterAdoption>,
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
            planner: Planner::new(
                &hierarchy,
                enforcing.enforcer.kind(),
                enforcing.is_scheduled,
            ),
            control: ControlLoop::start(enforcing.enforcer, heartbeat, service),
            machine: None,
            hands_over_again: false,
            after_adoption: enforcing.after_adoption,
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
        self.after_adoption = None;
        let enforcing = self.starter.start(wanted)?;
        let kind = enforcing.enforcer.kind();
        drop(self.control.replace(enforcing.enforcer));
        self.machine = None;
        self.after_adoption = enforcing.after_adoption;
        self.planner = Planner::new(&self.hierarchy, kind, enforcing.is_scheduled);
        Ok(enforcing.left_behind)
    }

    /// Undoes the changes of an earlier owner, or enforcer, that no wanted group needs any more.
    /// Called after all groups have been added.
    pub fn finish_adoption(&mut self, is_wanted: &dyn Fn(&str) -> bool) -> UndoReport {
        let mut report = self.enforcer().finish_adoption(is_wanted);
        if let Some(undo) = self.after_adoption.take() {
            report.extend(undo());
        }
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
        Some(self.enforcer().set_machine(&policy))
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

    /// Plans a group beside the demand of all groups.
    ///
    /// # Errors
    /// Names the first knob that cannot be used or enforced.
    pub fn plan(&self, desired: &Desired, demand: Demand) -> Result<Planned> {
        self.planner.plan(desired, demand)
    }

    /// Returns the knobs of a group with the headroom that the machine demands of it, for people.
    pub fn in_force(&self, desired: &Desired, knobs: &Knobs, demand: Demand) -> Knobs {
        self.planner.in_force(desired, knobs, demand)
    }

    /// Checks that a group can be enforced by itself, without the demand of others.
    pub fn check(&self, desired: &Desired) -> Result<()> {
        let own = [&desired.knobs].into_iter().collect();
        self.planner.plan(desired, own).map(drop)
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

    pub fn may_tune_host(&self) -> bool {
        self.planner.may_tune_host()
    }

    pub fn starter(&self) -> &dyn Starter {
        self.starter.as_ref()
    }

    /// Whether the scheduler enforces a group whose client has chosen so, or not.
    pub fn schedules(&self, is_wanted: bool) -> bool {
        self.planner.schedules(is_wanted)
    }

    /// Whether a group yields to headroom by the kernel's files.
    pub fn yields(&self, desired: &Desired) -> bool {
        self.planner.yields(desired)
    }

    /// Whether the scheduler enforces groups whose client has no choice.
    pub fn is_scheduled(&self) -> bool {
        self.planner.is_scheduled()
    }

    pub fn nr_cpus(&self) -> u32 {
        self.planner.nr_cpus()
    }
}
