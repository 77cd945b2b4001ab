//! One group that this process manages: from nothing to undone.

mod adopt;
mod controls;
mod nice;
mod observe;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controls::Controls;
use plimsoll_cgroupfs::{CgroupError, CpuGroup, CpuStat, Hierarchy, Version, WEIGHT_DEFAULT, os};

use super::layout::{Layer, Layout, layer_bandwidth, least_bandwidth};
use super::move_entry::move_entry;
use crate::control::headroom::HeadroomDuty;
use crate::control::soft_cap::set_background;
use crate::enforcer::Membership;
use crate::error::{EngineError, Result};
use crate::journal::{Entry, Header, Journal};
use crate::knobs::{Bandwidth, Knobs};
use crate::policy_set::{GroupPolicy, Selector};
use crate::runtime::RuntimeFolder;
use crate::tasks;
use crate::undo::{self, UndoReport};

/// How often kernel files are read again to see whether somebody else wrote.
const AUDIT_INTERVAL: Duration = Duration::from_secs(1);
/// A journal is not written anew for fewer processes.
const MOVED_MIN: usize = 1024;
/// A group that keeps forking is chased for this long.
const MOVE_MAX: Duration = Duration::from_secs(10);

/// What the cgroups counted that a rebuilt group had before.
#[derive(Debug, Default)]
struct Carried {
    usage_ns: u64,
    quota: CpuStat,
    cap: CpuStat,
}

impl Carried {
    /// What cgroups count that are about to go. One that is gone already has nothing to add.
    fn of(layout: &Layout) -> Self {
        let stat = |layer| layout.layer(layer).and_then(|group| group.stat().ok());
        Self {
            usage_ns: layout.top.usage_ns().unwrap_or(0),
            quota: stat(Layer::Quota).unwrap_or_default(),
            cap: stat(Layer::Cap).unwrap_or_default(),
        }
    }

    fn add(&mut self, more: &Self) {
        self.usage_ns += more.usage_ns;
        self.quota = self.quota.plus(&more.quota);
        self.cap = self.cap.plus(&more.cap);
    }
}

/// A group with its cgroups, its journal and its controls.
#[derive(Debug)]
pub(crate) struct ManagedGroup {
    name: String,
    knobs: Knobs,
    hierarchy: Arc<Hierarchy>,
    runtime: RuntimeFolder,
    layout: Layout,
    generation: u32,
    /// Layouts that were rebuilt, and have processes yet.
    behind: Vec<Layout>,
    carried: Carried,
    controls: Controls,
    /// Where what still runs in it goes at the end, one folder a hierarchy.
    evacuate_to: Vec<PathBuf>,
    audited: Instant,
    foreign_changes: Vec<String>,
    /// Processes moved here since the journal was written anew, and how many
    /// it takes for the next time.
    nr_moved: usize,
    moved_max: usize,
    /// The nice level that its tasks would have without us; `None`: none has
    /// come yet.
    nice_before: Option<i32>,
    /// `None` once it is undone.
    journal: Option<Journal>,
}

impl ManagedGroup {
    /// Makes the group and applies its knobs.
    pub fn create(
        hierarchy: &Arc<Hierarchy>,
        runtime: &RuntimeFolder,
        policy: &GroupPolicy,
        subject: &str,
        duty: &HeadroomDuty,
    ) -> Result<Self> {
        let layout = Layout::new(hierarchy, &policy.name, 0, &policy.knobs);
        let header = Header::new(&policy.name, subject, &policy.knobs);
        let evacuate_to = match policy.selector {
            // Its descendants go where it came from, not where we are.
            Selector::Process(pid) => hierarchy.folders_of(pid)?,
            // Members come from anywhere, and each goes back there; of their
            // descendants nobody wrote down where they belong. Our own place
            // would end them with us.
            Selector::Processes => hierarchy.folders(Path::new("")),
            _ => hierarchy.own_folders()?,
        };
        let nice_before = match policy.selector {
            Selector::Command => Some(tasks::nice(std::process::id().cast_signed())?),
            Selector::Process(pid) => Some(tasks::nice(pid)?),
            _ => None,
        };
        let journal = Journal::create(runtime.path(), &header)?;
        let mut group = Self {
            name: policy.name.clone(),
            knobs: policy.knobs.clone(),
            hierarchy: Arc::clone(hierarchy),
            runtime: runtime.clone(),
            layout,
            generation: 0,
            behind: Vec::new(),
            carried: Carried::default(),
            controls: Controls::default(),
            evacuate_to,
            audited: os::now(),
            foreign_changes: Vec::new(),
            nr_moved: 0,
            moved_max: MOVED_MIN,
            nice_before,
            journal: Some(journal),
        };
        let built = group.build(&group.layout.clone()).and_then(|()| {
            if let Selector::Process(pid) = policy.selector {
                group.take_in(pid)?;
            }
            group.start_controls(duty)
        });
        match built {
            Ok(()) => Ok(group),
            Err(error) => {
                duty.remove(&group.name);
                group.undo_alone(&mut UndoReport::default());
                Err(error)
            }
        }
    }

