//! Cgroups of a group that Plimsoll made, from their creation to their removal.

pub(in crate::cgroup) mod adopt;
mod nice;

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_cgroupfs::{CgroupError, CpuGroup, CpuStat, Version, os};

use super::common::{Common, Context};
use super::layout::{Layer, Layout, layer_bandwidth};
use crate::cgroup::audit::external_changes;
use crate::cgroup::bandwidth::least_bandwidth;
use crate::cgroup::change::Change;
use crate::cgroup::move_entry::move_entry;
use crate::cgroup::place::{check_enabling, enable_for_children, explained};
use crate::error::{EngineError, Result};
use crate::group_policy::GroupPolicy;
use crate::journal::{Entry, Header, KeptJournal};
use crate::knobs::{Bandwidth, Knobs};
use crate::own_groups;
use crate::tasks;
use crate::undo::{self, UndoReport};

/// Time for which a group that keeps forking is chased.
const MOVE_MAX: Duration = Duration::from_secs(10);

/// Counters of the cgroups that a group had before it was rebuilt.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cgroup) struct Carried {
    pub usage_ns: u64,
    pub quota: CpuStat,
    pub cap: CpuStat,
}

impl Carried {
    /// Reads the counters of cgroups that are about to be removed. One that is gone already adds
    /// nothing.
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

/// State of a group that Plimsoll made, beside the `Common` one.
#[derive(Debug)]
pub(in crate::cgroup) struct Own {
    generation: u32,
    /// Layouts that were replaced, and still have processes.
    behind: Vec<Layout>,
    pub carried: Carried,
    /// Destination of the processes that still run in the group at its end, one folder a hierarchy.
    evacuate_to: Vec<PathBuf>,
    /// Nice level that the group's tasks would have without us; `None`: the journal of the earlier
    /// owner does not tell.
    nice_before: Option<i32>,
    journal: KeptJournal,
}

impl Own {
    /// Makes the cgroups of a group, applies its knobs, and moves its first process in. Loops are
    /// not started.
    ///
    /// `home`: the place to which the group's processes go in the end; `None`: the place where the
    /// first process is.
    ///
    /// # Errors
    /// When the kernel refuses, or the journal cannot be kept; then nothing is left of the group.
    pub fn create(
        policy: &GroupPolicy,
        first: i32,
        home: Option<Vec<PathBuf>>,
        context: &Context,
    ) -> Result<(Common, Self)> {
        let hierarchy = &context.hierarchy;
        let yields = context.yields(&policy.knobs, policy.is_scheduled, false);
        let layout = Layout::new(hierarchy, &policy.name, 0, &policy.knobs, yields);
        let header = Header::new(&policy.name, &policy.subject, &policy.knobs);
        // Its descendants go back to the place of the process, not to that of the owner.
        let place = hierarchy.folders_of(first)?;
        let is_in_another = home.is_some();
        let evacuate_to = home.unwrap_or_else(|| place.clone());
        let nice_before = Some(tasks::nice(first)?);
        let journal = KeptJournal::create(&context.runtime, &header)?;
        let knobs = policy.knobs.clone();
        let common = Common::new(&policy.name, knobs, policy.is_scheduled, layout);
        let mut own = Self::with_journal(journal, evacuate_to, nice_before);
        let built = own.build(&common, &common.layout, context);
        let built = built.and_then(|()| own.take_in(&common, first, context));
        match built {
            Ok(()) => Ok((common, own)),
            Err(error) => {
                if is_in_another {
                    // Back into its group. The undo would take the process out of that, too; it moves
                    // only processes that are still here.
                    let _ = undo::move_back(&place, first);
                }
                own.undo(context, &mut UndoReport::default());
                Err(error)
            }
        }
    }

    fn with_journal(
        journal: KeptJournal,
        evacuate_to: Vec<PathBuf>,
        nice_before: Option<i32>,
    ) -> Self {
        Self {
            generation: 0,
            behind: Vec::new(),
            carried: Carried::default(),
            evacuate_to,
            nice_before,
            journal,
        }
    }

