//! Looking at a group: what it has used, and what others did to it.

use std::path::Path;

use plimsoll_cgroupfs::{CpuGroup, CpuStat};

use super::ManagedGroup;
use crate::cgroup::layout::Layer;
use crate::control::headroom::HeadroomDuty;
use crate::control::per_task::PerTaskCaps;
use crate::control::soft_cap::SoftCapLoop;
use crate::enforcer::Sample;
use crate::error::Result;
use crate::knobs::{Bandwidth, units};

/// Of what others keep changing, only so many are remembered.
const FOREIGN_CHANGES_MAX: usize = 32;

impl ManagedGroup {
    /// Notices what somebody else wrote to files that are ours, or that the
    /// group was removed. Theirs stays until knobs are applied again. Returns
    /// what is new.
    pub fn audit(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.layout.top.exists() {
            found.push(format!(
                "{} was removed",
                self.layout.shown_path().display()
            ));
        }
        let knobs = &self.knobs;
        for (layer, group, wanted) in self.layout.bandwidths(knobs) {
            // The headroom controller's own quota changes all the time.
            if layer != Layer::Headroom
                && let Ok(now) = group.read_cpu_max().map(Bandwidth::from)
                && (now.quota != wanted.quota
                    || (group.has_burst() && now.burst_ns != wanted.burst_ns))
            {
                found.push(format!(
                    "{}: the quota was changed to {} with burst {}",
                    shown(group.path()),
                    now.quota,
                    units::show_duration(now.burst_ns)
                ));
            }
        }
        if let (Some(group), None) = (&self.layout.background, knobs.soft_cap)
            && group.has_idle()
            && group.read_idle().is_ok_and(|idle| !idle)
        {
            found.push(format!("{}: cpu.idle was cleared", shown(group.path())));
        }
        if let (Some(weight), Ok(now)) = (knobs.weight, self.layout.top.read_weight())
            && now != weight.weight
            && knobs.soft_cap.is_none()
        {
            found.push(format!(
                "{}: the weight was changed to {now}",
                shown(self.layout.top.path())
            ));
        }
        found.retain(|change| !self.foreign_changes.contains(change));
        for change in &found {
            if self.foreign_changes.len() >= FOREIGN_CHANGES_MAX {
                self.foreign_changes.remove(0);
            }
            self.foreign_changes.push(change.clone());
        }
        found
    }

    /// What it has used.
    pub fn sample(&self, duty: &HeadroomDuty) -> Result<Sample> {
        let stat = |layer, before: &CpuStat| {
            let group: Option<&CpuGroup> = self.layout.layer(layer);
            group
                .map(|group| group.stat().map(|stat| stat.plus(before)))
                .transpose()
        };
        let per_task = self.controls.per_task.as_ref();
        let soft_cap = self.controls.soft_cap.as_ref();
        Ok(Sample {
            usage_usec: self.usage_usec()?,
            processes: self.layout.top.all_processes()?.len() as u64,
            quota: stat(Layer::Quota, &self.carried.quota)?,
            cap: stat(Layer::Cap, &self.carried.cap)?,
            per_task: per_task.map(PerTaskCaps::sample),
            soft_cap: soft_cap
                .map(SoftCapLoop::sample)
                .or_else(|| per_task.and_then(PerTaskCaps::soft_cap_sample)),
            headroom: self.side().and_then(|_| duty.sample()),
            foreign_changes: self.foreign_changes.clone(),
            ..Sample::default()
        })
    }

    /// Whether a task is over its own soft cap, or the group over the one that all share.
    pub fn is_background(&self, tid: i32) -> bool {
        let of_task = self.controls.per_task.as_ref();
        let of_task = of_task.and_then(|caps| caps.soft_cap_of(tid));
        let of_group = self.controls.soft_cap.as_ref().map(SoftCapLoop::sample);
        of_task.or(of_group).is_some_and(|cap| cap.background)
    }

    /// CPU time that it has used.
    pub fn usage_usec(&self) -> Result<u64> {
        Ok((self.layout.top.usage_ns()? + self.carried.usage_ns) / 1000)
    }
}

fn shown(path: &Path) -> String {
    format!("/{}", path.display())
}
