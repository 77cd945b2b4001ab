//! A group: its cgroups, the knobs that are in force, and the loops that they need.
//!
//! One type for cgroups that Plimsoll made and for cgroups of others. The origin decides who
//! creates and removes the cgroups, and which values undo writes.

mod audit;
mod carried;
pub(super) mod context;
pub(super) mod foreign;
mod headroom;
pub(super) mod layout;
mod loops;
pub(super) mod own;

use std::path::PathBuf;
use std::time::Instant;

use carried::Carried;
use context::{Context, OnMade};
use layout::{Layer, Layout};
use loops::Loops;
use plimsoll_cgroupfs::{CpuGroup, CpuStat, WEIGHT_DEFAULT};

use super::place;
use crate::cgroup::change::folder_of;
use crate::error::{EngineError, Result};
use crate::knobs::Knobs;
use crate::sample::Sample;
use crate::tasks::{self, TaskId};
use crate::undo::UndoReport;

/// Origin of the cgroups of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Plimsoll, which removes the cgroups in the end. The journal has the places and nice levels of
    /// its processes before.
    Own,
    /// Another process: undo writes the values that the cgroups had.
    Foreign,
}

#[derive(Debug)]
pub(super) struct Group {
    pub name: Box<str>,
    pub origin: Origin,
    /// Knobs in force.
    pub knobs: Knobs,
    /// Whether the BPF scheduler enforces the knobs that no file of the kernel holds.
    pub is_scheduled: bool,
    pub layout: Layout,
    pub loops: Loops,
    /// Writes of other processes to files of the group, a line each.
    external_changes: Vec<String>,
    /// Differences that were found last between the files and the knobs, a line each.
    differences: Vec<String>,
    /// Layouts that were replaced, and still have processes. A foreign group has none.
    behind: Vec<Layout>,
    carried: Carried,
    /// Limit that the outermost cgroup has counted for; `None`: none so far.
    counted: Option<Layer>,
    /// Whether a change has ended before the tasks had the level of the knobs.
    are_levels_due: bool,
}

impl Group {
    pub fn new(
        name: &str,
        origin: Origin,
        knobs: Knobs,
        is_scheduled: bool,
        layout: Layout,
    ) -> Self {
        Self {
            name: name.into(),
            origin,
            knobs,
            is_scheduled,
            layout,
            loops: Loops::default(),
            external_changes: Vec::new(),
            differences: Vec::new(),
            behind: Vec::new(),
            carried: Carried::default(),
            counted: None,
            are_levels_due: false,
        }
    }

    pub fn is_foreign(&self) -> bool {
        self.origin == Origin::Foreign
    }

    /// Returns the outermost cgroup.
    pub fn cgroup(&self) -> &CpuGroup {
        &self.layout.top
    }

    /// Returns the path that a user sees in `/proc/PID/cgroup`.
    pub fn shown_path(&self) -> PathBuf {
        self.layout.shown_path()
    }

    /// Returns the number of processes, without those that have ended: a dying one keeps a cgroup
    /// `populated` for a moment, and a caller that sees no process left asks for the group's end.
    pub fn nr_processes(&self) -> Result<usize> {
        Ok(self.cgroup().all_processes()?.len())
    }

    /// Returns whether the group has processes, also those that a change has not moved yet.
    pub fn is_populated(&self) -> Result<bool> {
        let mut behind = self.behind.iter();
        let has_some = |old: &Layout| old.top.all_processes().is_ok_and(|pids| !pids.is_empty());
        Ok(behind.any(has_some) || self.nr_processes()? > 0)
    }

    /// Replaces the knobs of an own group.
    ///
    /// # Errors
    /// When the kernel refuses; then the old knobs are in force, as far as the kernel lets them.
    pub fn change(
        &mut self,
        knobs: &Knobs,
        context: &mut Context,
        on_made: OnMade<'_>,
    ) -> Result<()> {
        self.check_own()?;
        if let Err(error) = self.set_knobs(knobs, context, on_made) {
            self.follow_headroom(&context.headroom);
            return Err(error);
        }
        self.external_changes.clear();
        self.differences.clear();
        self.start_loops(context)
    }

