//! Where a group's cgroups are and which limit each of them carries.
//!
//! ```text
//! /plimsoll/NAME             normal groups       weight
//! /plimsoll-batch/NAME       batch groups        weight among batch groups
//! /plimsoll-soft-NAME        soft-capped groups  idle mark, switched
//!          └─ quota └─ cap └─ headroom
//! ```
//!
//! Background work needs a top-level cgroup: the kernel compares siblings,
//! so an idle mark inside a normal cgroup yields to that cgroup only. Each
//! limit of a group has a cgroup of its own, because a cgroup has one quota;
//! with a single limit, the group itself carries it. The wider limit is
//! outside: v1 refuses a child's rate above its parent's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::knobs::units::NSEC_PER_USEC;
use crate::knobs::{Bandwidth, Cap, Class, Knobs, Quota};
use crate::own_groups::{PARENT_BATCH, PARENT_NORMAL, PREFIX_SOFT};
use plimsoll_cgroupfs::{CpuGroup, Hierarchy, Version};
use plimsoll_policy::NSEC_PER_MSEC;
use plimsoll_policy::ratecap::DEPTH_DEFAULT_NS;

/// The period of a tree cap, short so that work is cut in small pieces, …
const CAP_PERIOD_MS: u64 = 10;
/// … and that of a wide one. With 10 ms, what short tasks leave behind on
/// their CPUs cost a cap of 90 % up to 3 % of its rate; with 20 ms, nothing
/// that could be measured.
const WIDE_CAP_PERIOD_MS: u64 = 20;
/// Caps from here on are wide.
const WIDE_CAP_PERMILLE: u64 = 500;
/// The least that the kernel takes as a quota.
pub(crate) const KERNEL_QUOTA_MIN_NS: u64 = 1_000_000;
/// The longest period that the kernel takes.
pub(crate) const KERNEL_PERIOD_MAX_NS: u64 = 1_000_000_000;

/// A limit that is made of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
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

/// The cgroups of one group.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The parent that several groups share, where there is one.
    pub parent: Option<CpuGroup>,
    /// The group's outermost cgroup.
    pub top: CpuGroup,
    /// Its limits, from the outside in.
    pub layers: Vec<(Layer, CpuGroup)>,
    /// Where its processes are.
    pub leaf: CpuGroup,
    /// The background: `top`, or its parent, carries the idle mark.
    pub background: Option<CpuGroup>,
}

