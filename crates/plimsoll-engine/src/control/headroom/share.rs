//! Sharing a grant among side groups.

use std::cmp::Reverse;

use plimsoll_policy::batch::{GROUP_WEIGHT_MAX, GROUP_WEIGHT_MIN};
use plimsoll_policy::headroom::{self as core, Side};

use crate::cgroup::layout::KERNEL_QUOTA_MIN_NS;

/// Shares a grant among any number of sides, as the core does among up to
/// [`core::SIDES_MAX`]: by weight, and what one does not want goes to the
/// others. The shares together are no more than the grant.
pub(super) fn split(claims: &mut [Side], grant_ns: u64) {
    if core::split(claims, grant_ns).is_ok() {
        return;
    }
    let weight = |claim: &Side| u128::from(claim.weight.clamp(GROUP_WEIGHT_MIN, GROUP_WEIGHT_MAX));
    // Whoever wants the least for its weight is satisfied first; from the first
    // that is not, all get their part of what is left.
    let mut order: Vec<&mut Side> = claims.iter_mut().collect();
    order.sort_by(|a, b| {
        let cross = |a: &Side, b: &Side| u128::from(a.want_ns) * weight(b);
        cross(a, b).cmp(&cross(b, a))
    });
    let mut left_ns = u128::from(grant_ns.min(plimsoll_policy::RUNTIME_MAX_NS));
    let mut weights: u128 = order.iter().map(|claim| weight(claim)).sum();
    for claim in order {
        let part_ns = left_ns * weight(claim) / weights;
        weights -= weight(claim);
        // No more than what is left of a grant in 64 bits.
        claim.share_ns = u64::try_from(part_ns).unwrap_or(0).min(claim.want_ns);
        left_ns -= u128::from(claim.share_ns);
    }
}

/// Lets each side pay from its share for what it overran before: the grant is
/// net of what all overran. Where one cannot pay all of it, the others have
/// too much, and are cut to the grant.
pub(super) fn pay_debts(mut claims: Vec<(&mut Side, &mut u64)>, grant_ns: u64) {
    for (claim, debt_ns) in &mut claims {
        let paid_ns = claim.share_ns.min(**debt_ns);
        **debt_ns -= paid_ns;
        claim.share_ns -= paid_ns;
    }
    let total_ns: u64 = claims.iter().map(|(claim, _)| claim.share_ns).sum();
    for (claim, _) in claims.iter_mut().filter(|_| total_ns > grant_ns) {
        let share_ns = u128::from(claim.share_ns) * u128::from(grant_ns) / u128::from(total_ns);
        claim.share_ns = u64::try_from(share_ns).unwrap_or(grant_ns);
    }
}

/// The kernel takes no quota under 1 ms. Where several sides share less than
/// that each, none of them could ever run, not even for the tolerance: what
/// they have together goes, in pieces that the kernel takes, to those that
/// have gone without the most so far.
pub(super) fn pool_small_shares(mut sides: Vec<(&mut Side, &mut u64)>) {
    // Only those that have used up what they were given wait for more.
    sides.retain(|(claim, _)| {
        claim.want_ns == core::WANT_ANYTHING_NS && claim.share_ns < KERNEL_QUOTA_MIN_NS
    });
    if sides.len() < 2 {
        return;
    }
    let pool_ns: u64 = sides.iter().map(|(claim, _)| claim.share_ns).sum();
    for (claim, waited_ns) in &mut sides {
        **waited_ns = waited_ns.saturating_add(claim.share_ns);
        claim.share_ns = 0;
    }
    // Fewer pieces than sides, for each had less than a piece.
    let nr_pieces = usize::try_from(pool_ns / KERNEL_QUOTA_MIN_NS).unwrap_or(0);
    if nr_pieces < sides.len() {
        sides.select_nth_unstable_by_key(nr_pieces, |(_, waited_ns)| Reverse(**waited_ns));
    }
    for (claim, waited_ns) in sides.into_iter().take(nr_pieces) {
        claim.share_ns = KERNEL_QUOTA_MIN_NS;
        *waited_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_reach_everybody_in_turn() {
        let hungry = |weight| Side {
            want_ns: core::WANT_ANYTHING_NS,
            share_ns: 0,
            weight,
        };
        let mut sides = [hungry(100), hungry(100), hungry(200)];
        let mut waited_ns = [0; 3];
        let mut pieces = [0; 3];
        for _ in 0..400 {
            core::split(&mut sides, KERNEL_QUOTA_MIN_NS).unwrap();
            pool_small_shares(sides.iter_mut().zip(&mut waited_ns).collect());
            let given: u64 = sides.iter().map(|side| side.share_ns).sum();
            assert!(given <= KERNEL_QUOTA_MIN_NS);
            for (count, side) in pieces.iter_mut().zip(&sides) {
                *count += side.share_ns / KERNEL_QUOTA_MIN_NS;
            }
        }
        assert_eq!(pieces.iter().sum::<u64>(), 400);
        for (count, fair) in pieces.into_iter().zip([100, 100, 200]) {
            assert!(count.abs_diff(fair) <= 40, "{pieces:?}");
        }
    }
}
