//! Sharing a grant of CPU time among batch groups.
//!
//! The core's functions take the groups in an order; this module sorts them by the core's own
//! comparisons.

use std::cmp::Ordering;

use crate::ffi::{self, plim_share};

/// A want that no grant satisfies.
pub const WANT_ANYTHING_NS: u64 = ffi::PLIM_UNLIMITED;
/// The least quota that the kernel accepts.
pub const LEAST_NS: u64 = ffi::PLIM_SHARE_LEAST_NS;

/// Batch group that shares a grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sharer {
    /// Maximum that the group can use; [`WANT_ANYTHING_NS`]: any amount.
    pub want_ns: u64,
    /// Maximum that it needs while others wait; no more than `want_ns`.
    pub modest_ns: u64,
    /// On the cgroup v2 scale, 1 to 10,000. Out of range counts as the nearest in range.
    pub weight: u32,
    /// Part of the grant.
    pub share_ns: u64,
    /// Overrun of earlier shares, which [`share`] deducts.
    pub debt_ns: u64,
    /// Sum of earlier shares that were too small to be given.
    pub waited_ns: u64,
}

type Comparison = unsafe extern "C" fn(*const plim_share, *const plim_share) -> i32;

/// Sorts groups by a comparison of the core.
fn sort(groups: &mut [plim_share], comparison: Comparison) {
    // SAFETY: reads the two structs; takes any numbers.
    let is_before = |a, b| unsafe { comparison(a, b) != 0 };
    groups.sort_by(|a, b| match (is_before(a, b), is_before(b, a)) {
        (true, _) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => Ordering::Equal,
    });
}

/// Returns the groups in the order of their wants.
fn by_want(groups: &[Sharer], want_ns: impl Fn(&Sharer) -> u64) -> Vec<plim_share> {
    let raw_of = |(index, group): (usize, &Sharer)| plim_share {
        want_ns: want_ns(group),
        share_ns: 0,
        debt_ns: group.debt_ns,
        waited_ns: group.waited_ns,
        weight: group.weight,
        // No memory holds more than a u32 counts.
        index: index as u32,
    };
    let mut raw: Vec<plim_share> = groups.iter().enumerate().map(raw_of).collect();
    sort(&mut raw, ffi::plim_share_before);
    raw
}

fn take(groups: &mut [Sharer], raw: &[plim_share]) {
    for raw in raw {
        let group = &mut groups[raw.index as usize];
        group.share_ns = raw.share_ns;
        group.debt_ns = raw.debt_ns;
        group.waited_ns = raw.waited_ns;
    }
}

/// Shares a grant among any number of batch groups by weight. Time that one does not want goes to
/// the others. A grant above [`RUNTIME_MAX_NS`](crate::RUNTIME_MAX_NS) counts as that.
pub fn split(groups: &mut [Sharer], grant_ns: u64) {
    let mut raw = by_want(groups, |group| group.want_ns);
    // SAFETY: the array has that many groups.
    unsafe { ffi::plim_share_split(raw.as_mut_ptr(), raw.len() as u32, grant_ns) };
    take(groups, &raw);
}

/// Shares a grant, which is net of all debts, as [`split`] does, and makes quotas of the shares that
/// the kernel accepts: debts are paid, modest wants count while a group waits, and shares below
/// [`LEAST_NS`] of several groups go to one after the other.
pub fn share(groups: &mut [Sharer], grant_ns: u64) {
    let debts_ns = groups
        .iter()
        .fold(0, |sum: u64, group| sum.saturating_add(group.debt_ns));
    let with_debts_ns = grant_ns.saturating_add(debts_ns);
    let mut raw = by_want(groups, |group| group.want_ns);
    let mut modest = by_want(groups, |group| group.modest_ns);
    let count = raw.len() as u32;
    // SAFETY: both arrays have that many groups.
    let are_modest = unsafe {
        ffi::plim_share_out(raw.as_mut_ptr(), modest.as_mut_ptr(), count, with_debts_ns) != 0
    };
    if are_modest {
        raw = modest;
    }
    // SAFETY: the array has that many groups.
    unsafe { ffi::plim_share_pay(raw.as_mut_ptr(), count, grant_ns) };
    // SAFETY: reads the struct.
    let waits = |group: &plim_share| unsafe { ffi::plim_share_waits(group) != 0 };
    let (mut waiting, rest): (Vec<_>, Vec<_>) = raw.into_iter().partition(waits);
    sort(&mut waiting, ffi::plim_share_waits_longer);
    // SAFETY: the array has that many groups.
    unsafe { ffi::plim_share_pool(waiting.as_mut_ptr(), waiting.len() as u32) };
    take(groups, &rest);
    take(groups, &waiting);
}
