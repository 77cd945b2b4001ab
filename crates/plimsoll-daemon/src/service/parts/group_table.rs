//! The group table: desired and applied state of all groups, retries, and demand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll_engine::knobs::{Class, HeadroomDemand, Knobs};

use super::super::desired::{self, Desired};

/// Delay of the first retry after a failure. It doubles with each further one, up to `RETRY_MAX`.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(in crate::service) struct GroupEntry {
    /// Desired state; `None`: the group is to be removed.
    pub desired: Option<Desired>,
    /// Knobs that the enforcer has applied; `None`: it has no such group.
    pub applied: Option<Knobs>,
    /// Failure, or loss of the desired state.
    pub problem: Option<String>,
    /// The state in force may differ from the one that the knobs ask for: a change has failed
    /// half-way, others have written, or the machine has begun or ceased to demand headroom.
    pub is_doubtful: bool,
    /// A value that others have written was left.
    has_external: bool,
    /// The knobs are in force, but a process could not be moved into the group yet.
    lacks_members: bool,
    failures: u32,
}

/// All groups by their unique name.
#[derive(Debug, Default)]
pub(in crate::service) struct GroupTable {
    entries: BTreeMap<String, GroupEntry>,
    /// Merged from all groups.
    demand: HeadroomDemand,
    /// Groups whose applied state may differ from the desired one, with the time of the next
    /// attempt after a failure; `None`: at once.
    due: BTreeMap<String, Option<Instant>>,
    /// A desired state has changed since the last merge of demands.
    has_changed: bool,
}

impl GroupTable {
    pub fn entries(&self) -> impl Iterator<Item = (&String, &GroupEntry)> {
        self.entries.iter()
    }

    pub fn get(&self, name: &str) -> Option<&GroupEntry> {
        self.entries.get(name)
    }

    pub fn is_applied(&self, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry.is_some_and(|entry| entry.applied.is_some())
    }

    /// A group that is not in force, although it is to be.
    pub fn not_in_force(&self) -> Option<&String> {
        let is_waiting = |entry: &GroupEntry| entry.desired.is_some() && entry.applied.is_none();
        let mut entries = self.entries.iter();
        entries
            .find(|(_, entry)| is_waiting(entry))
            .map(|(name, _)| name)
    }

    /// The groups that belong to a group of the file.
    pub fn names_of_rule(&self, rule: &str) -> Vec<String> {
        let of_rule = self.entries.iter().filter(|(_, entry)| {
            let desired = entry.desired.as_ref();
            desired.is_some_and(|desired| desired.group == rule)
        });
        of_rule.map(|(name, _)| name.clone()).collect()
    }

    pub fn desired(&self, name: &str) -> Option<&Desired> {
        self.entries.get(name)?.desired.as_ref()
    }

    pub fn desired_states(&self) -> impl Iterator<Item = &Desired> {
        self.entries
            .values()
            .filter_map(|entry| entry.desired.as_ref())
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Number of groups that are in force.
    pub fn nr_applied(&self) -> usize {
        let is_applied = |entry: &&GroupEntry| entry.applied.is_some();
        self.entries.values().filter(is_applied).count()
    }

    /// Returns whether any group is kept below normal work: its cgroup is idle, or is idle at times
    /// because it has a soft cap.
    pub fn has_batch(&self) -> bool {
        let mut applied = self.entries.values().filter_map(|it| it.applied.as_ref());
        applied.any(|knobs| knobs.class == Some(Class::Batch) || knobs.soft_cap.is_some())
    }

    pub fn wants_tuning(&self) -> bool {
        let mut applied = self.entries.values().filter_map(|it| it.applied.as_ref());
        applied.any(|knobs| knobs.host_tuning)
    }

    /// Sets the desired state of a group; `None`: it is to be removed. Returns whether that is
    /// a change.
    pub fn set_desired(&mut self, name: &str, desired: Option<Desired>) -> bool {
        match (self.entries.get_mut(name), desired) {
            (None, None) => return false,
            (Some(entry), desired) if entry.desired == desired => return false,
            (Some(entry), desired) => {
                entry.desired = desired;
                entry.failures = 0;
            }
            (None, desired) => {
                let entry = GroupEntry {
                    desired,
                    applied: None,
                    problem: None,
                    is_doubtful: false,
                    has_external: false,
                    lacks_members: false,
                    failures: 0,
                };
                self.entries.insert(name.to_owned(), entry);
            }
        }
        self.has_changed = true;
        self.mark_pending(name);
        true
    }

    pub fn demand(&self) -> HeadroomDemand {
        self.demand
    }

    /// Merges the headroom demands again if a desired state has changed. With another demand,
    /// every group is pending.
    pub fn merge_demand(&mut self) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let demand = desired::demand(self.desired_states());
        if demand != self.demand {
            self.demand = demand;
            self.mark_all_pending();
        }
    }

