//! Checks of a cgroup's place in the tree: whether it can get the cpu controller without harm to
//! those around it, and how much of a quota fits.

use plimsoll_cgroupfs::{CgroupError, CgroupKind, CpuGroup, CpuMax, Version, name};

use super::wanted::{Limit, Wanted};
use crate::error::{EngineError, Result};
use crate::journal::{Entry, KeptJournal};
use crate::knobs::Knobs;
use crate::knobs::units::show_percent;

/// Checks, without a change, that a foreign cgroup can have these knobs in its place.
///
/// # Errors
/// When they would harm others, or the kernel would refuse them.
pub fn check_place(group: &CpuGroup, knobs: &Knobs) -> Result<()> {
    for parent in without_controller(group)? {
        check_enabling(&parent)?;
    }
    match misfit(group, knobs) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Gives a v2 cgroup the cpu controller, if it has none, from the nearest ancestor that has.
///
/// # Errors
/// When the cgroup is gone, the kernel refuses, or another cgroup would be harmed.
pub(super) fn give_controller(group: &CpuGroup, journal: &mut KeptJournal) -> Result<()> {
    let mut parents = without_controller(group)?.into_iter();
    parents.try_for_each(|parent| enable_recorded(&parent, journal))
}

/// Lists the v2 cgroups that have to give the controller to their children, the highest first.
fn without_controller(group: &CpuGroup) -> Result<Vec<CpuGroup>> {
    if group.has_weight() {
        return Ok(Vec::new());
    }
    // Fails if the cgroup is gone.
    group.check_exists()?;
    let mut missing = Vec::new();
    let mut above = group.parent();
    while let Some(parent) = above {
        if parent.children_enabled()? {
            break;
        }
        above = parent.parent();
        missing.push(parent);
    }
    missing.reverse();
    Ok(missing)
}

/// Checks that the controller can be enabled for the children of a v2 cgroup.
///
/// Where a cgroup has processes itself, the kernel either refuses, or makes it the root of a
/// threaded subtree (`cgroup_vet_subtree_control_enable` in kernel/cgroup/cgroup.c). From then on
/// its children take no processes, and their owners cannot use them.
///
/// # Errors
/// When the cgroup has processes, or is inside of a threaded subtree that takes none.
pub(super) fn check_enabling(parent: &CpuGroup) -> Result<()> {
    if parent.children_enabled()? {
        return Ok(());
    }
    let first = match parent.kind()? {
        Some(CgroupKind::Domain) => parent.processes()?.first().copied(),
        Some(CgroupKind::Invalid) => return Err(harmed(parent, None)),
        // The root may have processes; a threaded subtree is one already.
        None | Some(CgroupKind::ThreadRoot | CgroupKind::Threaded) => None,
    };
    match first {
        Some(pid) => Err(harmed(parent, Some(pid))),
        None => Ok(()),
    }
}

/// Checks that the parent of own groups has no process itself: v2 lets one in while all cgroups in
/// it are empty, and these take none from then on.
///
/// # Errors
/// Names a process that it has.
pub(super) fn check_empty(parent: &CpuGroup) -> Result<()> {
    let is_v2 = parent.hierarchy().version() == Version::V2;
    match parent.processes()?.first().filter(|_| is_v2) {
        Some(pid) => Err(harmed(parent, Some(*pid))),
        None => Ok(()),
    }
}

/// Enables the controller for the children of a v2 cgroup that was there before, and records that
/// first.
///
/// # Errors
/// When the cgroup is gone, the kernel refuses, or another cgroup would be harmed.
pub(super) fn enable_recorded(parent: &CpuGroup, journal: &mut KeptJournal) -> Result<()> {
    check_enabling(parent)?;
    if parent.children_enabled()? {
        return Ok(());
    }
    let path = parent.subtree_control();
    let inode = parent.clone().bound()?.inode();
    let gone = Entry::gone(&path);
    journal.record(&[Entry::Enable { path, inode }])?;
    let enabled = enable_for_children(parent);
    let are_enabled = parent.children_enabled();
    if enabled.is_err() && are_enabled.is_ok_and(|are_enabled| !are_enabled) {
        // Another program may enable it later.
        journal.note([gone]);
    }
    enabled
}

/// Enables the controller for the children of a v2 cgroup, after [`check_enabling`].
///
/// # Errors
/// When the kernel refuses, or a process has come since the check.
pub(super) fn enable_for_children(parent: &CpuGroup) -> Result<()> {
    let before = parent.kind()?;
    if !parent.enable_children()? {
        return Ok(());
    }
    if before != Some(CgroupKind::Domain) || parent.kind()? != Some(CgroupKind::ThreadRoot) {
        return Ok(());
    }
    match parent.processes()?.first() {
        Some(pid) => {
            parent.disable_children()?;
            Err(harmed(parent, Some(*pid)))
        }
        // A dying process, which no file lists, makes it one until it has left.
        None => Ok(()),
    }
}

fn harmed(parent: &CpuGroup, pid: Option<i32>) -> EngineError {
    let path = parent.cpu_file("");
    match pid {
        Some(pid) => CgroupError::HasProcesses { path, pid },
        None => CgroupError::InThreadedSubtree { path },
    }
    .into()
}

/// Explains why a v2 cgroup takes no processes any more, so that its knobs hold for none: where the
/// cgroups in a cgroup have the controller and are empty, the kernel lets a process into that one,
/// and makes it the root of a threaded subtree. `None`: the cgroup takes some.
pub(super) fn unusable(group: &CpuGroup) -> Option<String> {
    let is = |group: &CpuGroup, kind| group.kind().is_ok_and(|found| found == Some(kind));
    if group.hierarchy().version() == Version::V1 || !is(group, CgroupKind::Invalid) {
        return None;
    }
    let mut above = std::iter::successors(group.parent(), CpuGroup::parent);
    let root = above.find(|above| is(above, CgroupKind::ThreadRoot));
    let first = |root: &CpuGroup| root.processes().ok()?.first().copied();
    let reason = root.and_then(|root| {
        let (shown, pid) = (name::shown(root.path()), first(&root)?);
        Some(format!(
            ", because {shown} holds process {pid} itself; move the processes of {shown} into a \
             cgroup of their own in it"
        ))
    });
    Some(format!(
        "is not in force: the cgroup takes no processes (`domain invalid` in its cgroup.type){}",
        reason.unwrap_or_default()
    ))
}

/// Turns the kernel's refusal of knobs into an error that, on v1, names the cgroup in the way, if
/// there is one.
pub(super) fn explained(group: &CpuGroup, knobs: &Knobs, error: EngineError) -> EngineError {
    match error.os_error() {
        Some(libc::EINVAL) => misfit(group, knobs).unwrap_or(error),
        _ => error,
    }
}

/// Explains why v1 refuses a quota: the kernel takes no rate above that of a cgroup above, and none
/// below that of a cgroup inside (`tg_cfs_schedulable_down` in kernel/sched/core.c). `None`: the
/// quota fits, or there is none.
fn misfit(group: &CpuGroup, knobs: &Knobs) -> Option<EngineError> {
    if group.hierarchy().version() != Version::V1 {
        return None;
    }
    let Limit::Bandwidth { max: wanted, .. } = Wanted::on_one_cgroup(knobs, false).limit else {
        return None;
    };
    let (knob, value) = match (knobs.quota, knobs.cap) {
        (Some(quota), _) => ("quota", quota.to_string()),
        (None, Some(cap)) => ("cap", cap.to_string()),
        (None, None) => return None,
    };
    let above = std::iter::successors(group.parent(), CpuGroup::parent);
    let above = above.filter(|above| !above.path().as_os_str().is_empty());
    let narrower = above.map(limited).find(|(_, has)| is_above(&wanted, has));
    let wider = || {
        inside(group)
            .into_iter()
            .find(|(_, has)| is_above(has, &wanted))
    };
    let (other, has) = narrower.or_else(wider)?;
    let reason = format!(
        "on cgroup v1 a cgroup may have no more than the one around it: {} has {}",
        name::shown(other.path()),
        show_percent(has.rate_ppm()? / 1000 * 1000)
    );
    Some(EngineError::NotEnforceable {
        knob,
        value,
        reason,
    })
}

/// Returns a cgroup with its limit; unlimited if it cannot be read.
fn limited(group: CpuGroup) -> (CpuGroup, CpuMax) {
    let max = group.read_cpu_max();
    (group, max.unwrap_or_else(|_| CpuMax::unlimited()))
}

/// Lists the outermost cgroups with limits inside of a cgroup.
fn inside(group: &CpuGroup) -> Vec<(CpuGroup, CpuMax)> {
    let children = group.children().unwrap_or_default().into_iter();
    let limits = children
        .map(limited)
        .map(|(child, has)| match has.quota_usec {
            Some(_) => vec![(child, has)],
            None => inside(&child),
        });
    limits.flatten().collect()
}

/// Returns whether one rate is above another; with an unlimited one on either side it is not.
fn is_above(one: &CpuMax, other: &CpuMax) -> bool {
    let (Some(one_usec), Some(other_usec)) = (one.quota_usec, other.quota_usec) else {
        return false;
    };
    let product = |quota_usec, period_usec| u128::from(quota_usec) * u128::from(period_usec);
    product(one_usec, other.period_usec) > product(other_usec, one.period_usec)
}
