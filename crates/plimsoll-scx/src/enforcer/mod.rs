//! The enforcer on the BPF scheduler.
//!
//! It contains one for stock knobs: that makes the cgroup with its idle mark,
//! nice, weight, journal and undo, and all of a group that the scheduler does
//! not schedule. What the scheduler enforces is left out there.

mod follow;
mod registry;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_engine::cgroup::{CgroupEnforcer, CpuGroup, HeldCgroup, Hierarchy, Membership};
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
    /// A cgroup that somebody else made; `None`: it is ours.
    held: Option<HeldCgroup>,
    /// `None`: stock knobs do all.
    scheduled: Option<Scheduled>,
}

/// Makes knobs come true through Plimsoll's BPF scheduler.
#[derive(Debug)]
pub struct SchedExtEnforcer {
    stock: CgroupEnforcer,
    groups: Vec<Group>,
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

/// What is left of knobs for the stock kernel.
fn stock_part(knobs: &Knobs, mode: Mode) -> Knobs {
    if !is_scheduled(knobs, mode) {
        return knobs.clone();
    }
    Knobs {
        class: knobs.class,
        nice: knobs.nice,
        weight: knobs.weight,
        ..Knobs::default()
    }
}

/// The kernel takes no weight for a cgroup with an idle mark of its own; the
/// scheduler does.
fn without_weight(knobs: Knobs) -> Knobs {
    Knobs {
        weight: None,
        ..knobs
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
        let found = self.groups.iter().position(|group| group.name == name);
        found.ok_or_else(|| EngineError::NoTarget {
            target: name.into(),
            what: "group",
        })
    }

    fn cgroup(&self, index: usize) -> Result<&CpuGroup> {
        let group = &self.groups[index];
        match &group.held {
            Some(held) => Ok(held.cgroup()),
            None => self.stock.cgroup(&group.name),
        }
    }

    fn record(&mut self, index: usize, entries: &[Entry]) -> Result<()> {
        let group = &mut self.groups[index];
        match &mut group.held {
            Some(held) => held.record(entries),
            None => self.stock.record(&group.name, entries),
        }
    }

    /// Makes the cgroup of a group, or takes that of somebody else.
    fn make(&mut self, group: &GroupPolicy, subject: &str) -> Result<Option<HeldCgroup>> {
        let knobs = stock_part(&group.knobs, self.context.mode);
        if let Selector::Cgroup(path) = &group.selector {
            let Context {
                hierarchy, runtime, ..
            } = &self.context;
            let (path, knobs) = (path.clone(), without_weight(knobs));
            return HeldCgroup::hold(hierarchy, runtime, &group.name, path, &knobs).map(Some);
        }
        let stock = GroupPolicy {
            knobs,
            ..group.clone()
        };
        self.stock.add(&stock, subject)?;
        Ok(None)
    }

    /// Sets what the stock kernel enforces of new knobs.
    fn change_stock(&mut self, index: usize, knobs: &Knobs) -> Result<()> {
        let part = stock_part(knobs, self.context.mode);
        let group = &mut self.groups[index];
        match &mut group.held {
            Some(held) => held.set(&without_weight(part)),
            None => self.stock.change(&group.name, &part),
        }
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
        let mode = self.context.mode;
        let held = self.make(group, subject)?;
        self.groups.push(Group {
            name: group.name.clone(),
            selector: group.selector.clone(),
            knobs: group.knobs.clone(),
            held,
            scheduled: None,
        });
        if is_scheduled(&group.knobs, mode)
            && let Err(error) = self.hand_over_new(self.groups.len() - 1)
        {
            self.undo();
            return Err(error);
        }
        Ok(())
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
        let mut group = self.groups.remove(index);
        match &mut group.held {
            Some(held) => held.undo(&mut report),
            None => {
                let stock = self.stock.remove(name)?;
                report.undone.extend(stock.undone);
                report.problems.extend(stock.problems);
            }
        }
        Ok(report)
    }

    fn membership(&self, name: &str) -> Result<Membership> {
        let index = self.index(name)?;
        let mut membership = self.cgroup(index)?.membership()?;
        if self.groups[index].held.is_none() {
            // Inside its limits, where stock knobs have made cgroups for them.
            membership = self.stock.membership(name)?;
        }
        let group = &self.groups[index];
        if group.scheduled.is_some() && self.is_partial() {
            membership.policy = Some(SCHED_EXT);
        }
        Ok(membership)
    }

    fn knobs(&self, name: &str) -> Result<&Knobs> {
        Ok(&self.groups[self.index(name)?].knobs)
    }

    fn shown_path(&self, name: &str) -> Result<PathBuf> {
        let index = self.index(name)?;
        Ok(Path::new("/").join(self.cgroup(index)?.path()))
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
        let mut sample = match &group.held {
            Some(held) => Sample {
                usage_usec: held.cgroup().usage_ns()? / 1000,
                processes: held.cgroup().all_processes()?.len() as u64,
                ..Sample::default()
            },
            None => self.stock.sample(name)?,
        };
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
        Ok(self.cgroup(self.index(name)?)?.usage_ns()? / 1000)
    }

    fn headroom(&self) -> Option<HeadroomSample> {
        self.headroom_sample()
    }

    fn scheduler(&self) -> Option<SchedulerSample> {
        Some(Status::now(&self.context.runtime, self.context.mode).sample())
    }

    fn is_populated(&self, name: &str) -> Result<bool> {
        let index = self.index(name)?;
        self.cgroup(index)?.is_populated()
    }

    fn undo(&mut self) -> UndoReport {
        let mut report = UndoReport::default();
        for index in 0..self.groups.len() {
            self.take_back(index, &mut report);
            if let Some(held) = &mut self.groups[index].held {
                held.undo(&mut report);
            }
        }
        self.groups.clear();
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
        stock_part(&serde_json::from_str(json).unwrap(), mode)
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