    /// Starts the loops that the knobs need.
    pub fn start_loops(&mut self, context: &Context) -> Result<()> {
        self.follow_headroom(&context.headroom);
        let weight = match (self.knobs.weight, self.origin) {
            (Some(weight), _) => weight.weight,
            // Only a soft cap's loop needs the weight.
            (None, Origin::Foreign) if self.layout.is_background() => {
                foreign::weight_at_first(&self.layout.top, context)?
            }
            (None, _) => WEIGHT_DEFAULT,
        };
        self.loops.start(&self.layout, &self.knobs, weight)
    }

    /// Moves a running process into an own group.
    ///
    /// # Errors
    /// When the kernel refuses, or the group's cgroup is foreign: processes get there by their maker.
    pub fn take_in(&mut self, pid: i32, context: &mut Context) -> Result<()> {
        self.check_own()?;
        let done = self.move_in(TaskId::find(pid)?, context);
        // The process may be there without its level.
        self.are_levels_due |= done.is_err();
        done
    }

    fn check_own(&self) -> Result<()> {
        match self.origin {
            Origin::Own => Ok(()),
            Origin::Foreign => Err(EngineError::NoTarget {
                target: self.name.as_ref().into(),
                what: "group of Plimsoll's own",
            }),
        }
    }

    /// Returns whether [`Self::tick`] has anything to do.
    pub fn has_loop(&self) -> bool {
        !self.loops.is_empty()
    }

    /// Runs the loops that are due. Returns when to call again; `None`: no loop is left.
    ///
    /// # Errors
    /// When the group can no longer be controlled; it stays limited.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        match self.loops.tick(now) {
            // Its maker has removed it: there is nothing left to limit.
            Err(error) if self.is_foreign() && error.is_gone() => {
                self.loops.stop();
                Ok(None)
            }
            other => other,
        }
    }

    /// Reads the group's usage and the state of its limits.
    pub fn sample(&self, context: &Context) -> Result<Sample> {
        let Self {
            layout,
            loops,
            external_changes,
            carried,
            ..
        } = self;
        let stat = |layer, before: &CpuStat| {
            let stat = layout.layer(layer).map(CpuGroup::stat).transpose();
            stat.map(|stat| stat.map(|stat| stat.plus(before)))
        };
        let processes = self.nr_processes()?;
        // Each file that is not read counts where a thousand groups are shown.
        let (real_time, unusable) = match processes {
            0 => (0, place::unusable(self.cgroup())),
            _ => (nr_real_time(layout), None),
        };
        Ok(Sample {
            usage_usec: self.usage_usec()?,
            processes: processes as u64,
            real_time,
            quota: stat(Layer::Quota, &carried.quota)?,
            cap: stat(Layer::Cap, &carried.cap)?,
            per_task: loops.per_task_sample(),
            soft_cap: loops.soft_cap_sample(),
            headroom: layout
                .layer(Layer::Headroom)
                .and_then(|_| context.headroom.sample()),
            foreign_changes: external_changes.clone(),
            problem: unusable,
            ..Sample::default()
        })
    }

    /// Returns whether a task is in the background, because it or the group is over a soft cap.
    pub fn is_background(&self, tid: i32) -> bool {
        self.loops.is_background(tid)
    }

    /// Returns the CPU time used, also in the cgroups before a rebuild.
    pub fn usage_usec(&self) -> Result<u64> {
        Ok(self.cgroup().usage_usec()? + self.carried.usage_ns / 1000)
    }

    pub fn undo(mut self, context: &mut Context, report: &mut UndoReport) {
        // First, because the controller must not write a quota that is put back.
        context.headroom.remove(&self.name);
        self.loops.stop();
        match self.origin {
            Origin::Own => own::undo(&self.name, context, report),
            Origin::Foreign => {
                let folder = folder_of(&self.layout.top);
                foreign::put_back(&[folder], context, report);
            }
        }
    }
}

fn nr_real_time(layout: &Layout) -> u64 {
    tasks::nr_real_time(&layout.top.all_threads().unwrap_or_default())
}
