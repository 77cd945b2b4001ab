//! Adoption of a group that an earlier owner has left.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_cgroupfs::{Hierarchy, os};

use crate::cgroup::group::layout::Layout;
use crate::cgroup::group::{Group, Origin};
use crate::journal::OwnRestore;

impl Group {
    /// Continues a group of the journal as it is. Nothing is written to its cgroups. `None`: they
    /// are not there, so that the group cannot be continued, and has to be undone.
    pub fn adopt(
        hierarchy: &Arc<Hierarchy>,
        name: &str,
        left: &OwnRestore,
        is_scheduled: bool,
    ) -> Option<Self> {
        let layout = whole_layout(hierarchy, name, left)?;
        // The next change sets the limits, and then moves the processes of the other layouts over:
        // the owner may have died before it had set the limits.
        let others = left.made();
        let others = others.filter(|(generation, _)| *generation != layout.generation);
        let behind = others
            .filter(|(_, folders)| folders.iter().any(|folder| os::exists(folder)))
            .map(|(generation, folders)| {
                let [plain, yielding] = layouts_of(hierarchy, name, left, generation);
                match is_whole(&yielding, folders) {
                    true => yielding,
                    false => plain,
                }
            })
            .collect();
        let knobs = left.knobs_of(layout.generation);
        Some(Self {
            behind,
            are_levels_due: true,
            ..Self::new(name, Origin::Own, knobs, is_scheduled, layout)
        })
    }
}

/// Returns the layouts that a generation of a group may have: the cgroups show whether it yields to
/// headroom.
fn layouts_of(
    hierarchy: &Arc<Hierarchy>,
    name: &str,
    left: &OwnRestore,
    generation: u32,
) -> [Layout; 2] {
    let knobs = left.knobs_of(generation);
    [false, true].map(|yields| Layout::new(hierarchy, name, generation, &knobs, yields))
}

/// Returns the last layout that is whole: an owner that was killed while it built another has left
/// both.
pub(in crate::cgroup) fn whole_layout(
    hierarchy: &Arc<Hierarchy>,
    name: &str,
    left: &OwnRestore,
) -> Option<Layout> {
    let mut made = left.made().rev();
    made.find_map(|(generation, folders)| {
        let mut layouts = layouts_of(hierarchy, name, left, generation).into_iter();
        layouts.find(|layout| is_whole(layout, folders))
    })
}

/// Returns whether all cgroups of a layout exist, without those of another layout below them.
fn is_whole(layout: &Layout, folders: &[PathBuf]) -> bool {
    let has_all = layout.groups().iter().all(|group| group.exists());
    let below = layout.leaf.children().unwrap_or_default();
    let has_more = below.iter().any(|group| Layout::is_inner(group.path()));
    layout.top.folders() == folders && has_all && !has_more
}
