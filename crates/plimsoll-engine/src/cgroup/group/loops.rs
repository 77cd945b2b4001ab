//! Loops in user space that a group needs: soft caps and caps per task.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_cgroupfs::{CpuMax, os};

use super::layout::{Layer, Layout, layer_max};
use crate::cgroup::bandwidth::{cap_max, fit_below};
use crate::control::per_task::PerTaskCaps;
use crate::control::soft_cap::SoftCapLoop;
use crate::error::Result;
use crate::knobs::{HalfLife, Knobs, SoftCap};
use crate::sample::{PerTaskSample, SoftCapSample};

/// Loops of one group. Most groups have none.
#[derive(Debug, Default)]
pub(in crate::cgroup) struct Loops {
    soft_cap: Option<Box<(SoftCapSettings, SoftCapLoop)>>,
    per_task: Option<Box<PerTaskCaps>>,
}

/// Settings of a soft cap. While they stay the same, its loop goes on, with its usage rate.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SoftCapSettings {
    cgroup: PathBuf,
    cap: SoftCap,
    half_life: HalfLife,
    /// Weight of the group while it is within its cap.
    weight: u32,
}

impl Loops {
    pub fn is_empty(&self) -> bool {
        self.soft_cap.is_none() && self.per_task.is_none()
    }

    pub fn stop(&mut self) {
        *self = Self::default();
    }

    /// Starts the loops of `knobs`. `weight`: the group's weight while it is within its soft cap.
    ///
    /// # Errors
    /// When the usage of the cgroup cannot be read.
    pub fn start(&mut self, layout: &Layout, knobs: &Knobs, weight: u32) -> Result<()> {
        // A batch group is in the background already.
        let cap = knobs.soft_cap.filter(|_| layout.is_background());
        let settings = cap.map(|cap| SoftCapSettings {
            cgroup: layout.top.path().to_owned(),
            cap,
            half_life: knobs.half_life.unwrap_or_default(),
            weight,
        });
        let present = self.soft_cap.as_ref().map(|running| &running.0);
        if settings.as_ref() != present {
            self.soft_cap = None;
        }
        if let Some((_, running)) = self.soft_cap.as_deref() {
            // An explicit change takes external changes back.
            running.rewrite()?;
        } else if let Some(settings) = settings {
            let rate = (settings.cap, settings.half_life);
            let running = SoftCapLoop::new(layout.top.clone(), rate, weight, os::now())?;
            self.soft_cap = Some(Box::new((settings, running)));
        }
        let new = per_task(layout, knobs);
        let present = self.per_task.as_ref();
        // Caps that are alike stay: a new object would not know the tasks that have leaves.
        if !present
            .zip(new.as_ref())
            .is_some_and(|(old, new)| old.is_like(new))
        {
            self.per_task = new.map(Box::new);
        }
        Ok(())
    }

    /// Runs the loops that are due. Returns when to call again; `None`: there is no loop.
    pub fn tick(&mut self, now: Instant) -> Result<Option<Instant>> {
        let soft_cap = self.soft_cap.as_mut().map(|running| running.1.tick(now));
        let per_task = self.per_task.as_mut().map(|caps| caps.tick(now));
        let due = [soft_cap.transpose()?, per_task.transpose()?];
        Ok(due.into_iter().flatten().min())
    }

    pub fn per_task_sample(&self) -> Option<PerTaskSample> {
        self.per_task.as_ref().map(|caps| caps.sample())
    }

    pub fn soft_cap_sample(&self) -> Option<SoftCapSample> {
        let of_group = self.soft_cap.as_ref().map(|running| running.1.sample());
        let per_task = self.per_task.as_ref();
        of_group.or_else(|| per_task.and_then(|caps| caps.soft_cap_sample()))
    }

    /// Returns whether a task is over its own soft cap, or the group over the one that all its
    /// tasks share.
    pub fn is_background(&self, tid: i32) -> bool {
        let of_task = self.per_task.as_ref();
        let of_task = of_task.and_then(|caps| caps.soft_cap_of(tid));
        let of_group = self.soft_cap.as_ref().map(|running| running.1.sample());
        of_task.or(of_group).is_some_and(|cap| cap.background)
    }
}

fn per_task(layout: &Layout, knobs: &Knobs) -> Option<PerTaskCaps> {
    if !knobs.per_task {
        return None;
    }
    let version = layout.top.hierarchy().version();
    let outer = outer_max(layout, knobs);
    let hard = knobs
        .cap
        .map(|cap| fit_below(&outer, cap_max(cap), version));
    let half_life = knobs.half_life.unwrap_or_default();
    let soft = knobs.soft_cap.map(|cap| (cap, half_life));
    Some(PerTaskCaps::new(layout.leaf.clone(), hard, soft, os::now()))
}

/// Returns the bandwidth of the innermost limit outside the headroom's.
fn outer_max(layout: &Layout, knobs: &Knobs) -> CpuMax {
    let mut layers = layout.layers.iter().rev().map(|(layer, _)| *layer);
    let outer = layers.find(|layer| *layer != Layer::Headroom);
    outer.map_or_else(CpuMax::unlimited, |layer| layer_max(layer, knobs))
}
