//! The enforcer on the BPF scheduler.
//!
//! It contains an enforcer for stock knobs, which creates the cgroup with its idle mark, nice,
//! weight, journal and undo, and enforces all knobs of groups that the scheduler does not schedule.
//! The stock enforcer does not get the knobs that the scheduler enforces.

mod follow;
mod handover;
mod link;
mod scheduled;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::{CpuGroup, Hierarchy, threads_below};
use plimsoll_engine::action::{self, Action};
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::enforcer::{Enforcer, Tick};
use plimsoll_engine::group_policy::GroupPolicy;
use plimsoll_engine::knobs::{Burst, Class, HeadroomDemand, Knobs};
use plimsoll_engine::machine_policy::MachinePolicy;
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::sample::{HeadroomSample, MachineSample, Sample, TaskRates};
use plimsoll_engine::undo::UndoReport;
use plimsoll_engine::{EngineError, Result};

use crate::SchedExtError;
use crate::loading::Loading;
use crate::params::cgroup_id;
use crate::pins::Pins;
use crate::sample::{MachineUse, task_rates};
use link::Link;
use scheduled::{ScheduledGroups, hand_over};

/// Interval of looks whether the scheduler runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Most groups that are named as sharing the headroom.
const NAMES_MAX: usize = 32;

/// Enforces knobs through Plimsoll's BPF scheduler, and through stock knobs for groups that it does
/// not schedule.
#[derive(Debug)]
pub struct SchedExtEnforcer {
    stock: CgroupEnforcer,
    /// Groups of the scheduler; the others use stock knobs only.
    scheduled: ScheduledGroups,
    /// The scheduler is loaded for the first group that needs it, and removed with the last.
    is_lazy: bool,
    /// All groups of an earlier owner were adopted: the scheduler has no others.
    has_adopted: bool,
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    /// The machine's policy; `None`: the service has not set it yet, and a scheduler that an earlier
    /// owner has left keeps its own.
    machine: Option<MachinePolicy>,
    /// Messages for the user.
    messages: Vec<String>,
    /// Whether an earlier owner has left the scheduler, until that is adopted or replaced.
    is_left: bool,
    pins: Pins,
    link: Link,
    /// CPUs that were online when the scheduler got the machine's policy; `None`: it does not have
    /// the present policy yet.
    policy_cpus: Option<u32>,
    looks: Looks,
    usage: MachineUse,
}

/// Periodic looks whether the scheduler runs.
#[derive(Debug)]
struct Looks {
    last: Option<Instant>,
    /// Last failure that was reported.
    problem: Option<String>,
    /// Last report on limits of normal groups.
    limits_hold: bool,
}

/// The part of a group that the stock enforcer applies. The kernel accepts no weight for a cgroup
/// with an idle mark of its own, such as a foreign one, but the scheduler does. A quota in the file
/// holds while the kernel has thrown the scheduler out, with as much burst as the file can say; that
/// of a foreign cgroup may be somebody else's.
fn stock_part(group: &GroupPolicy) -> GroupPolicy {
    let (knobs, is_own) = (&group.knobs, !group.is_foreign());
    let quota = knobs.quota.filter(|_| is_own);
    let burst_max_ns = quota.and_then(|quota| quota.quota_ns);
    let burst = knobs.burst.zip(burst_max_ns);
    let knobs = match group.is_scheduled {
        false => knobs.clone(),
        true => Knobs {
            class: knobs.class,
            nice: knobs.nice,
            weight: knobs.weight.filter(|_| is_own),
            quota,
            burst: burst.map(|(burst, most_ns)| Burst {
                burst_ns: burst.burst_ns.min(most_ns),
            }),
            ..Knobs::default()
        },
    };
    GroupPolicy {
        knobs,
        ..group.clone()
    }
}

impl SchedExtEnforcer {
    /// Adopts the scheduler and the groups of an earlier owner, or loads the scheduler. Groups are
    /// adopted when they are added; the others are undone by [`Action::FinishAdoption`].
    /// `is_lazy`: the scheduler is loaded for the first group that is to be scheduled, and removed
    /// with the last.
    ///
    /// # Errors
    /// The missing requirement, or the reason why the scheduler cannot be loaded.
    pub fn adopting(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        is_lazy: bool,
    ) -> Result<(Self, UndoReport)> {
        let pins = Pins::of(runtime);
        // This process owns the tree: no other keeps them.
        let is_left = pins.are_own();
        let (stock, left_behind) = CgroupEnforcer::adopting(hierarchy, runtime)?;
        let mut enforcer = Self {
            stock,
            scheduled: ScheduledGroups::new(),
            is_lazy,
            has_adopted: false,
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            machine: None,
            messages: Vec::new(),
            is_left,
            pins,
            link: Link::default(),
            policy_cpus: None,
            looks: Looks {
                last: None,
                problem: None,
                limits_hold: true,
            },
            usage: MachineUse::default(),
        };
        if !is_lazy && let Err(error) = enforcer.need_scheduler() {
            enforcer.leave_all();
            return Err(error.into());
        }
        Ok((enforcer, left_behind))
    }

