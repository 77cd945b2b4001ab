//! Places of a group's cgroups, and the limit that each of them carries.
//!
//! ```text
//! /plimsoll/NAME             normal groups       weight
//! /plimsoll-batch/NAME       batch groups        weight among batch groups
//! /plimsoll-soft-NAME        soft-capped groups  idle mark, switched
//!          └─ quota └─ cap └─ headroom └─ work
//! ```
//!
//! Background work needs a top-level cgroup: the kernel compares siblings, so an idle mark inside a
//! normal cgroup yields to that cgroup only. Each limit of a group has a cgroup of its own, because
//! a cgroup has one quota; with a single limit, the group itself carries it. The wider limit is
//! outside: v1 refuses a child's rate above its parent's. On v2 the headroom's limit is outside of
//! both.
//!
//! No process is in the headroom's cgroup itself. Its quota is a momentary grant of the controller,
//! and runtimes take the quota of their own cgroup for the time that they may use. On v2 they find
//! the quota or the cap there; else no limit, in a cgroup `work` that has none.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_cgroupfs::{CpuGroup, CpuMax, Hierarchy, Version, WEIGHT_DEFAULT};

use crate::cgroup::bandwidth::{cap_max, fit_below, least_max};
use crate::cgroup::wanted::{Limit, Wanted};
use crate::knobs::{Bandwidth, Class, Knobs};
use crate::own_groups::{PARENT_BATCH, PARENT_NORMAL, PREFIX_SOFT};

/// Innermost cgroup of a group with headroom, without a limit.
const WORK: &str = "work";

/// Limit that is made of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cgroup) enum Layer {
    Quota,
    Cap,
    Headroom,
}

impl Layer {
    fn folder(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Cap => "cap",
            Self::Headroom => "headroom",
        }
    }
}

#[derive(Debug, Clone)]
pub(in crate::cgroup) struct Layout {
    /// Number of the layout, which distinguishes it from the one that it replaces; 0: the first one.
    pub generation: u32,
    /// Parent that several groups share; `None`: there is none.
    pub parent: Option<CpuGroup>,
    /// Outermost cgroup of the group.
    pub top: CpuGroup,
    /// Limits with their cgroups, from the outside in.
    pub layers: Vec<(Layer, CpuGroup)>,
    /// Cgroup of the processes.
    pub leaf: CpuGroup,
    /// Cgroup that carries the idle mark: `top` or its parent; `None`: the group is not in the
    /// background.
    pub background: Option<CpuGroup>,
}

impl Layout {
    /// Creates the layout for `knobs`. `generation` distinguishes a rebuilt group from the one that
    /// it replaces; 0 at first. `yields`: to the machine's headroom.
    pub fn new(
        hierarchy: &Arc<Hierarchy>,
        name: &str,
        generation: u32,
        knobs: &Knobs,
        yields: bool,
    ) -> Self {
        let base = CpuGroup::at(hierarchy, hierarchy.base());
        let folder = match generation {
            0 => name.to_owned(),
            // No group's own name has a `+`.
            n => format!("{name}+{n}"),
        };
        let is_batch = knobs.class == Some(Class::Batch);
        let is_soft = knobs.soft_cap.is_some() && !knobs.per_task && !is_batch;
        let (parent, top) = if is_soft {
            (None, base.child(format!("{PREFIX_SOFT}{folder}")))
        } else {
            let parent = base.child(if is_batch {
                PARENT_BATCH
            } else {
                PARENT_NORMAL
            });
            let top = parent.child(&folder);
            (Some(parent), top)
        };
        let background = match (is_batch, is_soft) {
            (true, _) => parent.clone(),
            (false, true) => Some(top.clone()),
            (false, false) => None,
        };
        let wanted = wanted_layers(knobs, yields, hierarchy.version());
        let (layers, mut leaf) = Self::nest(&top, &wanted);
        if layers
            .last()
            .is_some_and(|(layer, _)| *layer == Layer::Headroom)
        {
            leaf = leaf.child(WORK);
        }
        Self {
            generation,
            parent,
            top,
            layers,
            leaf,
            background,
        }
    }

    /// Creates the layout of a foreign cgroup, which carries everything itself.
    pub fn of_foreign(group: CpuGroup, knobs: &Knobs, yields: bool) -> Self {
        let is_soft = knobs.soft_cap.is_some() && knobs.class != Some(Class::Batch);
        let carried = wanted_layers(knobs, yields, group.hierarchy().version()).into_iter();
        Self {
            generation: 0,
            parent: None,
            layers: carried.map(|layer| (layer, group.clone())).collect(),
            leaf: group.clone(),
            background: is_soft.then(|| group.clone()),
            top: group,
        }
    }

    fn nest(top: &CpuGroup, wanted: &[Layer]) -> (Vec<(Layer, CpuGroup)>, CpuGroup) {
        if let [only] = wanted {
            return (vec![(*only, top.clone())], top.clone());
        }
        let mut leaf = top.clone();
        let mut layers = Vec::new();
        for layer in wanted {
            leaf = leaf.child(layer.folder());
            layers.push((*layer, leaf.clone()));
        }
        (layers, leaf)
    }

    /// Returns whether a cgroup has a name of those inside of a group; those of single tasks are
    /// left out.
    pub fn is_inner(path: &Path) -> bool {
        let limits = [Layer::Quota, Layer::Cap, Layer::Headroom];
        let mut names = limits.iter().map(|limit| limit.folder()).chain([WORK]);
        names.any(|name| path.ends_with(name))
    }

