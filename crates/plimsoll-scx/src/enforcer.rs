//! The enforcer on the BPF scheduler.
//!
//! It contains one for stock knobs: that makes the cgroup with its idle mark,
//! nice, weight, journal and undo, and all of a group that the scheduler does
//! not schedule. What the scheduler enforces is left out there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_engine::cgroup::{CgroupEnforcer, CpuGroup, HeldCgroup, Hierarchy, Membership};
use plimsoll_engine::enforcer::{Enforcer, EnforcerKind, Sample};
use plimsoll_engine::host::{Capabilities, Mode};
use plimsoll_engine::journal::Entry;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::plan::is_scheduled;
use plimsoll_engine::policy_set::{GroupPolicy, Selector};
use plimsoll_engine::runtime::RuntimeFolder;
use plimsoll_engine::tasks::SCHED_EXT;
use plimsoll_engine::undo::{self, UndoReport};
use plimsoll_engine::{EngineError, Result};

use crate::control_error::ControlError;
use crate::host::Host;
use crate::leader::{Context, Leader, Messages};
use crate::machine::{self, Demand};
use crate::members::Members;
use crate::objects::{self, Objects};
use crate::sample::{Counts, MachineUse};
use crate::slots::{self, Place};
use crate::status::{Activity, Status};

/// How often tasks are looked for, and whether there is another scheduler.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a scheduler that somebody else loads is waited for.
const START_MAX: Duration = Duration::from_secs(30);
/// How often it is looked for meanwhile.
const START_INTERVAL: Duration = Duration::from_millis(20);

/// A group that the scheduler schedules.
#[derive(Debug)]
struct Scheduled {
    /// The folder of its cgroup.
    folder: PathBuf,
    /// Its place in the scheduler that is loaded now, if one is.
    slot: Option<u32>,
    members: Members,
    /// What earlier schedulers have counted of it.
    earlier: Counts,
}

