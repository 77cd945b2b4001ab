//! The enforcer on the BPF scheduler.
//!
//! It contains one for stock knobs: that makes the cgroup with its idle mark,
//! nice, weight, journal and undo, and all of a group that the scheduler does
//! not schedule. What the scheduler enforces is left out there.

mod follow;
mod registry;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_engine::cgroup::{CgroupEnforcer, CpuGroup, Hierarchy, Membership};
use plimsoll_engine::enforcer::{Enforcer, EnforcerKind, HeadroomSample, Sample, SchedulerSample};
use plimsoll_engine::host::{Capabilities, Mode};
use plimsoll_engine::journal::Entry;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::is_scheduled;
use plimsoll_engine::policy_set::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::SCHED_EXT;
use plimsoll_engine::undo::UndoReport;
use plimsoll_engine::{EngineError, Result};

use crate::leader::{Context, Hold, Leader, Messages};
use crate::machine::Demand;
use crate::objects::Objects;
use crate::sample::{Counts, MachineUse};
use crate::status::Status;
use registry::Scheduled;

/// How often tasks are looked for, and whether there is another scheduler.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
#[derive(Debug)]
struct Group {
    name: String,
    selector: Selector,
    knobs: Knobs,
    /// `None`: stock knobs do all.
    scheduled: Option<Scheduled>,
}

/// Makes knobs come true through Plimsoll's BPF scheduler.
#[derive(Debug)]
pub struct SchedExtEnforcer {
    stock: CgroupEnforcer,
    groups: Vec<Group>,
    /// Where each of them is, by name.
    places: HashMap<String, usize>,
    objects: Option<Objects>,
    context: Context,
    machine_use: MachineUse,
    looked: Option<Instant>,
    last_problem: Option<String>,
    /// As last told, of normal groups in mode all.
    limits_hold: bool,
    leader: Option<Leader>,
    /// Last: the scheduler goes after all that it schedules.
    hold: Option<Hold>,
}

/// What is left of knobs for the stock kernel. It takes no weight for a cgroup
/// with an idle mark of its own, as one of somebody else's has; the scheduler
/// does.
fn stock_part(knobs: &Knobs, selector: &Selector, mode: Mode) -> Knobs {
    if !is_scheduled(knobs, mode) {
        return knobs.clone();
    }
    let is_ours = !matches!(selector, Selector::Cgroup(_));
    Knobs {
        class: knobs.class,
        nice: knobs.nice,
        weight: knobs.weight.filter(|_| is_ours),
        ..Knobs::default()
    }
}

impl SchedExtEnforcer {
    /// Finds the scheduler, or loads it if nobody has, and undoes what
    /// earlier processes left behind.
    ///
    /// # Errors
    /// Says what is missing or why the scheduler cannot be loaded.
    pub fn start(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        mode: Mode,
    ) -> Result<(Self, UndoReport)> {
        let (stock, left_behind) = CgroupEnforcer::start(hierarchy, runtime)?;
        let mut enforcer = Self {
            stock,
            groups: Vec::new(),
            places: HashMap::new(),
            objects: None,
            context: Context {
                hierarchy: Arc::clone(hierarchy),
                runtime: runtime.clone(),
                mode,
                messages: Messages::default(),
            },
            machine_use: MachineUse::default(),
            looked: None,
            last_problem: None,
            limits_hold: true,
            leader: None,
            hold: None,
        };
        enforcer.find_scheduler()?;
        Ok((enforcer, left_behind))
    }

    fn index(&self, name: &str) -> Result<usize> {
        self.places
            .get(name)
            .copied()
            .ok_or_else(|| EngineError::NoTarget {
                target: name.into(),
                what: "group",
            })
    }

    fn cgroup(&self, index: usize) -> Result<CpuGroup> {
        self.stock.cgroup(&self.groups[index].name)
    }

    fn record(&mut self, index: usize, entries: &[Entry]) -> Result<()> {
        self.stock.record(&self.groups[index].name, entries)
    }

    /// Sets what the stock kernel enforces of new knobs.
    fn change_stock(&mut self, index: usize, knobs: &Knobs) -> Result<()> {
        let group = &self.groups[index];
        let part = stock_part(knobs, &group.selector, self.context.mode);
        self.stock.change(&group.name, &part)
    }

