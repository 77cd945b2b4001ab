//! Reconcile: makes the applied state of groups equal the desired one.

use plimsoll_cgroupfs::{name::path_of, os};
use plimsoll_engine::action::Action;
use plimsoll_engine::knobs::{BandwidthSlice, Knobs};
use plimsoll_engine::undo::UndoReport;
use plimsoll_engine::{EngineError, Result};

use super::Service;
use super::decision::decide;
use super::desired::{self, Desired};
use super::options::LOOK_INTERVAL;

/// Groups that are reconciled in one go. Requests and the control loop wait that long.
const CHUNK: usize = 64;

impl Service {
    pub(super) fn reconcile(&mut self) {
        self.table.merge_demand();
        self.follow_machine();
        if !self.table.needs_reconcile(os::now()) {
            return;
        }
        loop {
            let names = self.table.take_pending(CHUNK, os::now());
            if names.is_empty() {
                break;
            }
            self.reconcile_chunk(&names);
            self.enforcement.shared.look_now();
            self.enforcement.shared.service_is_alive();
        }
        let left = self.follow_handover();
        self.notices
            .log_undo(&left, "for no group needs it any more");
    }

    /// Puts one group into force before the others that are pending.
    pub(super) fn reconcile_first(&mut self, name: &str) {
        self.table.merge_demand();
        self.follow_machine();
        self.table.take(name);
        self.reconcile_chunk(&[name.to_owned()]);
        self.enforcement.shared.look_now();
    }

    /// Hands the machine's policy, with this bandwidth slice, to the enforcer if it has changed, or
    /// `again`.
    ///
    /// # Errors
    /// When the kernel or this process's rights do not allow it.
    pub(super) fn set_machine(&mut self, slice: Option<BandwidthSlice>, again: bool) -> Result<()> {
        let states = self.table.desired_states();
        let policy = desired::machine(states, self.table.demand(), slice);
        let had_headroom = self.enforcement.has_headroom();
        if let Some(set) = self.enforcement.set_machine(policy, again) {
            if policy.demand.has_headroom() != had_headroom {
                let enforcement = &self.enforcement;
                self.table
                    .doubt_all(|desired| enforcement.planner.yields(desired));
            }
            set?;
            self.notices.note_problem("machine", None);
        }
        Ok(())
    }

    /// Hands the machine's policy over with the bandwidth slice of the configuration. A failure is
    /// a problem for the operator and not fatal: the groups' limits hold nevertheless.
    fn follow_machine(&mut self) {
        if let Err(error) = self.set_machine(self.config().bandwidth_slice, false) {
            self.notices
                .note_problem("machine", Some(error.to_string()));
        }
    }

    fn reconcile_chunk(&mut self, names: &[String]) {
        let (mut removals, mut puts) = (Vec::new(), Vec::new());
        for name in names {
            match self.decide(name) {
                Ok((Some(put @ Action::Put(_)), loss)) => puts.push((put, loss)),
                Ok((Some(removal), loss)) => removals.push((removal, loss)),
                Ok((None, loss)) => self.table.in_force(name, loss),
                // The desired state cannot be enforced; the applied one stays.
                Err(error) => self.note_failure(name, &error),
            }
        }
        // First the removals: a cgroup can have a limit only within those around it.
        let (actions, losses): (Vec<Action>, Vec<_>) = removals.into_iter().chain(puts).unzip();
        if actions.is_empty() {
            return;
        }
        let done = self.enforcement.enforcer().apply(&actions);
        for ((action, loss), done) in actions.into_iter().zip(losses).zip(done) {
            match (action, done) {
                (Action::Put(group), Ok(_)) => self.note_applied(&group.name, group.knobs, loss),
                (Action::Put(group), Err(error)) => self.note_failure(&group.name, &error),
                (Action::Remove(name), done) => drop(self.note_removed(&name, done)),
                // Not about a group.
                _ => (),
            }
        }
    }