    fn need_scheduler(&mut self) -> std::result::Result<(), SchedExtError> {
        if self.link.objects.is_some() {
            return Ok(());
        }
        self.looks.last = None;
        let was_left = self.is_left;
        let found = self.find_scheduler();
        if found.is_err() && was_left {
            // The scheduler stays for the next owner.
            self.let_go_of_scheduler();
            self.is_left = true;
        } else if found.is_err() {
            let undone = self.drop_scheduler();
            self.messages.extend(undone.problems);
        }
        found
    }

    /// Lets go of the scheduler, which stays in the kernel. Returns whether there was one.
    fn let_go_of_scheduler(&mut self) -> bool {
        // First: the thread may yet bring in a scheduler.
        match self.link.loading.take().map(Loading::join) {
            // The next owner reports what cannot be adopted.
            Some(Ok(loaded)) => drop(self.follow(loaded)),
            Some(Err(error)) => self.report_failure(&error),
            None => (),
        }
        std::mem::take(&mut self.link).objects.is_some()
    }

    /// Removes the scheduler from the kernel, also one that an earlier owner has left.
    fn drop_scheduler(&mut self) -> UndoReport {
        let has_left = std::mem::take(&mut self.is_left);
        if self.link.since.is_some() {
            // Another owner may have claimed them for one that it could not load beside this.
            let _ = self.pins.claim();
        }
        match self.let_go_of_scheduler() || has_left {
            true => self.pins.remove(),
            false => UndoReport::default(),
        }
    }

    /// Removes the scheduler from the kernel if no group needs it any more. Before adoption has
    /// finished, groups of an earlier owner may.
    fn drop_unused_scheduler(&mut self) {
        if self.is_lazy && self.has_adopted && self.scheduled.is_empty() {
            let undone = self.drop_scheduler();
            self.messages.extend(undone.problems);
        }
    }