    /// What the stock kernel is to do for a group.
    fn stock_policy(&self, group: &GroupPolicy) -> GroupPolicy {
        GroupPolicy {
            knobs: stock_part(&group.knobs, &group.selector, self.context.mode),
            ..group.clone()
        }
    }

    /// Takes a group whose cgroup is there.
    fn take(&mut self, group: &GroupPolicy) -> Result<()> {
        let index = self.groups.len();
        self.places.insert(group.name.clone(), index);
        self.groups.push(Group {
            name: group.name.clone(),
            selector: group.selector.clone(),
            knobs: group.knobs.clone(),
            scheduled: None,
        });
        if is_scheduled(&group.knobs, self.context.mode)
            && let Err(error) = self.hand_over_new(index)
        {
            // What there is to say about it is said by the error.
            let _ = self.remove(&group.name);
            return Err(error);
        }
        Ok(())
    }

    fn is_partial(&self) -> bool {
        self.context.mode == Mode::Partial
    }

    fn headroom_sample(&self) -> Option<HeadroomSample> {
        let objects = self.objects.as_ref()?;
        let demand = Demand::now(objects);
        let scheduled = self.groups.iter().filter(|group| group.scheduled.is_some());
        let sides = scheduled.map(|group| group.name.clone()).collect();
        let machine = objects.machine()?;
        Some(self.machine_use.sample(&machine, &demand, sides))
    }
}

impl Enforcer for SchedExtEnforcer {
    fn kind(&self) -> EnforcerKind {
        EnforcerKind::SchedExt
    }

    fn capabilities(&self) -> &Capabilities {
        self.stock.capabilities()
    }

    fn add(&mut self, group: &GroupPolicy, subject: &str) -> Result<()> {
        let stock = self.stock_policy(group);
        self.stock.add(&stock, subject)?;
        self.take(group)
    }

    fn add_all(&mut self, groups: &[(GroupPolicy, String)]) -> Vec<Result<()>> {
        let stock = groups.iter();
        let stock = stock.map(|(group, subject)| (self.stock_policy(group), subject.clone()));
        let stock: Vec<(GroupPolicy, String)> = stock.collect();
        let added = self.stock.add_all(&stock);
        let taken = added.into_iter().zip(groups);
        taken
            .map(|(added, (group, _))| added.and_then(|()| self.take(group)))
            .collect()
    }

    fn add_process(&mut self, name: &str, pid: i32) -> Result<()> {
        // Its tasks are handed to the scheduler by the next look.
        self.looked = None;
        self.stock.add_process(name, pid)
    }

    fn remove(&mut self, name: &str) -> Result<UndoReport> {
        let index = self.index(name)?;
        let mut report = UndoReport::default();
        self.take_back(index, &mut report);
        self.places.remove(name);
        self.groups.swap_remove(index);
        if let Some(moved) = self.groups.get(index) {
            self.places.insert(moved.name.clone(), index);
        }
        let stock = self.stock.remove(name)?;
        report.undone.extend(stock.undone);
        report.problems.extend(stock.problems);
        Ok(report)
    }

    fn leave_audits_to_caller(&mut self) {
        self.stock.leave_audits_to_caller();
    }

    fn keep_cgroups_in(&mut self, name: &str) -> Result<()> {
        self.stock.keep_cgroups_in(name)
    }

    fn audit(&mut self, name: &str) -> Result<Vec<String>> {
        self.stock.audit(name)
    }

    fn reapply(&mut self, name: &str) -> Result<()> {
        self.stock.reapply(name)
    }

    fn membership(&self, name: &str) -> Result<Membership> {
        let group = &self.groups[self.index(name)?];
        // Inside its limits, where stock knobs have made cgroups for them.
        let mut membership = self.stock.membership(name)?;
        if group.scheduled.is_some() && self.is_partial() {
            membership.policy = Some(SCHED_EXT);
        }
        Ok(membership)
    }

    fn knobs(&self, name: &str) -> Result<&Knobs> {
        Ok(&self.groups[self.index(name)?].knobs)
    }

    fn shown_path(&self, name: &str) -> Result<PathBuf> {
        self.stock.shown_path(name)
    }