    /// Has a group reconciled at once.
    pub fn mark_pending(&mut self, name: &str) {
        self.due.insert(name.to_owned(), None);
    }

    pub fn mark_all_pending(&mut self) {
        self.due = self.entries.keys().map(|it| (it.clone(), None)).collect();
    }

    /// Has a group put into force again although its knobs are the same: others may have changed its
    /// files.
    pub fn doubt(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.is_doubtful = true;
            self.mark_pending(name);
        }
    }

    /// Leaves a value that others have written to a group's files until its next explicit change.
    pub fn respect(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.has_external = true;
        }
    }

    /// Has the values overwritten that others have written.
    pub fn end_respect(&mut self) {
        let with = self.entries.iter().filter(|(_, entry)| entry.has_external);
        let with: Vec<String> = with.map(|(name, _)| name.clone()).collect();
        with.iter().for_each(|name| self.doubt(name));
    }

    pub fn retry_all(&mut self) {
        self.due.values_mut().for_each(|at| *at = None);
    }

    /// Has such groups changed although their knobs are the same: whether a group yields to
    /// headroom is no knob of it.
    pub fn doubt_all(&mut self, is_meant: impl Fn(&Desired) -> bool) {
        for entry in self.entries.values_mut() {
            entry.is_doubtful |= entry.desired.as_ref().is_some_and(&is_meant);
        }
        self.mark_all_pending();
    }

    /// The failure of the last attempt to put the knobs into force; `None`: it succeeded, or there
    /// was none yet.
    pub fn failure(&self, name: &str) -> Option<String> {
        let entry = self.entries.get(name)?;
        let failed = entry.failures > 0 && !entry.lacks_members;
        failed.then(|| entry.problem.clone()).flatten()
    }

    /// Drops the applied state of all groups: another enforcer begins without groups.
    pub fn forget_applied(&mut self) {
        for entry in self.entries.values_mut() {
            entry.applied = None;
        }
        self.mark_all_pending();
    }

    /// Takes up to `most` pending groups, among them those whose retry is due.
    pub fn take_pending(&mut self, most: usize, now: Instant) -> Vec<String> {
        let is_due = |at: &Option<Instant>| at.is_none_or(|at| at <= now);
        let due = self.due.iter().filter(|(_, at)| is_due(at));
        let taken: Vec<String> = due.map(|(name, _)| name.clone()).take(most).collect();
        taken.iter().for_each(|name| self.take(name));
        taken
    }

    /// Takes one group, pending or not.
    pub fn take(&mut self, name: &str) {
        self.due.remove(name);
    }

    pub fn needs_reconcile(&self, now: Instant) -> bool {
        self.has_changed || self.has_pending() || self.due().is_some_and(|due| due <= now)
    }

    pub fn has_pending(&self) -> bool {
        self.due.values().any(Option::is_none)
    }

    /// Returns the time of the next retry.
    pub fn due(&self) -> Option<Instant> {
        self.due.values().flatten().min().copied()
    }

    /// Notes a success, as [`Self::in_force`] does.
    pub fn applied(&mut self, name: &str, knobs: Knobs, loss: Option<String>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.applied = Some(knobs);
        }
        self.in_force(name, loss);
    }

    /// Notes that the applied state is the desired one. `loss`: the part of the desired state that
    /// cannot be enforced.
    pub fn in_force(&mut self, name: &str, loss: Option<String>) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.problem = loss;
            entry.is_doubtful = false;
            entry.has_external = false;
            entry.lacks_members = false;
            entry.failures = 0;
        }
    }

    /// Notes that the knobs are in force, but not for a process that could not be moved into the
    /// group, and schedules a retry. Returns whether that is to be logged.
    pub fn lacks_members(
        &mut self,
        name: &str,
        knobs: Knobs,
        problem: String,
        now: Instant,
    ) -> bool {
        let is_new = self.failed(name, problem, now);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.applied = Some(knobs);
            entry.lacks_members = true;
        }
        is_new
    }

    pub fn removed(&mut self, name: &str) {
        match self.entries.get_mut(name) {
            Some(entry) if entry.desired.is_some() => entry.applied = None,
            _ => self.forget(name),
        }
    }

    fn forget(&mut self, name: &str) {
        self.entries.remove(name);
        self.due.remove(name);
    }

    /// Notes a failure, and schedules a retry. Returns whether it is to be logged: it is the
    /// first, or has another reason than the last.
    pub fn failed(&mut self, name: &str, problem: String, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        let is_new = entry.problem.as_ref() != Some(&problem);
        entry.problem = Some(problem);
        entry.is_doubtful = true;
        entry.lacks_members = false;
        let delay = RETRY_FIRST * 2u32.pow(entry.failures.min(6));
        entry.failures = entry.failures.saturating_add(1);
        let at = now + delay.min(RETRY_MAX);
        let due = self.due.entry(name.to_owned()).or_insert(Some(at));
        // It may have become pending meanwhile.
        *due = due.map(|_| at);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cgroupfs::os;

    fn desired(group: &str) -> Desired {
        Desired::of_cgroup(group, "{}")
    }

    #[test]
    fn a_state_that_is_desired_twice_is_applied_once() {
        let mut table = GroupTable::default();
        assert!(table.set_desired("/a", Some(desired("g"))));
        assert!(!table.set_desired("/a", Some(desired("g"))));
        let now = os::now();
        assert_eq!(table.take_pending(10, now), ["/a"]);
        assert!(table.take_pending(10, now).is_empty());
        assert!(table.set_desired("/a", Some(desired("h"))));
        assert!(table.set_desired("/a", None));
        assert!(!table.set_desired("/b", None));
        assert_eq!(table.take_pending(10, now), ["/a"]);
        table.removed("/a");
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_failed_group_is_retried_with_growing_delay_and_logged_once() {
        let mut table = GroupTable::default();
        table.set_desired("/a", Some(desired("g")));
        let mut now = os::now();
        let mut delay = Duration::ZERO;
        for attempt in 0..12 {
            assert_eq!(table.take_pending(10, now), ["/a"]);
            assert_eq!(table.failed("/a", "full".into(), now), attempt == 0);
            assert_eq!((table.len(), table.nr_applied()), (1, 0));
            assert!(table.take_pending(10, now).is_empty());
            let next = table.due().unwrap() - now;
            assert!(next >= delay && next <= RETRY_MAX);
            delay = next;
            now += next;
        }
        assert_eq!(delay, RETRY_MAX);
        // As on a reload.
        table.mark_all_pending();
        assert_eq!(table.due(), None);
        assert_eq!(table.take_pending(10, now), ["/a"]);
        table.applied("/a", Knobs::default(), None);
        assert_eq!(table.nr_applied(), 1);
        assert_eq!(table.due(), None);
        assert_eq!(table.get("/a").unwrap().problem, None);
    }
}