    fn demand(&self) -> HeadroomDemand {
        self.machine.unwrap_or_default().demand
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.stock.cgroup(name)?.cpu_file(""))
    }

    fn make(&mut self, action: &Action) -> Result<UndoReport> {
        match action {
            Action::Put(group) => self.put_all(&[group]).into_iter().collect::<Result<()>>()?,
            Action::SetMachine(policy) => self.set_machine(policy)?,
            Action::Remove(name) => return self.remove(name),
            Action::FinishAdoption { wanted } => return Ok(self.finish_adoption(wanted)),
            Action::UndoAll => return Ok(self.undo_all()),
            Action::LeaveAll => self.leave_all(),
        }
        Ok(UndoReport::default())
    }

    fn put_all(&mut self, groups: &[&GroupPolicy]) -> Vec<Result<()>> {
        // First: no process may join a group before its limits hold. A problem is told by the next
        // look.
        let _ = self.keep_loaded(Instant::now());
        let is_needed = groups.iter().any(|group| group.is_scheduled);
        let failed = is_needed.then(|| self.need_scheduler().err()).flatten();
        let problem = failed.map(|error| error.to_string());
        let loaded = groups.iter().map(|group| match &problem {
            Some(problem) if group.is_scheduled => Err(EngineError::SchedExt {
                problem: problem.clone(),
            }),
            _ => Ok(()),
        });
        let mut results: Vec<Result<()>> = loaded.collect();
        let early = self.hand_over_early(groups, &mut results);
        let ready: Vec<usize> = (0..groups.len())
            .filter(|index| results[*index].is_ok())
            .collect();
        let is_new = |group: &&GroupPolicy| !self.stock.knows(&group.name);
        let new: Vec<bool> = groups.iter().map(is_new).collect();
        let (done, made) = self.put_stock_parts(ready.iter().map(|index| groups[*index]));
        for (index, done) in ready.into_iter().zip(done) {
            let group = groups[index];
            let (is_early, is_made) = (early.contains(&group.name), made.contains(&group.name));
            results[index] = match done {
                Ok(()) if group.is_scheduled && !is_made => {
                    let handed_over = self.hand_over_present(group);
                    if handed_over.is_err() && new[index] {
                        // The error already describes the problem.
                        let _ = self.remove(&group.name);
                    }
                    handed_over
                }
                // Before adoption the slot may be an earlier owner's: limited as it was, the group
                // is tried again. So is one that was made anew, and not all of whose processes have
                // moved.
                Err(error) if self.is_over(&group.name, is_early, is_made) => {
                    self.take_back(&[&group.name], &mut UndoReport::default());
                    Err(error)
                }
                done => done,
            };
            if results[index].is_ok() {
                self.take_back_behind(&group.name);
            }
        }
        self.drop_unused_scheduler();
        results
    }

    /// Puts the parts of groups into force that the stock enforcer applies. Returns also the names of
    /// those that it has made, which were handed to the scheduler then.
    fn put_stock_parts<'a>(
        &mut self,
        groups: impl Iterator<Item = &'a GroupPolicy> + Clone,
    ) -> (Vec<Result<()>>, BTreeSet<String>) {
        let parts: Vec<GroupPolicy> = groups.clone().map(stock_part).collect();
        let scheduled_groups: BTreeMap<&str, &GroupPolicy> = groups
            .filter(|group| group.is_scheduled)
            .map(|group| (&*group.name, group))
            .collect();
        let (scheduled, link) = (&mut self.scheduled, &self.link);
        let mut made = BTreeSet::new();
        let mut on_made = |name: &str, cgroup: &CpuGroup| {
            let Some(group) = scheduled_groups.get(name) else {
                return Ok(());
            };
            made.insert(name.to_owned());
            let id = cgroup_id(&cgroup.cpu_file(""))?;
            hand_over(scheduled, link, group, id)
        };
        let parts: Vec<&GroupPolicy> = parts.iter().collect();
        let done = self.stock.put_all_with(&parts, &mut on_made);
        (done, made)
    }

    /// Returns whether a group that has failed is to have no slot.
    fn is_over(&self, name: &str, is_early: bool, is_made: bool) -> bool {
        match is_made {
            true => !self.stock.knows(name),
            false => is_early && self.has_adopted,
        }
    }

    fn remove(&mut self, name: &str) -> Result<UndoReport> {
        let mut report = UndoReport::default();
        // Also of a group that an earlier owner has left, and that could not be adopted.
        self.take_back(&[name], &mut report);
        report.extend(self.stock.remove(name)?);
        self.drop_unused_scheduler();
        Ok(report)
    }

    fn set_machine(&mut self, policy: &MachinePolicy) -> Result<()> {
        let stock = self.stock.set_machine(policy);
        self.machine = Some(*policy);
        self.policy_cpus = None;
        self.follow_machine()?;
        stock
    }

    fn finish_adoption(&mut self, wanted: &BTreeSet<String>) -> UndoReport {
        self.has_adopted = true;
        let mut report = self.stock.finish_adoption(wanted);
        let removed = self.follow_groups();
        report.problems.extend(removed.err().map(|e| e.to_string()));
        // No group needs the scheduler.
        if self.is_left {
            report.extend(self.drop_scheduler());
        }
        self.drop_unused_scheduler();
        report
    }

    fn undo_all(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        let names: Vec<String> = self.scheduled.keys().cloned().collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.take_back(&names, &mut report);
        report.extend(self.stock.undo());
        self.machine = None;
        report.problems.extend(self.drop_scheduler().problems);
        report.problems.append(&mut self.messages);
        report
    }

    fn leave_all(&mut self) {
        self.let_go_of_scheduler();
        self.is_left = false;
        self.scheduled.clear();
        self.stock.leave();
    }

    fn task_rates(&self, name: &str) -> Result<Option<TaskRates>> {
        let Some(objects) = &self.link.objects else {
            return Ok(None);
        };
        let tids = threads_below(&self.folder(name)?);
        Ok(Some(task_rates(objects, &tids)))
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        let machine = self.link.objects.as_ref()?.machine()?;
        let demand = self.demand();
        let names = self.scheduled.keys().take(NAMES_MAX).cloned().collect();
        let nr_groups = self.scheduled.len() as u64;
        Some(self.usage.sample(&machine, &demand, names, nr_groups))
    }
}

impl Drop for SchedExtEnforcer {
    fn drop(&mut self) {
        // Else its thread would bring in a scheduler without an owner.
        self.let_go_of_scheduler();
    }
}

impl Enforcer for SchedExtEnforcer {
    fn stock(&mut self) -> &mut CgroupEnforcer {
        &mut self.stock
    }

    fn apply(&mut self, actions: &[Action]) -> Vec<Result<UndoReport>> {
        action::in_order(self, actions, Self::put_all, Self::make)
    }

    fn tick(&mut self, now: Instant) -> Tick {
        let due = self.stock.tick(now);
        if self.link.objects.is_none() {
            // There is no scheduler to look at, and its first group wakes the caller.
            return Tick {
                next: due,
                messages: std::mem::take(&mut self.messages),
            };
        }
        let next = match self.looks.last {
            Some(looked) if now < looked + LOOK_INTERVAL => looked + LOOK_INTERVAL,
            _ => {
                self.looks.last = Some(now);
                match self.look(now) {
                    Ok(()) => self.looks.problem = None,
                    // The next look tries again.
                    Err(error) => {
                        let problem = error.to_string();
                        if self.looks.problem.as_ref() != Some(&problem) {
                            self.messages.push(problem.clone());
                        }
                        self.looks.problem = Some(problem);
                    }
                }
                now + LOOK_INTERVAL
            }
        };
        Tick {
            next: due.map(|due| Some(due.map_or(next, |due| due.min(next)))),
            messages: std::mem::take(&mut self.messages),
        }
    }

