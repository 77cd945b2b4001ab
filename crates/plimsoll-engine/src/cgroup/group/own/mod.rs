//! Cgroups of a group that Plimsoll made, from their creation to their removal.

pub(in crate::cgroup) mod adopt;
mod members;
mod removal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_cgroupfs::{CpuGroup, Version, name, os};

pub(in crate::cgroup) use removal::{note_gone, undo};

use self::members::Before;
use super::carried::Carried;
use super::context::{Context, OnMade};
use super::layout::{Layer, Layout, layer_max};
use super::{Group, Origin};
use crate::cgroup::bandwidth::least_max;
use crate::cgroup::change::Change;
use crate::cgroup::place::{check_empty, enable_for_children, enable_recorded, explained};
use crate::control::per_task;
use crate::error::{EngineError, Result};
use crate::group_policy::GroupPolicy;
use crate::journal::{Entry, LayoutRestore, OwnRestore};
use crate::knobs::Knobs;
use crate::tasks::TaskId;
use crate::undo::{self, UndoReport};

/// Time for which a group that keeps forking is chased.
const MOVE_MAX: Duration = Duration::from_secs(10);

impl Group {
    /// Makes the cgroups of a group, applies its knobs, and moves its first process in. Loops are
    /// not started.
    ///
    /// # Errors
    /// When the kernel refuses, or the journal cannot be kept; then nothing is left of the group.
    pub fn create(
        policy: &GroupPolicy,
        first: TaskId,
        context: &mut Context,
        on_made: OnMade<'_>,
    ) -> Result<Self> {
        let hierarchy = &context.hierarchy;
        let yields = context.yields(&policy.knobs, policy.is_scheduled, false);
        let layout = Layout::new(hierarchy, &policy.name, 0, &policy.knobs, yields);
        let knobs = policy.knobs.clone();
        let group = Self::new(
            &policy.name,
            Origin::Own,
            knobs,
            policy.is_scheduled,
            layout,
        );
        let before = Before::of(first, context)?;
        // Its descendants go back to the place of the process, not to that of the owner.
        let first_layout = LayoutRestore {
            knobs: policy.knobs.clone(),
            folders: Vec::new(),
        };
        context.journal.record(&[Entry::Own {
            name: policy.name.clone(),
            own: Some(OwnRestore {
                subject: policy.subject.clone(),
                evacuate_to: before.home().to_vec(),
                nice: before.nice(),
                layouts: BTreeMap::from([(0, first_layout)]),
                moved: BTreeMap::new(),
            }),
        }])?;
        let built = group.build(&group.layout, context, on_made);
        let built = built.and_then(|()| group.move_in(first, context));
        match built {
            Ok(()) => Ok(group),
            Err(error) => {
                let mut report = UndoReport::default();
                before.put_back_into_group(&mut report);
                undo(&policy.name, context, &mut report);
                before.give_levels_again();
                Err(error)
            }
        }
    }

    /// Replaces the knobs. Loops are not started.
    pub(super) fn set_knobs(
        &mut self,
        knobs: &Knobs,
        context: &mut Context,
        on_made: OnMade<'_>,
    ) -> Result<()> {
        let yields = context.yields(knobs, self.is_scheduled, false);
        let hierarchy = Arc::clone(&context.hierarchy);
        let layout = |generation| Layout::new(&hierarchy, &self.name, generation, knobs, yields);
        let own = context.journal.restores().own.get(&*self.name);
        let generation = own.map_or(0, OwnRestore::next_generation);
        let (in_place, anew) = (layout(self.layout.generation), layout(generation));
        if !self.can_stay(knobs, &in_place) {
            self.check_movable()?;
            let old_knobs = std::mem::replace(&mut self.knobs, knobs.clone());
            let rebuilt = self.rebuild(anew, context, on_made);
            let changed = self.renice(&old_knobs, rebuilt, context);
            // Once its processes are in the new layout, the new knobs are in force.
            if changed.is_err() && self.layout.generation != generation {
                self.knobs = old_knobs;
            }
            return changed;
        }
        let (present, headroom) = (self.layout.clone(), context.headroom.clone());
        let is_new_limit = !in_place.layers.is_empty() && present.limits() != in_place.limits();
        if is_new_limit {
            // First, so that the next owner knows that the limit is ours. One that goes is ours until
            // it has gone.
            let to_new = self.knobs_entry(present.generation, knobs, context);
            context.journal.record(to_new.as_slice())?;
        }
        let old_knobs = std::mem::replace(&mut self.knobs, knobs.clone());
        let set = headroom.paused(|| set_values(&in_place.lifting(&present), knobs));
        let set = set.and_then(|()| self.catch_up(context));
        let changed = self.renice(&old_knobs, set, context);
        if changed.is_err() {
            // As far as possible: the cause of the first error may still be there.
            let back = headroom.paused(|| set_values(&present.lifting(&in_place), &old_knobs));
            if is_new_limit && back.is_ok() {
                let to_old = self.knobs_entry(present.generation, &old_knobs, context);
                context.journal.note(to_old);
            }
            self.knobs = old_knobs;
            return changed;
        }
        self.layout = in_place;
        if !is_new_limit && old_knobs != *knobs {
            // For an owner that adopts the group. If it is missing, because the disk was full, that
            // finds a group whose values differ from its knobs, and sets them.
            let to_new = self.knobs_entry(present.generation, knobs, context);
            context.journal.note(to_new);
        }
        Ok(())
    }