    /// Writes down what is about to be done to the group.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        match &mut self.journal {
            Some(journal) => journal.record(entries),
            None => Ok(()),
        }
    }

    /// Creates the cgroups of a layout and sets their files.
    fn build(&mut self, layout: &Layout) -> Result<()> {
        // One that nobody has a journal of is not ours: whatever is in it
        // would be moved out in the end.
        if layout.top.exists() {
            return Err(EngineError::NameTaken {
                name: self.name.clone(),
            });
        }
        self.make_parent(layout)?;
        self.record(&[Entry::Create {
            folders: layout.top.folders(),
            evacuate_to: self.evacuate_to.clone(),
        }])?;
        self.record_nice(layout)?;
        layout.top.create()?;
        for pair in layout.groups().windows(2) {
            pair[0].enable_children()?;
            pair[1].create()?;
        }
        self.set_values(layout, &self.knobs.clone())
    }

    /// Creates the parent that groups share, and lets its children and those
    /// of the base have knobs. What was there before is left alone.
    fn make_parent(&self, layout: &Layout) -> Result<()> {
        let base = CpuGroup::at(&self.hierarchy, self.hierarchy.base());
        let mut enabled = Vec::new();
        if !base.children_enabled()? {
            enabled.push(base.subtree_control());
        }
        let new_parent = layout.parent.as_ref().filter(|parent| !parent.exists());
        let created = new_parent.map_or_else(Vec::new, CpuGroup::folders);
        self.runtime.share(&enabled, &created)?;
        base.enable_children()
            .map_err(|error| explain_busy(error, &base))?;
        let Some(parent) = &layout.parent else {
            return Ok(());
        };
        parent.create()?;
        parent.enable_children()?;
        Ok(())
    }

    /// v1 refuses a rate below a child's at every step. Where a limit with
    /// another inside is about to change, those inside go down as far as the
    /// kernel lets them first; nothing is unlimited in between.
    fn make_room(&self, layout: &Layout, knobs: &Knobs) -> Result<()> {
        let Some((_, inside)) = layout.layers.split_first() else {
            return Ok(());
        };
        if self.hierarchy.version() != Version::V1 || inside.is_empty() {
            return Ok(());
        }
        let mut same = true;
        for (layer, group) in &layout.layers[..inside.len()] {
            same &= Bandwidth::from(group.read_cpu_max()?) == layer_bandwidth(*layer, knobs);
        }
        if !same {
            for (_, group) in inside.iter().rev() {
                group.write_cpu_max(&least_bandwidth().into())?;
            }
        }
        Ok(())
    }

    /// Sets background, weight and limits of a layout whose cgroups are there.
    fn set_values(&self, layout: &Layout, knobs: &Knobs) -> Result<()> {
        if let (Some(group), None) = (&layout.background, knobs.soft_cap) {
            set_background(group, true, WEIGHT_DEFAULT)?;
        }
        let weight = knobs.weight.map(|weight| weight.weight);
        let is_idle = layout.top.read_idle()?;
        if let (Some(weight), false) = (weight, is_idle)
            && layout.top.read_weight()? != weight
        {
            layout.top.write_weight(weight)?;
        }
        self.make_room(layout, knobs)?;
        for (_, group, wanted) in layout.bandwidths(knobs) {
            group.write_cpu_max(&wanted.into())?;
        }
        Ok(())
    }

    /// Moves a process that runs already into the group, unless it is there.
    pub fn take_in(&mut self, pid: i32) -> Result<()> {
        let places = self.hierarchy.folders_of(pid)?;
        let own = self.layout.top.folders();
        if places
            .iter()
            .zip(&own)
            .all(|(place, own)| place.starts_with(own))
        {
            return Ok(());
        }
        let entry = move_entry(&self.hierarchy, pid)?;
        self.tidy_journal();
        self.record(&[entry])?;
        self.layout.leaf.add_process(pid)?;
        if let Some(nice) = self.knobs.nice {
            self.renice(pid, nice.nice, None)?;
        }
        Ok(())
    }

    /// Processes come and go for as long as a service lives: those that have
    /// gone are left out of the journal from time to time.
    fn tidy_journal(&mut self) {
        self.nr_moved += 1;
        if let Some(journal) = &mut self.journal
            && self.nr_moved >= self.moved_max
        {
            // On a full disk it stays as it is, and is tried again later.
            let nr_live = journal.rewrite().unwrap_or(self.nr_moved);
            self.nr_moved = 0;
            self.moved_max = MOVED_MIN.max(nr_live);
        }
    }

    /// Starts what has to run from user space for the present knobs.
    fn start_controls(&mut self, duty: &HeadroomDuty) -> Result<()> {
        self.controls = Controls::default();
        match self.side() {
            Some(side) => duty.add(&side),
            None => duty.remove(&self.name),
        }
        self.controls = Controls {
            soft_cap: self.soft_cap_control()?,
            per_task: self.per_task_control(),
        };
        Ok(())
    }

    /// Replaces the knobs.
    pub fn change(&mut self, knobs: &Knobs, duty: &HeadroomDuty) -> Result<()> {
        let generation = self.generation + 1;
        let new = Layout::new(&self.hierarchy, &self.name, generation, knobs);
        let same = self.layout.same_shape(&new) && self.knobs.per_task == knobs.per_task;
        let old_knobs = std::mem::replace(&mut self.knobs, knobs.clone());
        let changed = if same {
            duty.paused(|| self.set_values(&self.layout, knobs))
                .and_then(|()| self.catch_up())
        } else {
            self.rebuild(new, generation)
        };
        let changed = changed.and_then(|()| self.renice_all(old_knobs.nice, knobs.nice));
        if let Err(error) = changed {
            if same {
                // As far as it goes: what the first error met may be met again.
                let _ = duty.paused(|| self.set_values(&self.layout, &old_knobs));
            }
            // Once its processes are in the new layout, that is what it has.
            if self.generation != generation {
                self.knobs = old_knobs;
            }
            return Err(error);
        }
        if same && old_knobs != *knobs {
            self.note_knobs();
        }
        self.foreign_changes.clear();
        self.start_controls(duty)
    }

    /// Writes the knobs down, for an owner that adopts the group. Without them, on a full disk,
    /// it would find a group that is not as the header says, and make it anew.
    fn note_knobs(&mut self) {
        let (knobs, generation) = (self.knobs.clone(), self.generation);
        if let Some(journal) = &mut self.journal {
            let _ = journal.note(&[Entry::Change { knobs, generation }]);
        }
    }

    /// Writes again what others have changed.
    pub fn reapply(&mut self, duty: &HeadroomDuty) -> Result<()> {
        duty.paused(|| self.set_values(&self.layout, &self.knobs))?;
        self.catch_up()?;
        self.foreign_changes.clear();
        Ok(())
    }

    /// Builds the group anew beside itself, moves its processes over and
    /// removes what they left.
    fn rebuild(&mut self, new: Layout, generation: u32) -> Result<()> {
        let is_new = !new.top.exists();
        // First: half-way, an owner that adopts it has to know what it is to look for.
        let knobs = self.knobs.clone();
        self.record(&[Entry::Change { knobs, generation }])?;
        if let Err(error) = self.build(&new) {
            // What there is of it would be in the way of the next attempt.
            for folder in new.top.folders().into_iter().filter(|_| is_new) {
                let _ = undo::remove_group(&folder, None);
            }
            return Err(error);
        }
        let old = std::mem::replace(&mut self.layout, new);
        self.generation = generation;
        self.behind.push(old);
        self.catch_up()
    }

    /// Moves the processes of layouts that were rebuilt into the present one and removes what they
    /// leave. What fails half-way is gone on with by the next change.
    fn catch_up(&mut self) -> Result<()> {
        if self.behind.is_empty() {
            return Ok(());
        }
        while let Some(old) = self.behind.last().cloned() {
            let deadline = os::now() + MOVE_MAX;
            loop {
                let processes = old.top.all_processes()?;
                if processes.is_empty() || os::now() >= deadline {
                    break;
                }
                for pid in processes {
                    self.layout.leaf.add_process(pid)?;
                }
            }
            let counts = Carried::of(&old);
            for folder in old.top.folders() {
                undo::remove_group(&folder, None)?;
            }
            self.carried.add(&counts);
            self.behind.pop();
        }
        self.runtime.release_parents()
    }

    /// What a process needs to move itself here before it starts its command.
    pub fn membership(&self) -> Result<Membership> {
        Membership::of(&self.layout.leaf)
    }

    /// Its outermost cgroup.
    pub fn cgroup(&self) -> &CpuGroup {
        &self.layout.top
    }

    /// Where a user finds it, as in `/proc/PID/cgroup`.
    pub fn shown_path(&self) -> PathBuf {
        self.layout.shown_path()
    }

    /// Whether anything still runs in it.
    pub fn is_populated(&self) -> Result<bool> {
        Ok(self.layout.top.is_populated()?)
    }

    /// Does what falls due; returns when to call again, if ever. `audits`:
    /// nobody else notices what others write.
    pub fn tick(&mut self, now: Instant, audits: bool) -> Result<Option<Instant>> {
        let mut next = None;
        if audits {
            next = Some(self.audit_when_due(now)?);
        }
        if let Some(control) = &mut self.controls.soft_cap {
            next = [next, Some(control.tick(now)?)].into_iter().flatten().min();
        }
        if let Some(control) = &mut self.controls.per_task {
            next = [next, Some(control.tick(now)?)].into_iter().flatten().min();
        }
        Ok(next)
    }

    fn audit_when_due(&mut self, now: Instant) -> Result<Instant> {
        if now < self.audited + AUDIT_INTERVAL {
            return Ok(self.audited + AUDIT_INTERVAL);
        }
        self.audited = now;
        self.audit();
        let top = self.layout.top.cpu_file("");
        if !os::exists(&top) {
            let gone = io::Error::from_raw_os_error(libc::ENOENT);
            return Err(EngineError::file("find", &top, gone));
        }
        Ok(now + AUDIT_INTERVAL)
    }

    /// What is in force.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Puts everything back.
    pub fn undo(&mut self, duty: &HeadroomDuty, report: &mut UndoReport) {
        // First: what is put back must stay as it was.
        duty.remove(&self.name);
        self.undo_alone(report);
    }

    fn undo_alone(&mut self, report: &mut UndoReport) {
        self.controls = Controls::default();
        if let Some(journal) = self.journal.take() {
            note(undo::undo_journal(journal, report), report);
        }
        note(self.runtime.release_parents(), report);
    }
}

impl Drop for ManagedGroup {
    /// Also on a panic: nothing stays limited after us. Whoever owns the group
    /// has cleared the headroom's duty by now.
    fn drop(&mut self) {
        if self.journal.is_some() {
            self.undo_alone(&mut UndoReport::default());
        }
    }
}

fn note(done: Result<()>, report: &mut UndoReport) {
    if let Err(error) = done {
        report.problems.push(error.to_string());
    }
}

/// v2 refuses controllers for the children of a cgroup that has processes of
/// its own; that message alone helps nobody.
pub(super) fn explain_busy(error: CgroupError, base: &CpuGroup) -> EngineError {
    if error.os_error() != Some(libc::EBUSY) {
        return error.into();
    }
    CgroupError::NoPermission {
        path: base.cpu_file(""),
        help: "cgroup v2 gives no knobs to children of a cgroup that has processes itself; \
               move these into a child of their own first"
            .into(),
    }
    .into()
}