    /// Returns whether a cgroup carries a limit of this group.
    pub fn is_limit(&self, group: &CpuGroup) -> bool {
        let mut limits = self.layers.iter();
        limits.any(|(_, limit)| limit.path() == group.path())
    }

    pub fn layer(&self, wanted: Layer) -> Option<&CpuGroup> {
        self.layers
            .iter()
            .find(|(layer, _)| *layer == wanted)
            .map(|(_, group)| group)
    }

    /// Lists the values that the group's cgroups, and a parent in the background, get for `knobs`,
    /// from the outside in.
    pub fn wanted(&self, knobs: &Knobs) -> Vec<(CpuGroup, Wanted)> {
        let has_soft_cap = self.is_background();
        let top = Wanted {
            idle: (!has_soft_cap).then_some(false),
            weight: Some(knobs.weight.map_or(WEIGHT_DEFAULT, |weight| weight.weight)),
            has_soft_cap,
            limit: Limit::None,
        };
        let parent = self.background.as_ref().filter(|_| !has_soft_cap);
        let of_parent = Wanted {
            idle: Some(true),
            ..Wanted::default()
        };
        let mut wanted: Vec<_> = parent
            .map(|parent| (parent.clone(), of_parent))
            .into_iter()
            .collect();
        wanted.push((self.top.clone(), top));
        let version = self.top.hierarchy().version();
        let mut outer = CpuMax::unlimited();
        for (layer, group) in &self.layers {
            outer = fit_below(&outer, layer_max(*layer, knobs), version);
            let limit = match layer {
                Layer::Headroom => Limit::Headroom,
                Layer::Quota | Layer::Cap => outer.into(),
            };
            match wanted
                .last_mut()
                .filter(|(last, _)| last.path() == group.path())
            {
                Some((_, same)) => same.limit = limit,
                None => wanted.push((
                    group.clone(),
                    Wanted {
                        limit,
                        ..Wanted::default()
                    },
                )),
            }
        }
        wanted
    }

    /// Returns whether the outermost cgroup itself goes into the background.
    pub fn is_background(&self) -> bool {
        let background = self.background.as_ref();
        background.is_some_and(|group| group.path() == self.top.path())
    }

    /// Lists the group's own cgroups, from the outside in.
    pub fn groups(&self) -> Vec<CpuGroup> {
        let mut groups = vec![self.top.clone()];
        groups.extend(self.layers.iter().map(|(_, group)| group.clone()));
        groups.push(self.leaf.clone());
        groups.dedup_by(|a, b| a.path() == b.path());
        groups
    }

    /// Returns the kinds of the limits, from the outside in.
    pub fn limits(&self) -> Vec<Layer> {
        self.layers.iter().map(|(layer, _)| *layer).collect()
    }

    /// Returns the layout with the limits that `other` has on the same cgroups beside those of this
    /// one. The knobs do not ask for them, so that setting the values lifts them.
    pub fn lifting(&self, other: &Self) -> Self {
        let mut layout = self.clone();
        let others = other
            .layers
            .iter()
            .filter(|(_, group)| !self.is_limit(group));
        layout.layers.extend(others.cloned());
        layout
    }

    /// Returns whether `other` has the same cgroups, so that only values differ.
    pub fn same_cgroups(&self, other: &Self) -> bool {
        let paths = |layout: &Self| -> Vec<PathBuf> {
            let groups = layout.groups().into_iter();
            groups.map(|group| group.path().to_owned()).collect()
        };
        paths(self) == paths(other) && self.background.is_some() == other.background.is_some()
    }

    /// Returns the path that a user sees in `/proc/PID/cgroup`.
    pub fn shown_path(&self) -> PathBuf {
        PathBuf::from("/").join(self.top.path())
    }
}

/// Lists the limits that a group needs, from the outside in: the widest first, with headroom last
/// on v1, first on v2.
fn wanted_layers(knobs: &Knobs, yields: bool, version: Version) -> Vec<Layer> {
    let mut layers = Vec::new();
    if knobs.quota.is_some() {
        layers.push((Layer::Quota, layer_rate_ppm(Layer::Quota, knobs)));
    }
    if knobs.cap.is_some() && !knobs.per_task {
        layers.push((Layer::Cap, layer_rate_ppm(Layer::Cap, knobs)));
    }
    layers.sort_by_key(|(_, rate_ppm)| std::cmp::Reverse(*rate_ppm));
    let mut layers: Vec<Layer> = layers.into_iter().map(|(layer, _)| layer).collect();
    if yields {
        let place = match version {
            Version::V1 => layers.len(),
            Version::V2 => 0,
        };
        layers.insert(place, Layer::Headroom);
    }
    layers
}

/// Returns the rate of a limit in ppm of one CPU; the highest number for none.
fn layer_rate_ppm(layer: Layer, knobs: &Knobs) -> u64 {
    layer_max(layer, knobs).rate_ppm().unwrap_or(u64::MAX)
}

/// Returns the initial bandwidth of a limit's cgroup. Headroom begins with the least that the
/// kernel takes: the controller raises it.
pub(super) fn layer_max(layer: Layer, knobs: &Knobs) -> CpuMax {
    match layer {
        Layer::Quota => knobs.quota.map_or_else(CpuMax::unlimited, |quota| {
            // Burst means nothing without a quota, and v1 would refuse it.
            Bandwidth::of(quota, knobs.burst.filter(|_| quota.quota_ns.is_some())).into()
        }),
        Layer::Cap => knobs.cap.map_or_else(CpuMax::unlimited, cap_max),
        Layer::Headroom => least_max(),
    }
}