    /// Returns whether the cgroups of a group can stay while its knobs change. On v1 the cgroups of
    /// single tasks refuse a limit below theirs, and counters of a limit are not those of another.
    fn can_stay(&mut self, knobs: &Knobs, in_place: &Layout) -> bool {
        let present = &self.layout;
        let first = |layout: &Layout| layout.limits().first().copied();
        self.counted = first(present).or(self.counted);
        let is_counted_as = |new: Layer| self.counted.is_none_or(|counted| counted == new);
        present.same_cgroups(in_place)
            && self.knobs.per_task == knobs.per_task
            && (!knobs.per_task || present.limits() == in_place.limits())
            && first(in_place).is_none_or(is_counted_as)
    }

    /// Gives the tasks the level of the knobs after a change of cgroups or values, if they may have
    /// another.
    fn renice(
        &mut self,
        old_knobs: &Knobs,
        changed: Result<()>,
        context: &mut Context,
    ) -> Result<()> {
        let is_new = self.are_levels_due || old_knobs.nice != self.knobs.nice;
        let changed = match changed {
            Ok(()) if is_new => self.renice_all(context),
            changed => changed,
        };
        self.are_levels_due = changed.is_err();
        changed
    }

    /// Builds the group anew beside itself, moves its processes over, and removes the old cgroups.
    fn rebuild(&mut self, new: Layout, context: &mut Context, on_made: OnMade<'_>) -> Result<()> {
        let (is_new, generation) = (!new.top.exists(), new.generation);
        // First, so that an owner that adopts a half-built group knows which knobs it has.
        let entry = self.knobs_entry(generation, &self.knobs, context);
        context.journal.record(entry.as_slice())?;
        if let Err(error) = self.build(&new, context, on_made) {
            // A part of the new group would be in the way of the next attempt.
            for folder in new.top.folders().into_iter().filter(|_| is_new) {
                let _ = undo::remove_group(&folder, None);
            }
            if is_new && !new.top.exists() {
                note_gone(&self.name, &[generation], context);
            }
            return Err(error);
        }
        let old = std::mem::replace(&mut self.layout, new);
        self.behind.push(old);
        self.catch_up(context)
    }

