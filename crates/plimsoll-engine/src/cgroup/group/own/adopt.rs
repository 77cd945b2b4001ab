//! Adoption of a group that an earlier owner has left.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_cgroupfs::{Hierarchy, os};

use super::{Common, Layout, Own};
use crate::journal::OwnRestore;

impl Own {
    /// Continues a group of the journal as it is. Nothing is written to its cgroups. `None`: they
    /// are not there, so that the group cannot be continued, and has to be undone.
    pub fn adopt(
        hierarchy: &Arc<Hierarchy>,
        name: &str,
        left: &OwnRestore,
        is_scheduled: bool,
    ) -> Option<(Common, Self)> {
        // The cgroups show whether the group yields to headroom.
        let layouts_of = |folders: &[PathBuf]| {
            let generation = generation_of(folders);
            let knobs = left.knobs_of(generation);
            [false, true].map(|yields| Layout::new(hierarchy, name, generation, &knobs, yields))
        };
        // The last layout that is whole: an owner that was killed while it built another has left
        // both.
        let (layout, present) = left.created.iter().rev().find_map(|folders| {
            let mut layouts = layouts_of(folders).into_iter();
            let layout = layouts.find(|layout| is_whole(layout, folders))?;
            Some((layout, folders))
        })?;
        // The next change sets the limits, and then moves the processes of the other layouts over:
        // the owner may have died before it had set the limits.
        let others = left.created.iter().filter(|folders| *folders != present);
        let behind = others
            .filter(|folders| folders.iter().any(|folder| os::exists(folder)))
            .map(|folders| {
                let [plain, yielding] = layouts_of(folders);
                match is_whole(&yielding, folders) {
                    true => yielding,
                    false => plain,
                }
            })
            .collect();
        let generations = left.created.iter().map(|folders| generation_of(folders));
        let own = Self {
            generation: generations.max().unwrap_or(0),
            behind,
            ..Self::default()
        };
        let knobs = left.knobs_of(generation_of(present));
        Some((Common::new(name, knobs, is_scheduled, layout), own))
    }
}

/// Returns the number behind the `+` of a rebuilt group's folder; 0: the group was not rebuilt.
fn generation_of(folders: &[PathBuf]) -> u32 {
    let name = folders.first().and_then(|folder| folder.file_name());
    let name = name.and_then(|name| name.to_str());
    let number = name.and_then(|name| name.split_once('+'));
    number
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

/// Returns whether all cgroups of a layout exist, without those of another layout below them.
fn is_whole(layout: &Layout, folders: &[PathBuf]) -> bool {
    let has_all = layout.groups().iter().all(|group| group.exists());
    let below = layout.leaf.children().unwrap_or_default();
    let has_more = below.iter().any(|group| Layout::is_inner(group.path()));
    layout.top.folders() == folders && has_all && !has_more
}
