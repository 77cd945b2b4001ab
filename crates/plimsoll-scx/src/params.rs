//! Conversion of knobs to the parameters of a group in the scheduler.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use plimsoll_cgroupfs::CgroupError;
use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_policy::{bandwidth, batch};

use crate::bpf_intf::{
    plim_bandwidth_params, plim_ratecap_params, plimsoll_group_flags_PLIMSOLL_BATCH as BATCH,
    plimsoll_group_flags_PLIMSOLL_CAP as CAP, plimsoll_group_flags_PLIMSOLL_CPU_LIMIT as CPU_LIMIT,
    plimsoll_group_flags_PLIMSOLL_PER_TASK as PER_TASK,
    plimsoll_group_flags_PLIMSOLL_QUOTA as QUOTA,
    plimsoll_group_flags_PLIMSOLL_QUOTA_IN_FILE as QUOTA_IN_FILE,
    plimsoll_group_flags_PLIMSOLL_SOFT_CAP as SOFT_CAP, plimsoll_group_flags_PLIMSOLL_USED as USED,
    plimsoll_limits_PLIMSOLL_SLOT_NONE as SLOT_NONE, plimsoll_params,
};

/// No quota or limit (the core's `PLIM_UNLIMITED`).
const UNLIMITED: u64 = u64::MAX;
const PPM: u32 = 1_000_000;

/// The kernel's id of a cgroup: the inode of its folder.
pub(crate) fn cgroup_id(folder: &Path) -> Result<u64, CgroupError> {
    let folder_of =
        fs::metadata(folder).map_err(|source| CgroupError::file("find", folder, source))?;
    Ok(folder_of.ino())
}

/// Converts knobs. The scheduler itself finds the slot of the group around.
pub(crate) fn params_of(knobs: &Knobs, is_foreign: bool, cgroup_id: u64) -> plimsoll_params {
    plimsoll_params {
        cgroup_id,
        flags: flags_of(knobs, is_foreign),
        parent: SLOT_NONE,
        weight: knobs.weight.map_or(0, |weight| weight.weight),
        cpu_limit_ppm: knobs.cpu_limit.map_or(PPM, |limit| limit.ppm),
        bandwidth: bandwidth_of(knobs),
        cap: cap_of(knobs),
    }
}

/// The parameters of a cgroup that is to have no group.
pub(crate) fn none(cgroup_id: u64) -> plimsoll_params {
    let mut params = params_of(&Knobs::default(), false, cgroup_id);
    params.flags = 0;
    params
}

fn flags_of(knobs: &Knobs, is_foreign: bool) -> u32 {
    let is_batch = knobs.class == Some(Class::Batch);
    let has_quota = knobs.quota.is_some_and(|quota| quota.quota_ns.is_some());
    let flags = [
        (true, USED),
        (is_batch, BATCH),
        (has_quota, QUOTA),
        (has_quota && !is_foreign, QUOTA_IN_FILE),
        // With per-task caps, the tree as a whole has none.
        (knobs.cap.is_some() && !knobs.per_task, CAP),
        (knobs.soft_cap.is_some(), SOFT_CAP),
        (knobs.per_task, PER_TASK),
        (knobs.cpu_limit.is_some(), CPU_LIMIT),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(0, |all, (_, flag)| all | flag)
}

fn bandwidth_of(knobs: &Knobs) -> plim_bandwidth_params {
    let quota = knobs.quota;
    let quota_ns = quota.and_then(|quota| quota.quota_ns);
    plim_bandwidth_params {
        period_ns: quota.map_or(bandwidth::PERIOD_DEFAULT_NS, |quota| quota.period_ns),
        quota_ns: quota_ns.unwrap_or(UNLIMITED),
        burst_ns: match (quota_ns, knobs.burst) {
            (Some(_), Some(burst)) => burst.burst_ns,
            _ => 0,
        },
        slice_ns: bandwidth::SLICE_DEFAULT_NS,
    }
}

/// Time that a capped task may catch up on: the slice of another batch task for which it waited.
/// With less, the time lost by waiting is never made up, and the task gets less than its cap
/// although the CPU had time left.
const CAP_DEPTH_NS: u64 = batch::SLICE_DEFAULT_NS;

fn cap_of(knobs: &Knobs) -> plim_ratecap_params {
    plim_ratecap_params {
        depth_ns: CAP_DEPTH_NS,
        half_life_ns: knobs.half_life.unwrap_or_default().half_life_ns,
        hard_permille: knobs.cap.map_or(0, |cap| cap.permille),
        soft_permille: knobs.soft_cap.map_or(0, |cap| cap.permille),
        soft: u8::from(knobs.soft_cap.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> plimsoll_params {
        params_of(&serde_json::from_str(json).unwrap(), true, 7)
    }

    #[test]
    fn only_batch_work_yields_to_headroom() {
        assert_eq!(params(r#"{"class": "batch"}"#).flags, USED | BATCH);
        assert_eq!(params(r#"{"headroom": "30%"}"#).flags, USED);
        assert_eq!(params("{}").flags, USED);
    }

    #[test]
    fn per_task_caps_are_no_tree_cap() {
        let tree = params(r#"{"cap": "25%", "soft-cap": "10%"}"#);
        assert_eq!(tree.flags, USED | CAP | SOFT_CAP);
        assert_eq!(tree.cap.half_life_ns, 1_000_000_000);
        let averaged = params(r#"{"soft-cap": "10%", "half-life": "50ms"}"#);
        assert_eq!(averaged.cap.half_life_ns, 50_000_000);
        let tasks = params(r#"{"cap": "25%", "soft-cap": "10%", "per-task": true}"#);
        assert_eq!(tasks.flags, USED | PER_TASK | SOFT_CAP);
        assert_eq!(
            (tasks.cap.hard_permille, tasks.cap.soft_permille),
            (250, 100)
        );
    }

    #[test]
    fn a_quota_of_max_is_none() {
        let none = params(r#"{"quota": "max/100ms", "burst": "10ms"}"#);
        assert_eq!(none.flags & QUOTA, 0);
        assert_eq!(
            (none.bandwidth.quota_ns, none.bandwidth.burst_ns),
            (UNLIMITED, 0)
        );
        let some = params(r#"{"quota": "10ms/50ms", "burst": "20ms"}"#);
        assert_eq!(some.flags & QUOTA, QUOTA);
        assert_eq!(some.bandwidth.period_ns, 50_000_000);
        assert_eq!(some.bandwidth.burst_ns, 20_000_000);
    }
}