    /// Moves the processes of replaced layouts into the present one, and removes these layouts. The
    /// next change continues after a failure.
    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
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
            note_gone(&self.name, &[old.generation], context);
            self.carried.add(&counts);
            self.behind.pop();
        }
        context.remove_parents();
        Ok(())
    }

    /// Checks that the processes of a group can move to other cgroups without harm: they would thaw,
    /// or leave cgroups that other programs have made inside, which would go with their limits.
    fn check_movable(&self) -> Result<()> {
        let (layout, called) = (&self.layout, || String::from(&*self.name));
        if let Some(inner) = self.cgroup_of_others(&layout.top)? {
            return Err(EngineError::InnerCgroup {
                name: called(),
                cgroup: name::shown(inner.path()),
            });
        }
        match layout.leaf.frozen_by() {
            Some(frozen) => Err(EngineError::GroupFrozen {
                name: called(),
                cgroup: name::shown(frozen.path()),
            }),
            None => Ok(()),
        }
    }

    /// Finds a cgroup of other programs inside of one of the group's.
    fn cgroup_of_others(&self, group: &CpuGroup) -> Result<Option<CpuGroup>> {
        let layout = &self.layout;
        let ours = layout.groups();
        let children = match group.children() {
            Err(error) if error.is_gone() => Vec::new(),
            children => children?,
        };
        for child in children {
            let is_layer = ours.iter().any(|our| our.path() == child.path());
            let is_of_task = self.knobs.per_task
                && group.path() == layout.leaf.path()
                && per_task::is_leaf(child.path());
            if !is_layer && !is_of_task {
                return Ok(Some(child));
            }
            if let Some(found) = self.cgroup_of_others(&child)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the entry about the knobs of a layout of the group.
    fn knobs_entry(&self, generation: u32, knobs: &Knobs, context: &Context) -> Option<Entry> {
        context.journal.restores().change_own(&self.name, |own| {
            own.layouts.entry(generation).or_default().knobs = knobs.clone();
        })
    }

    fn build(&self, layout: &Layout, context: &mut Context, on_made: OnMade<'_>) -> Result<()> {
        // A cgroup without a journal is not Plimsoll's: undo would move its processes out.
        if layout.top.exists() {
            return Err(EngineError::NameTaken {
                name: self.name.as_ref().into(),
            });
        }
        make_parent(layout, context)?;
        let entry = context.journal.restores().change_own(&self.name, |own| {
            own.layouts.entry(layout.generation).or_default().folders = layout.top.folders();
        });
        context.journal.record(entry.as_slice())?;
        self.record_nice(layout, context)?;
        layout.top.create()?;
        for pair in layout.groups().windows(2) {
            // A cgroup without a knob on it need not cost the scheduler another level.
            if layout.is_limit(&pair[1]) || self.knobs.per_task {
                pair[0].enable_children()?;
            }
            pair[1].create()?;
        }
        set_values(layout, &self.knobs)?;
        if self.is_scheduled {
            on_made(&self.name, &layout.top)?;
        }
        Ok(())
    }
}

/// Creates the parent that groups share, and enables the controller for its children and for those
/// of the base. Whatever was there before is left alone.
fn make_parent(layout: &Layout, context: &mut Context) -> Result<()> {
    let base = CpuGroup::at(&context.hierarchy, context.hierarchy.base());
    enable_recorded(&base, &mut context.journal)?;
    let Some(parent) = &layout.parent else {
        return Ok(());
    };
    // v1 may have the parent in one of two hierarchies.
    let folders = parent.folders().into_iter();
    let new = folders.filter(|folder| !os::exists(folder));
    let new: Vec<Entry> = new.map(|folder| Entry::Parent { folder }).collect();
    context.journal.record(&new)?;
    parent.create()?;
    check_empty(parent)?;
    if new.is_empty() {
        return enable_recorded(parent, &mut context.journal);
    }
    // The controller goes with the parent.
    enable_for_children(parent)
}

/// Lowers the inner limits on v1 before an outer one changes, as far as the kernel allows: it
/// refuses a rate below a child's at every step. Nothing is unlimited in between.
fn lower_inner_limits(layout: &Layout, knobs: &Knobs) -> Result<()> {
    let Some((_, inside)) = layout.layers.split_first() else {
        return Ok(());
    };
    if layout.top.hierarchy().version() != Version::V1 || inside.is_empty() {
        return Ok(());
    }
    let mut same = true;
    for (layer, group) in &layout.layers[..inside.len()] {
        same &= group.read_cpu_max()? == layer_max(*layer, knobs);
    }
    if !same {
        for (_, group) in inside.iter().rev() {
            group.write_cpu_max(&least_max())?;
        }
    }
    Ok(())
}

/// Sets background, weight and limits of a layout whose cgroups exist.
fn set_values(layout: &Layout, knobs: &Knobs) -> Result<()> {
    lower_inner_limits(layout, knobs)?;
    for (group, wanted) in layout.wanted(knobs) {
        // None of this is in the journal: the values vanish with the cgroup.
        let change = Change::plan_own(&group, &wanted)?;
        let executed = change.execute();
        executed.map_err(|error| explained(&layout.top, knobs, error))?;
    }
    Ok(())
}