    /// Returns the change that a group needs, if any, and the loss of its desired state.
    ///
    /// # Errors
    /// When this host cannot enforce the desired state.
    fn decide(&self, name: &str) -> Result<(Option<Action>, Option<String>)> {
        let Some(entry) = self.table.get(name) else {
            return Ok((None, None));
        };
        let (planner, demand) = (&self.enforcement.planner, self.table.demand());
        let planned = entry.desired.as_ref().map(|it| planner.plan(it, demand));
        let planned = planned.transpose()?.map(|it| (it.knobs, it.loss));
        let (knobs, loss) = planned.unzip();
        let action = decide(name, entry, knobs, self.burst_enabled());
        Ok((action, loss.flatten()))
    }

    /// Notes a success, and moves the group's noted processes into it. If that fails, the group is
    /// tried again.
    fn note_applied(&mut self, name: &str, knobs: Knobs, loss: Option<String>) {
        self.requests.look_at(name, os::now());
        let taken = self.take_back_members(name);
        let log = &self.notices.log;
        let Err(error) = taken else {
            log.debug("apply", &format!("{name}: in force: {knobs}"));
            if let Some(loss) = &loss {
                log.warning("apply", &format!("{name}: {loss}"));
            }
            self.table.applied(name, knobs, loss);
            return;
        };
        let problem = format!("a process cannot be moved into it: {error}");
        let now = os::now();
        if self.table.lacks_members(name, knobs, problem.clone(), now) {
            let text = format!("{name}: {problem}");
            self.notices.log.error("member", &text);
        }
    }

    /// Undoes the changes of an earlier owner that no group needs any more.
    pub(super) fn finish_adoption(&mut self) -> UndoReport {
        let entries = self.table.entries();
        let desired = entries.filter(|(_, entry)| entry.desired.is_some());
        let wanted = desired.map(|(name, _)| name.clone()).collect();
        let mut report = self.enforcement.undo(Action::FinishAdoption { wanted });
        report.extend(self.follow_handover());
        report
    }

    /// Undoes what holds limits of an earlier owner, or enforcer, once all groups are in force.
    fn follow_handover(&mut self) -> UndoReport {
        let has_handover = self.enforcement.has_handover();
        let waiting = has_handover.then(|| self.table.not_in_force()).flatten();
        let waiting = waiting
            .map(|name| format!("the scheduler stays loaded until this group is in force: {name}"));
        let is_over = waiting.is_none();
        // Also where another enforcer has taken over what still held limits.
        self.notices.note_problem("handover", waiting);
        match is_over {
            true => self.enforcement.end_handover(),
            false => UndoReport::default(),
        }
    }

    /// Undoes the changes of a group that is not desired any more.
    pub(super) fn take_away(&mut self, name: &str) -> UndoReport {
        // Also of a group that failed to apply: an earlier owner may have left it limited.
        let done = self.enforcement.make(Action::Remove(name.to_owned()));
        self.note_removed(name, done)
    }

    fn note_removed(&mut self, name: &str, done: Result<UndoReport>) -> UndoReport {
        let mut report = UndoReport::default();
        match done {
            Ok(undone) => {
                report = undone;
                self.notices
                    .log
                    .debug("apply", &format!("{name}: put back"));
            }
            Err(EngineError::NoTarget { .. }) => (),
            Err(error) => {
                self.note_failure(name, &error);
                report.problems.push(error.to_string());
                return report;
            }
        }
        self.notices.log_undo_problems(&report);
        self.table.removed(name);
        report
    }

    pub(super) fn note_failure(&mut self, name: &str, error: &EngineError) {
        let desired = self.table.desired(name);
        let is_foreign = desired.is_some_and(Desired::is_foreign);
        let was_recreated = error.is_gone() && self.table.failure(name).is_none();
        let problem = error.to_string();
        let now = os::now();
        self.requests.look_at(name, now + LOOK_INTERVAL);
        if is_foreign && (was_recreated || !self.folder_exists(name)) {
            // The cgroup went between match and write, which is no failure. The watch reports
            // its end, and the next cgroup with its name.
            self.table.failed(name, problem, now);
            return;
        }
        self.notices.counters.apply_failures += 1;
        if self.table.failed(name, problem.clone(), now) {
            self.notices
                .log
                .error("apply", &format!("{name}: {problem}"));
        }
    }

    pub(super) fn folder_exists(&self, name: &str) -> bool {
        let path = path_of(name.trim_start_matches('/'));
        os::is_folder(&self.hierarchy.cpu_folder(&path))
    }
}
