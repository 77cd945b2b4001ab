//! A group: its cgroups, the knobs that are in force, and the loops that they need.
//!
//! One type for cgroups that Plimsoll made and for cgroups of others. The origin decides who
//! creates and removes the cgroups, and which values undo writes.

pub(super) mod common;
pub(super) mod foreign;
pub(super) mod layout;
mod loops;
pub(super) mod own;

use std::path::PathBuf;
use std::time::Instant;

use common::{Common, Context, OnMade};
use layout::Layer;
use own::{Carried, Own};
use plimsoll_cgroupfs::{CpuGroup, CpuStat, WEIGHT_DEFAULT};

use super::place;
use crate::cgroup::change::folder_of;
use crate::error::{EngineError, Result};
use crate::knobs::Knobs;
use crate::sample::Sample;
use crate::undo::UndoReport;

#[derive(Debug)]
pub(super) struct Group {
    pub common: Common,
    pub origin: Origin,
}

/// Origin of the cgroups of a group: own or foreign.
#[derive(Debug)]
pub(super) enum Origin {
    /// Plimsoll, which removes the cgroups in the end.
    Own(Own),
    /// Another process: undo writes the values that the cgroups had.
    Foreign,
}

impl Group {
    pub fn is_foreign(&self) -> bool {
        matches!(self.origin, Origin::Foreign)
    }

    /// Returns the outermost cgroup.
    pub fn cgroup(&self) -> &CpuGroup {
        &self.common.layout.top
    }

    /// Returns the knobs in force.
    pub fn knobs(&self) -> &Knobs {
        &self.common.knobs
    }

    /// Returns the path that a user sees in `/proc/PID/cgroup`.
    pub fn shown_path(&self) -> PathBuf {
        self.common.layout.shown_path()
    }

    /// Returns the number of processes, without those that have ended: a dying one keeps a cgroup
    /// `populated` for a moment, and a caller that sees no process left asks for the group's end.
    pub fn nr_processes(&self) -> Result<usize> {
        Ok(self.cgroup().all_processes()?.len())
    }

    /// Returns whether the group has processes, also those that a change has not moved yet.
    pub fn is_populated(&self) -> Result<bool> {
        let is_behind = match &self.origin {
            Origin::Own(own) => own.has_behind(),
            Origin::Foreign => false,
        };
        Ok(is_behind || self.nr_processes()? > 0)
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
        let (common, own) = self.own()?;
        if let Err(error) = own.change(common, knobs, context, on_made) {
            common.follow_headroom(&context.headroom);
            return Err(error);
        }
        common.external_changes.clear();
        common.differences.clear();
        self.start_loops(context)
    }

    /// Starts the loops that the knobs need.
    pub fn start_loops(&mut self, context: &Context) -> Result<()> {
        let Self { common, origin } = self;
        common.follow_headroom(&context.headroom);
        let weight = match (common.knobs.weight, origin) {
            (Some(weight), _) => weight.weight,
            // Only a soft cap's loop needs the weight.
            (None, Origin::Foreign) if common.layout.is_background() => {
                foreign::weight_at_first(&common.layout.top, context)?
            }
            (None, _) => WEIGHT_DEFAULT,
        };
        common.loops.start(&common.layout, &common.knobs, weight)
    }

    /// Moves a running process into an own group.
    ///
    /// # Errors
    /// When the kernel refuses, or the group's cgroup is foreign: processes get there by their maker.
    pub fn take_in(&mut self, pid: i32, context: &mut Context) -> Result<()> {
        let (common, own) = self.own()?;
        own.take_in(common, pid, context)
    }

    fn own(&mut self) -> Result<(&mut Common, &mut Own)> {
        let Self { common, origin } = self;
        match origin {
            Origin::Own(own) => Ok((common, own)),
            Origin::Foreign => Err(EngineError::NoTarget {
                target: common.name.as_ref().into(),
                what: "group of Plimsoll's own",
            }),
        }
    }

    /// Finds external changes of the group's files, or its removal. The external values stay until
    /// knobs are applied again. Returns the changes that were not found before.
    ///
    /// # Errors
    /// When a foreign cgroup is gone.
    pub fn audit(&mut self, context: &Context) -> Result<Vec<String>> {
        let mut found = match &self.origin {
            Origin::Own(_) => own::audit(&self.common)?,
            Origin::Foreign => foreign::audit(&self.common, context)?,
        };
        let before = std::mem::replace(&mut self.common.differences, found.clone());
        found.retain(|change| !before.contains(change));
        self.common.note_external(&found);
        Ok(found)
    }

    /// Returns whether [`Self::tick`] has anything to do.
    pub fn has_loop(&self) -> bool {
        !self.common.loops.is_empty()
    }

    /// Runs the loops that are due. Returns when to call again; `None`: no loop is left.
    ///
    /// # Errors
    /// When the group can no longer be controlled; it stays limited.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        match self.common.loops.tick(now) {
            // Its maker has removed it: there is nothing left to limit.
            Err(error) if self.is_foreign() && error.is_gone() => {
                self.common.loops.stop();
                Ok(None)
            }
            other => other,
        }
    }

    /// Reads the group's usage and the state of its limits.
    pub fn sample(&self, context: &Context) -> Result<Sample> {
        let Common {
            layout,
            loops,
            external_changes,
            ..
        } = &self.common;
        let carried = self.carried();
        let stat = |layer, before: &CpuStat| {
            let stat = layout.layer(layer).map(CpuGroup::stat).transpose();
            stat.map(|stat| stat.map(|stat| stat.plus(before)))
        };
        let processes = self.nr_processes()?;
        // Each file that is not read counts where a thousand groups are shown.
        let (real_time, unusable) = match processes {
            0 => (0, place::unusable(self.cgroup())),
            _ => (common::nr_real_time(layout), None),
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
        self.common.loops.is_background(tid)
    }

    /// Returns the CPU time used, also in the cgroups before a rebuild.
    pub fn usage_usec(&self) -> Result<u64> {
        Ok(self.cgroup().usage_usec()? + self.carried().usage_ns / 1000)
    }

    /// Counters of the cgroups that the group had before it was rebuilt.
    fn carried(&self) -> Carried {
        match &self.origin {
            Origin::Own(own) => own.carried,
            Origin::Foreign => Carried::default(),
        }
    }

    pub fn undo(mut self, context: &mut Context, report: &mut UndoReport) {
        // First, because the controller must not write a quota that is put back.
        context.headroom.remove(&self.common.name);
        self.common.loops.stop();
        match self.origin {
            Origin::Own(_) => own::undo(&self.common.name, context, report),
            Origin::Foreign => {
                let folder = folder_of(&self.common.layout.top);
                foreign::put_back(&[folder], context, report);
            }
        }
    }
}