#[derive(Debug)]
struct Group {
    name: String,
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
    /// Last: the scheduler goes after all that it schedules.
    leader: Option<Leader>,
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
            leader: None,
        };
        enforcer.find_scheduler()?;
        Ok((enforcer, left_behind))
    }

    /// Waits until there is a scheduler; loads it if nobody else does.
    fn find_scheduler(&mut self) -> std::result::Result<(), ControlError> {
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Some((leader, first_load)) = Leader::try_start(&self.context, false)? {
                // The thread ends before it answers only if it panics.
                let gone = |_| ControlError::NotReady("the scheduler's thread has failed".into());
                first_load.recv().map_err(gone)??;
                self.leader = Some(leader);
            }
            if self.open_scheduler()? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let status = Status::published(&self.context.runtime);
                let why = status.and_then(|status| status.last_exit);
                return Err(ControlError::NotReady(format!(
                    "the scheduler is not there ({})",
                    why.as_deref().unwrap_or("it is being loaded")
                )));
            }
            std::thread::sleep(START_INTERVAL);
        }
    }

    /// Opens the scheduler that its leader says is running.
    fn open_scheduler(&mut self) -> std::result::Result<bool, ControlError> {
        let runtime = &self.context.runtime;
        let Some(status) = Status::published(runtime) else {
            return Ok(false);
        };
        if status.activity != Activity::Running || objects::pinned_id() != Some(status.groups_id) {
            return Ok(false);
        }
        let Some(loaded) = Host::loaded(runtime) else {
            // Its leader was killed.
            return Ok(false);
        };
        if loaded != self.context.mode {
            return Err(ControlError::OtherMode {
                loaded: loaded.to_string(),
            });
        }
        self.objects = Some(Objects::open()?);
        Ok(true)
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

    /// Hands a group, whose cgroup is there, to the scheduler.
    fn hand_over(&mut self, index: usize) -> Result<()> {
        let folder = self.cgroup(index)?.cpu_file("");
        if self.is_partial() {
            let folder = folder.clone();
            self.record(index, &[Entry::Schedule { folder }])?;
        }
        self.groups[index].scheduled = Some(Scheduled {
            folder,
            slot: None,
            members: Members::default(),
            earlier: Counts::default(),
        });
        self.register(index)?;
        self.sweep(index, Instant::now());
        Ok(())
    }

    /// Gives a group a slot of the scheduler that is loaded now.
    fn register(&mut self, index: usize) -> Result<()> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let group = &mut self.groups[index];
        let Some(scheduled) = &mut group.scheduled else {
            return Ok(());
        };
        let place = Place {
            root: self.context.hierarchy.mount_point(),
            folder: &scheduled.folder,
        };
        let lock = self.context.runtime.lock()?;
        scheduled.slot = Some(slots::register(objects, &lock, place, &group.knobs)?);
        Ok(machine::refresh(objects, &lock)?)
    }

    /// Changes the parameters of a group that has a slot.
    fn apply(&mut self, index: usize) -> Result<()> {
        let group = &self.groups[index];
        let (Some(objects), Some(scheduled)) = (&self.objects, &group.scheduled) else {
            return Ok(());
        };
        let Some(slot) = scheduled.slot else {
            return self.register(index);
        };
        let place = Place {
            root: self.context.hierarchy.mount_point(),
            folder: &scheduled.folder,
        };
        let lock = self.context.runtime.lock()?;
        slots::apply(objects, slot, false, place, &group.knobs)?;
        objects.shared.tell_groups_changed();
        Ok(machine::refresh(objects, &lock)?)
    }

    /// Takes a group back from the scheduler: its tasks, then its slot.
    fn take_back(&mut self, index: usize, report: &mut UndoReport) {
        let Some(scheduled) = self.groups[index].scheduled.take() else {
            return;
        };
        let mut note = |result: Result<()>| {
            report.problems.extend(result.err().map(|e| e.to_string()));
        };
        if self.context.mode == Mode::Partial {
            note(undo::unschedule(&scheduled.folder));
        }
        let (Some(objects), Some(slot)) = (&self.objects, scheduled.slot) else {
            return;
        };
        match self.context.runtime.lock() {
            Ok(lock) => {
                note(slots::release(objects, &lock, slot).map_err(EngineError::from));
                note(machine::refresh(objects, &lock).map_err(EngineError::from));
            }
            Err(error) => note(Err(error)),
        }
    }

    fn sweep(&mut self, index: usize, now: Instant) {
        if !self.is_partial() {
            return;
        }
        let group = &mut self.groups[index];
        if let Some(scheduled) = &mut group.scheduled {
            for message in scheduled.members.sweep(&scheduled.folder, now) {
                self.context.messages.tell(message);
            }
        }
    }

    /// Leads if nobody else does any more, follows the leader to another
    /// scheduler, and looks for tasks that have come.
    fn look(&mut self, now: Instant) -> Result<()> {
        if self.leader.as_ref().is_some_and(Leader::has_ended) {
            self.leader = None;
        }
        if self.leader.is_none()
            && let Some((leader, _)) = Leader::try_start(&self.context, true)?
        {
            self.leader = Some(leader);
        }
        let known = self.objects.as_ref().map(|objects| objects.id);
        if let Some(pinned) = objects::pinned_id()
            && known != Some(pinned)
        {
            self.follow()?;
        }
        for index in 0..self.groups.len() {
            self.sweep(index, now);
        }
        if let Some(objects) = &self.objects {
            self.machine_use.observe(objects, now);
        }
        Ok(())
    }

    /// There is another scheduler: the groups go there. What the old one
    /// counted can still be read.
    fn follow(&mut self) -> Result<()> {
        if let Some(old) = self.objects.take() {
            let scheduled = self.groups.iter_mut().filter_map(|g| g.scheduled.as_mut());
            for scheduled in scheduled {
                if let Some(slot) = scheduled.slot.take() {
                    let counted = Counts::of(&old, slot);
                    scheduled.earlier = counted.after(&scheduled.earlier);
                }
            }
        }
        if !self.open_scheduler()? {
            return Ok(());
        }
        self.machine_use = MachineUse::default();
        for index in 0..self.groups.len() {
            self.register(index)?;
        }
        Ok(())
    }

    fn headroom_sample(&self, sample: &mut Sample) {
        let Some(objects) = &self.objects else { return };
        let demand = Demand::now(objects);
        let scheduled = self.groups.iter().filter(|group| group.scheduled.is_some());
        let sides = scheduled.map(|group| group.name.clone()).collect();
        let machine = objects.machine();
        sample.headroom = machine.map(|machine| self.machine_use.sample(&machine, &demand, sides));
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
            knobs: group.knobs.clone(),
            held,
            scheduled: None,
        });
        if is_scheduled(&group.knobs, mode)
            && let Err(error) = self.hand_over(self.groups.len() - 1)
        {
            self.undo();
            return Err(error);
        }
        Ok(())
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
        let scheduled = self.groups[index].scheduled.as_ref();
        let changed = if scheduled.is_some_and(|scheduled| scheduled.folder == folder) {
            self.apply(index)
        } else {
            // It is another cgroup now: tasks have moved with their policy.
            self.take_back(index, &mut UndoReport::default());
            self.hand_over(index)
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
            self.headroom_sample(&mut sample);
        }
        sample.scheduler = Status::published(&self.context.runtime).map(Status::sample);
        Ok(sample)
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