impl Layout {
    /// The layout for `knobs`. `generation` tells a group that is rebuilt
    /// from what it replaces; 0 at first.
    pub fn new(hierarchy: &Arc<Hierarchy>, name: &str, generation: u32, knobs: &Knobs) -> Self {
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
        let (layers, leaf) = Self::nest(&top, &wanted_layers(knobs));
        Self {
            parent,
            top,
            layers,
            leaf,
            background,
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

    /// Whether a cgroup is called as those that carry a limit.
    pub fn is_limit(path: &Path) -> bool {
        let limits = [Layer::Quota, Layer::Cap, Layer::Headroom];
        limits.iter().any(|limit| path.ends_with(limit.folder()))
    }

    /// The cgroup that carries a limit.
    pub fn layer(&self, wanted: Layer) -> Option<&CpuGroup> {
        self.layers
            .iter()
            .find(|(layer, _)| *layer == wanted)
            .map(|(_, group)| group)
    }

    /// What each of its limits is to be set to for `knobs`, from the outside in.
    pub fn bandwidths(&self, knobs: &Knobs) -> Vec<(Layer, &CpuGroup, Bandwidth)> {
        let version = self.top.hierarchy().version();
        let mut outer = Bandwidth::unlimited();
        let mut bandwidths = Vec::new();
        for (layer, group) in &self.layers {
            outer = fit_below(&outer, layer_bandwidth(*layer, knobs), version);
            bandwidths.push((*layer, group, outer));
        }
        bandwidths
    }

    /// Its own cgroups, from the outside in.
    pub fn groups(&self) -> Vec<CpuGroup> {
        let mut groups = vec![self.top.clone()];
        groups.extend(self.layers.iter().map(|(_, group)| group.clone()));
        groups.dedup_by(|a, b| a.path() == b.path());
        groups
    }

    /// Whether `other` has its processes in the same place under the same
    /// limits, so that only values differ.
    pub fn same_shape(&self, other: &Self) -> bool {
        let shape = |layout: &Self| -> Vec<(Layer, usize)> {
            layout
                .layers
                .iter()
                .map(|(l, g)| (*l, g.path().components().count()))
                .collect()
        };
        let parent = |layout: &Self| layout.parent.as_ref().map(|p| p.path().to_owned());
        let background = |layout: &Self| layout.background.is_some();
        shape(self) == shape(other)
            && parent(self) == parent(other)
            && background(self) == background(other)
    }

    /// Where a user finds it, as in `/proc/PID/cgroup`.
    pub fn shown_path(&self) -> PathBuf {
        PathBuf::from("/").join(self.top.path())
    }
}

/// The limits that `knobs` ask for, the widest first, headroom last.
fn wanted_layers(knobs: &Knobs) -> Vec<Layer> {
    let mut layers = Vec::new();
    if knobs.quota.is_some() {
        layers.push((Layer::Quota, layer_rate_ppm(Layer::Quota, knobs)));
    }
    if knobs.cap.is_some() && !knobs.per_task {
        layers.push((Layer::Cap, layer_rate_ppm(Layer::Cap, knobs)));
    }
    layers.sort_by_key(|(_, rate_ppm)| std::cmp::Reverse(*rate_ppm));
    let mut layers: Vec<Layer> = layers.into_iter().map(|(layer, _)| layer).collect();
    if knobs.headroom.is_some() {
        layers.push(Layer::Headroom);
    }
    layers
}

/// The rate of a limit in ppm of one CPU; the highest number for none.
fn layer_rate_ppm(layer: Layer, knobs: &Knobs) -> u64 {
    layer_bandwidth(layer, knobs)
        .quota
        .rate_ppm()
        .unwrap_or(u64::MAX)
}

/// What a limit's cgroup is set to at first. Headroom begins with the least
/// that the kernel takes: the controller raises it.
pub(crate) fn layer_bandwidth(layer: Layer, knobs: &Knobs) -> Bandwidth {
    let wanted = match layer {
        Layer::Quota => knobs.quota.map_or_else(Bandwidth::unlimited, |quota| {
            // Burst means nothing without a quota, and v1 would refuse it.
            Bandwidth::of(quota, knobs.burst.filter(|_| quota.quota_ns.is_some()))
        }),
        Layer::Cap => knobs.cap.map_or_else(Bandwidth::unlimited, cap_bandwidth),
        Layer::Headroom => least_bandwidth(),
    };
    in_whole_usec(wanted)
}

/// The lowest rate that the kernel takes.
pub(crate) fn least_bandwidth() -> Bandwidth {
    Bandwidth {
        quota: Quota {
            quota_ns: Some(KERNEL_QUOTA_MIN_NS),
            period_ns: KERNEL_PERIOD_MAX_NS,
        },
        burst_ns: 0,
    }
}

/// What is left of a bandwidth in the kernel's files, which count in
/// microseconds.
pub(crate) fn in_whole_usec(bandwidth: Bandwidth) -> Bandwidth {
    let cut = |ns: u64| ns / NSEC_PER_USEC * NSEC_PER_USEC;
    Bandwidth {
        quota: Quota {
            quota_ns: bandwidth.quota.quota_ns.map(cut),
            period_ns: cut(bandwidth.quota.period_ns),
        },
        burst_ns: cut(bandwidth.burst_ns),
    }
}

/// A cap as a quota over a short period, or over as many whole milliseconds
/// as it takes for the quota to be one that the kernel accepts. In whole
/// milliseconds a cap in per mille is a quota in whole microseconds: nothing
/// is rounded. The burst is the core's depth: what a task did not use for a
/// moment is not lost to it.
pub(crate) fn cap_bandwidth(cap: Cap) -> Bandwidth {
    let permille = u64::from(cap.permille.max(1));
    let period_ms = match permille {
        WIDE_CAP_PERMILLE.. => WIDE_CAP_PERIOD_MS,
        _ => CAP_PERIOD_MS.max(1000_u64.div_ceil(permille)),
    };
    let quota = Quota {
        quota_ns: Some(period_ms * permille * NSEC_PER_USEC),
        period_ns: period_ms * NSEC_PER_MSEC,
    };
    Bandwidth {
        quota,
        burst_ns: DEPTH_DEFAULT_NS,
    }
}

/// Cuts a child's bandwidth to its parent's rate, where v1 would refuse more.
pub(crate) fn fit_below(parent: &Bandwidth, child: Bandwidth, version: Version) -> Bandwidth {
    let (Version::V1, Some(parent_ns), Some(child_ns)) =
        (version, parent.quota.quota_ns, child.quota.quota_ns)
    else {
        return child;
    };
    let most = u128::from(parent_ns) * u128::from(child.quota.period_ns)
        / u128::from(parent.quota.period_ns.max(1));
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let quota_ns = Some(child_ns.min(most));
    in_whole_usec(Bandwidth {
        quota: Quota {
            quota_ns,
            ..child.quota
        },
        ..child
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(json: &str) -> Knobs {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn caps_become_quotas_that_the_kernel_takes() {
        for (cap, quota_ns, period_ns) in [
            ("20%", 2_000_000, 10_000_000),
            ("150%", 30_000_000, 20_000_000),
            ("10%", 1_000_000, 10_000_000),
            ("9%", 1_080_000, 12_000_000),
            ("0.1%", 1_000_000, 1_000_000_000),
        ] {
            let bandwidth = cap_bandwidth(cap.parse().unwrap());
            assert_eq!(
                bandwidth.quota,
                Quota {
                    quota_ns: Some(quota_ns),
                    period_ns
                },
                "{cap}"
            );
            assert!(bandwidth.check().is_ok());
        }
    }

    #[test]
    fn the_wider_limit_is_outside_and_headroom_inside() {
        let narrow_cap = knobs(r#"{"quota": "2cpus", "cap": "50%", "headroom": "30%"}"#);
        assert_eq!(
            wanted_layers(&narrow_cap),
            [Layer::Quota, Layer::Cap, Layer::Headroom]
        );
        let wide_cap = knobs(r#"{"quota": "0.5cpus", "cap": "150%"}"#);
        assert_eq!(wanted_layers(&wide_cap), [Layer::Cap, Layer::Quota]);
        let per_task = knobs(r#"{"cap": "50%", "per-task": true}"#);
        assert_eq!(wanted_layers(&per_task), []);
    }

    #[test]
    fn limits_are_what_the_kernels_files_can_hold() {
        let third = knobs(r#"{"quota": "0.333333cpus"}"#);
        let bandwidth = layer_bandwidth(Layer::Quota, &third);
        assert_eq!(bandwidth.quota.quota_ns, Some(33_333_000));
    }

    #[test]
    fn a_rebuilt_group_has_a_name_that_no_other_can_have() {
        assert!(crate::policy_set::check_name("a+1").is_err());
    }

    #[test]
    fn v1_children_stay_within_their_parents_rate() {
        let parent = cap_bandwidth("10%".parse().unwrap());
        let child = Bandwidth::of("200ms/1s".parse().unwrap(), None);
        let fitted = fit_below(&parent, child, Version::V1);
        assert_eq!(fitted.quota.quota_ns, Some(100_000_000));
        assert_eq!(fit_below(&parent, child, Version::V2), child);
    }
}