    /// Returns whether processes are left in layouts that were replaced.
    pub fn has_behind(&self) -> bool {
        let mut tops = self.behind.iter().map(|layout| &layout.top);
        tops.any(|top| top.all_processes().is_ok_and(|pids| !pids.is_empty()))
    }

    /// Records changes before they are made.
    pub fn record(&mut self, entries: &[Entry]) -> Result<()> {
        self.journal.record(entries)
    }

    fn build(&mut self, common: &Common, layout: &Layout, context: &Context) -> Result<()> {
        // A cgroup without a journal is not Plimsoll's: undo would move its processes out.
        if layout.top.exists() {
            return Err(EngineError::NameTaken {
                name: common.name.as_ref().into(),
            });
        }
        make_parent(layout, context)?;
        self.record(&[Entry::Create {
            folders: layout.top.folders(),
            evacuate_to: self.evacuate_to.clone(),
        }])?;
        self.record_nice(layout, common.knobs.nice)?;
        layout.top.create()?;
        for pair in layout.groups().windows(2) {
            // A cgroup without a knob on it need not cost the scheduler another level.
            if layout.is_limit(&pair[1]) || common.knobs.per_task {
                pair[0].enable_children()?;
            }
            pair[1].create()?;
        }
        set_values(layout, &common.knobs)
    }

    /// Moves a running process into the group, unless it is there.
    pub fn take_in(&mut self, common: &Common, pid: i32, context: &Context) -> Result<()> {
        let places = context.hierarchy.folders_of(pid)?;
        let own = common.layout.top.folders();
        if places
            .iter()
            .zip(&own)
            .all(|(place, own)| place.starts_with(own))
        {
            return Ok(());
        }
        let mut entry = move_entry(&context.hierarchy, pid)?;
        let cgroup = context.hierarchy.cgroup_of(pid)?;
        if let (Entry::Move { from, .. }, true) =
            (&mut entry, own_groups::is_own(&context.hierarchy, &cgroup))
        {
            // The other group may be gone then.
            from.clone_from(&self.evacuate_to);
        }
        self.record(&[entry])?;
        let added = common.layout.leaf.add_process(pid);
        added.map_err(|error| real_time_refused(error, pid))?;
        if let Some(nice) = common.knobs.nice {
            self.renice(&common.layout, pid, nice, None)?;
        }
        Ok(())
    }

    /// Replaces the knobs. Loops are not started.
    pub fn change(&mut self, common: &mut Common, knobs: &Knobs, context: &Context) -> Result<()> {
        let generation = self.generation + 1;
        let yields = context.yields(knobs, common.is_scheduled, false);
        let new = Layout::new(&context.hierarchy, &common.name, generation, knobs, yields);
        let same = common.layout.same_shape(&new) && common.knobs.per_task == knobs.per_task;
        let old_knobs = std::mem::replace(&mut common.knobs, knobs.clone());
        let set_values = |knobs: &Knobs, layout: &Layout| {
            let set = || set_values(layout, knobs);
            context.headroom.paused(set)
        };
        let changed = if same {
            set_values(knobs, &common.layout).and_then(|()| self.catch_up(common, context))
        } else {
            self.rebuild(common, new, generation, context)
        };
        let changed =
            changed.and_then(|()| self.renice_all(&common.layout, old_knobs.nice, knobs.nice));
        if let Err(error) = changed {
            if same {
                // As far as possible: the cause of the first error may still be there.
                let _ = set_values(&old_knobs, &common.layout);
            }
            // Once its processes are in the new layout, the new knobs are in force.
            if self.generation != generation {
                common.knobs = old_knobs;
            }
            return Err(error);
        }
        if same && old_knobs != *knobs {
            self.note_knobs(knobs);
        }
        Ok(())
    }

    /// Writes the knobs down, for an owner that adopts the group. If they are missing, because the
    /// disk was full, that finds a group that differs from the header, and makes it anew.
    fn note_knobs(&mut self, knobs: &Knobs) {
        let (knobs, generation) = (knobs.clone(), self.generation);
        self.journal.note(vec![Entry::Change { knobs, generation }]);
    }