    fn sample(&mut self, name: &str, with_tasks: bool) -> Result<Sample> {
        let is_scheduled = self.scheduled.contains_key(name);
        let mut sample = self.stock.sample(name, with_tasks && !is_scheduled)?;
        let Some(scheduled) = self.scheduled.get(name) else {
            return Ok(sample);
        };
        let counts = scheduled.counts(self.link.objects.as_ref());
        counts.fill(&mut sample, &scheduled.knobs);
        let is_batch = scheduled.knobs.class == Some(Class::Batch);
        if is_batch && self.demand().has_headroom() {
            sample.headroom = self.headroom();
        }
        sample.scheduler = self.link.sample();
        if with_tasks && scheduled.knobs.has_cap() {
            sample.task_rates = self.task_rates(name)?;
        }
        Ok(sample)
    }

    fn sample_machine(&self) -> MachineSample {
        MachineSample {
            headroom: self.headroom(),
            scheduler: self.link.sample(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_cgroupfs::Version;
    use plimsoll_cgroupfs::simulated::{self, Kernel};
    use plimsoll_engine::tasks::TaskId;

    use super::*;

    fn part(json: &str, is_foreign: bool, is_scheduled: bool) -> Knobs {
        let first = (!is_foreign).then_some(TaskId {
            tid: 7,
            start_time: 1,
        });
        let group = GroupPolicy {
            name: "g".into(),
            first,
            subject: String::new(),
            knobs: serde_json::from_str(json).unwrap(),
            is_scheduled,
        };
        stock_part(&group).knobs
    }

    #[test]
    fn a_scheduler_that_cannot_be_loaded_refuses_all_groups_that_are_put_at_once() {
        let mut kernel = Kernel::new(Version::V2);
        let own = std::process::id().cast_signed();
        kernel.tasks().start_in(own, Path::new(""));
        simulated::install(Some(kernel));
        let folder = Path::new(simulated::MOUNT);
        let hierarchy = Arc::new(Hierarchy::at_folder(folder, Version::V2));
        let runtime = RuntimeFolder::at("/simulated/run/plimsoll");
        let (mut enforcer, _) = SchedExtEnforcer::adopting(&hierarchy, &runtime, true).unwrap();
        enforcer.pins = Pins::at("/proc/plimsoll", &runtime);
        let groups = ["/a", "/b"].map(|name| GroupPolicy {
            name: name.into(),
            first: None,
            subject: String::new(),
            knobs: Knobs::default(),
            is_scheduled: true,
        });
        let done = enforcer.put_all(&groups.iter().collect::<Vec<_>>());
        assert!(!enforcer.scheduled.contains_key("/a"));
        let problems = done.into_iter().map(|done| done.unwrap_err().to_string());
        let problems: BTreeSet<String> = problems.collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        drop(enforcer);
        simulated::install(None);
    }

    #[test]
    fn a_quota_is_in_the_file_too_as_far_as_that_can_say_it() {
        let all = r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus",
            "burst": "10ms", "cap": "50%", "soft-cap": "10%", "half-life": "5s", "per-task": true,
            "headroom": "30%", "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#;
        let left = part(all, false, true);
        let expected = r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus",
            "burst": "10ms"}"#;
        assert_eq!(left, serde_json::from_str(expected).unwrap());
        let burst = |json| part(json, false, true).burst;
        let most = burst(r#"{"quota": "10ms/100ms", "burst": "10ms"}"#);
        let more = burst(r#"{"quota": "10ms/100ms", "burst": "50ms"}"#);
        assert_eq!(more, most);
    }

    #[test]
    fn a_foreign_cgroup_has_its_weight_and_quota_from_the_scheduler() {
        let left = part(
            r#"{"class": "batch", "weight": "50", "quota": "1cpus"}"#,
            true,
            true,
        );
        assert_eq!(left, serde_json::from_str(r#"{"class": "batch"}"#).unwrap());
    }

    #[test]
    fn stock_knobs_enforce_what_the_scheduler_does_not() {
        let json = r#"{"cap": "50%", "nice": "3"}"#;
        assert_eq!(
            part(json, false, false),
            serde_json::from_str(json).unwrap()
        );
        let left = serde_json::from_str(r#"{"nice": "3"}"#).unwrap();
        assert_eq!(part(json, false, true), left);
    }
}