    fn change(&mut self, name: &str, knobs: &Knobs) -> Result<()> {
        let index = self.index(name)?;
        let mode = self.context.mode;
        if !is_scheduled(knobs, mode) {
            let mut report = UndoReport::default();
            self.take_back(index, &mut report);
            for problem in report.problems {
                self.context.messages.tell(problem);
            }
        }
        self.change_stock(index, knobs)?;
        let old = std::mem::replace(&mut self.groups[index].knobs, knobs.clone());
        if !is_scheduled(knobs, mode) {
            return Ok(());
        }
        let folder = self.cgroup(index)?.cpu_file("");
        let changed = match &self.groups[index].scheduled {
            Some(scheduled) if scheduled.folder == folder => self.apply(index),
            Some(scheduled) => {
                // It is another cgroup now: tasks have moved with their policy.
                let policies = scheduled.members.policies.clone();
                self.take_back(index, &mut UndoReport::default());
                self.hand_over(index, policies)
            }
            None => self.hand_over_new(index),
        };
        if changed.is_err() {
            self.groups[index].knobs = old;
        }
        changed
    }

    fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let due = self.stock.tick(now);
        let next = match self.looked {
            Some(looked) if now < looked + LOOK_INTERVAL => looked + LOOK_INTERVAL,
            _ => {
                self.looked = Some(now);
                match self.look(now) {
                    Ok(()) => self.last_problem = None,
                    // The next look tries again.
                    Err(error) => {
                        let problem = error.to_string();
                        if self.last_problem.as_ref() != Some(&problem) {
                            self.context.messages.tell(problem.clone());
                        }
                        self.last_problem = Some(problem);
                    }
                }
                now + LOOK_INTERVAL
            }
        };
        Ok(Some(due?.map_or(next, |due| due.min(next))))
    }

    fn take_messages(&mut self) -> Vec<String> {
        self.context.messages.take()
    }

    fn sample(&self, name: &str) -> Result<Sample> {
        let index = self.index(name)?;
        let group = &self.groups[index];
        let mut sample = self.stock.sample(name)?;
        let Some(scheduled) = &group.scheduled else {
            return Ok(sample);
        };
        let now = match (&self.objects, scheduled.slot) {
            (Some(objects), Some(slot)) => Counts::of(objects, slot),
            _ => Counts::default(),
        };
        now.after(&scheduled.earlier)
            .fill(&mut sample, &group.knobs);
        if group.knobs.headroom.is_some() {
            sample.headroom = self.headroom_sample();
        }
        sample.scheduler = self.scheduler();
        Ok(sample)
    }

    fn usage_usec(&self, name: &str) -> Result<u64> {
        self.stock.usage_usec(name)
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        self.headroom_sample()
    }

    fn scheduler(&self) -> Option<SchedulerSample> {
        Some(Status::now(&self.context.runtime, self.context.mode).sample())
    }

    fn is_populated(&self, name: &str) -> Result<bool> {
        self.stock.is_populated(name)
    }

    fn undo(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        for index in 0..self.groups.len() {
            self.take_back(index, &mut report);
        }
        self.groups.clear();
        self.places.clear();
        let stock = self.stock.undo();
        report.undone.extend(stock.undone);
        report.problems.extend(stock.problems);
        self.objects = None;
        self.leader = None;
        self.hold = None;
        report.problems.extend(self.context.messages.take());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(json: &str, mode: Mode) -> Knobs {
        let knobs = serde_json::from_str(json).unwrap();
        stock_part(&knobs, &Selector::Command, mode)
    }

    #[test]
    fn what_the_scheduler_enforces_is_not_enforced_twice() {
        let all = r#"{"class": "batch", "nice": "5", "weight": "50", "quota": "1cpus",
            "burst": "10ms", "cap": "50%", "soft-cap": "10%", "per-task": true,
            "headroom": "30%", "tolerance": "1ms/100ms", "cpu-limit": "80%"}"#;
        let left = part(all, Mode::Partial);
        let expected = r#"{"class": "batch", "nice": "5", "weight": "50"}"#;
        assert_eq!(left, serde_json::from_str(expected).unwrap());
    }

    #[test]
    fn a_normal_group_is_the_schedulers_in_mode_all_only() {
        let json = r#"{"quota": "1cpus", "nice": "3"}"#;
        assert_eq!(
            part(json, Mode::Partial),
            serde_json::from_str(json).unwrap()
        );
        let left = serde_json::from_str(r#"{"nice": "3"}"#).unwrap();
        assert_eq!(part(json, Mode::All), left);
    }
}