    /// Builds the group anew beside itself, moves its processes over, and removes the old cgroups.
    fn rebuild(
        &mut self,
        common: &mut Common,
        new: Layout,
        generation: u32,
        context: &Context,
    ) -> Result<()> {
        let is_new = !new.top.exists();
        // First, so that an owner that adopts a half-built group knows which knobs it has.
        let knobs = common.knobs.clone();
        self.record(&[Entry::Change { knobs, generation }])?;
        if let Err(error) = self.build(common, &new, context) {
            // A part of the new group would be in the way of the next attempt.
            for folder in new.top.folders().into_iter().filter(|_| is_new) {
                let _ = undo::remove_group(&folder, None);
            }
            return Err(error);
        }
        let old = std::mem::replace(&mut common.layout, new);
        self.generation = generation;
        self.behind.push(old);
        self.catch_up(common, context)
    }

    /// Moves the processes of replaced layouts into the present one, and removes these layouts. The
    /// next change continues after a failure.
    fn catch_up(&mut self, common: &Common, context: &Context) -> Result<()> {
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
                    common.layout.leaf.add_process(pid)?;
                }
            }
            let counts = Carried::of(&old);
            for folder in old.top.folders() {
                undo::remove_group(&folder, None)?;
            }
            self.carried.add(&counts);
            self.behind.pop();
        }
        context.runtime.release_parents()
    }

    pub fn undo(self, context: &Context, report: &mut UndoReport) {
        note(
            undo::undo_journal(self.journal.into_journal(), report),
            report,
        );
        note(context.runtime.release_parents(), report);
    }
}

/// Lists the differences between a group's files and its knobs, and its removal.
pub(super) fn audit(common: &Common) -> Result<Vec<String>> {
    let layout = &common.layout;
    if !layout.top.exists() {
        return Ok(vec![format!(
            "{} was removed",
            layout.shown_path().display()
        )]);
    }
    let mut found = Vec::new();
    for (group, wanted) in layout.wanted(&common.knobs) {
        found.extend(external_changes(&group, Change::plan_own(&group, &wanted))?);
    }
    Ok(found)
}

/// Explains why a process cannot enter: a kernel with groups of real-time tasks lets none into a
/// cgroup that has no real-time runtime of its own (`sched_rt_can_attach` in kernel/sched/rt.c).
fn real_time_refused(error: CgroupError, pid: i32) -> EngineError {
    match error.os_error() {
        Some(libc::EINVAL) if tasks::policy_number(pid).is_some_and(tasks::is_real_time) => {
            EngineError::RealTime { pid }
        }
        _ => error.into(),
    }
}

fn note(done: Result<()>, report: &mut UndoReport) {
    if let Err(error) = done {
        report.problems.push(error.to_string());
    }
}

/// Creates the parent that groups share, and enables the controller for its children and for those
/// of the base. Whatever was there before is left alone.
fn make_parent(layout: &Layout, context: &Context) -> Result<()> {
    let base = CpuGroup::at(&context.hierarchy, context.hierarchy.base());
    check_enabling(&base)?;
    let mut enabled = Vec::new();
    if !base.children_enabled()? {
        enabled.push(base.subtree_control());
    }
    let new_parent = layout.parent.as_ref().filter(|parent| !parent.exists());
    let created = new_parent.map_or_else(Vec::new, CpuGroup::folders);
    context.runtime.share(&enabled, &created)?;
    enable_for_children(&base)?;
    let Some(parent) = &layout.parent else {
        return Ok(());
    };
    parent.create()?;
    parent.enable_children()?;
    Ok(())
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
        same &= Bandwidth::from(group.read_cpu_max()?) == layer_bandwidth(*layer, knobs);
    }
    if !same {
        for (_, group) in inside.iter().rev() {
            group.write_cpu_max(&least_bandwidth().into())?;
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
        let executed = change.execute(&group);
        executed.map_err(|error| explained(&layout.top, knobs, error))?;
    }
    Ok(())
}
