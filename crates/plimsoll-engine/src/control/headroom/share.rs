//! Sharing a grant among batch groups.

use std::cmp::Reverse;

use plimsoll_policy::headroom::{self as core, split};

use crate::cgroup::bandwidth::KERNEL_QUOTA_MIN_NS;

/// Shares a grant like [`split`]. If a waiting group then gets less than the kernel accepts, and
/// wants limited to `modest_ns` (in the same order) change that, shares by those wants: many groups
/// that hold the smallest quota and hardly use it must not keep the grant from those that would use
/// it.
pub(super) fn share_out(claims: &mut [core::BatchGroup], modest_ns: &[u64], grant_ns: u64) {
    split(claims, grant_ns);
    let waits = |claim: &core::BatchGroup| {
        claim.want_ns == core::WANT_ANYTHING_NS && claim.share_ns < KERNEL_QUOTA_MIN_NS
    };
    if !claims.iter().any(waits) {
        return;
    }
    let modest = |(claim, want_ns): (&core::BatchGroup, &u64)| core::BatchGroup {
        want_ns: *want_ns,
        ..*claim
    };
    let mut modest: Vec<core::BatchGroup> = claims.iter().zip(modest_ns).map(modest).collect();
    split(&mut modest, grant_ns);
    let waiting = modest
        .iter()
        .filter(|claim| claim.want_ns == core::WANT_ANYTHING_NS);
    if waiting.map(|claim| claim.share_ns).sum::<u64>() >= KERNEL_QUOTA_MIN_NS {
        claims.copy_from_slice(&modest);
    }
}

/// Deducts from each share the group's earlier overrun: the grant is net of all overruns. If a
/// group cannot pay all of its overrun, the other shares are too large, and are cut to the grant.
pub(super) fn pay_debts(mut claims: Vec<(&mut core::BatchGroup, &mut u64)>, grant_ns: u64) {
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

/// Pools shares that are too small. The kernel accepts no quota under 1 ms. If several groups get
/// less than that each, none of them could ever run, not even for the tolerance. So the sum of
/// their shares goes, in pieces of 1 ms, to the groups that have waited for the most time.
pub(super) fn pool_small_shares(mut groups: Vec<(&mut core::BatchGroup, &mut u64)>) {
    // Only groups that have used up their quota wait for more.
    groups.retain(|(claim, _)| {
        claim.want_ns == core::WANT_ANYTHING_NS && claim.share_ns < KERNEL_QUOTA_MIN_NS
    });
    if groups.len() < 2 {
        return;
    }
    let pool_ns: u64 = groups.iter().map(|(claim, _)| claim.share_ns).sum();
    for (claim, waited_ns) in &mut groups {
        **waited_ns = waited_ns.saturating_add(claim.share_ns);
        claim.share_ns = 0;
    }
    // Fewer pieces than groups, for each had less than a piece.
    let nr_pieces = usize::try_from(pool_ns / KERNEL_QUOTA_MIN_NS).unwrap_or(0);
    if nr_pieces < groups.len() {
        groups.select_nth_unstable_by_key(nr_pieces, |(_, waited_ns)| Reverse(**waited_ns));
    }
    for (claim, waited_ns) in groups.into_iter().take(nr_pieces) {
        claim.share_ns = KERNEL_QUOTA_MIN_NS;
        *waited_ns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hungry(weight: u32) -> core::BatchGroup {
        core::BatchGroup {
            want_ns: core::WANT_ANYTHING_NS,
            share_ns: 0,
            weight,
        }
    }

    fn total_ns(claims: &[core::BatchGroup]) -> u64 {
        claims.iter().map(|claim| claim.share_ns).sum()
    }

    #[test]
    fn a_waiting_group_gets_the_quota_that_many_others_hardly_use() {
        let light = core::BatchGroup {
            want_ns: KERNEL_QUOTA_MIN_NS,
            share_ns: 0,
            weight: 100,
        };
        let mut claims = vec![light; 99];
        claims.push(hungry(100));
        let mut modest_ns = vec![20_000; 99];
        modest_ns.push(core::WANT_ANYTHING_NS);
        share_out(&mut claims, &modest_ns, 14_000_000);
        assert_eq!(claims[99].share_ns, 14_000_000 - 99 * 20_000);
        // A share that is too little for the kernel all the same stays fair.
        share_out(&mut claims, &modest_ns, 2_000_000);
        assert_eq!(claims[99].share_ns, 20_000);
    }

    #[test]
    fn an_overrun_is_paid_and_all_shares_stay_within_the_grant() {
        let grant_ns = 10_000_000;
        let mut debts_ns = vec![0; 100];
        debts_ns[0] = 1_000_000;
        debts_ns[1] = 50_000_000;
        let mut claims = vec![hungry(100); 100];
        split(&mut claims, grant_ns + debts_ns.iter().sum::<u64>());
        pay_debts(claims.iter_mut().zip(&mut debts_ns).collect(), grant_ns);
        assert!(total_ns(&claims) <= grant_ns);
        assert_eq!(claims[1].share_ns, 0);
        assert!(debts_ns[1] < 50_000_000);
        assert!(claims[2].share_ns >= grant_ns / 101);
    }

    #[test]
    fn small_shares_reach_all_groups_in_turn() {
        let mut groups = [hungry(100), hungry(100), hungry(200)];
        let mut waited_ns = [0; 3];
        let mut pieces = [0; 3];
        for _ in 0..400 {
            split(&mut groups, KERNEL_QUOTA_MIN_NS);
            pool_small_shares(groups.iter_mut().zip(&mut waited_ns).collect());
            let given: u64 = groups.iter().map(|group| group.share_ns).sum();
            assert!(given <= KERNEL_QUOTA_MIN_NS);
            for (count, group) in pieces.iter_mut().zip(&groups) {
                *count += group.share_ns / KERNEL_QUOTA_MIN_NS;
            }
        }
        assert_eq!(pieces.iter().sum::<u64>(), 400);
        for (count, fair) in pieces.into_iter().zip([100, 100, 200]) {
            assert!(count.abs_diff(fair) <= 40, "{pieces:?}");
        }
    }

    #[test]
    fn each_of_a_thousand_groups_gets_a_share_in_turn() {
        let mut waited_ns = vec![0; 1_000];
        let mut pieces = vec![0; 1_000];
        // 20 pieces a time.
        for _ in 0..100 {
            let mut claims = vec![hungry(100); 1_000];
            split(&mut claims, 20 * KERNEL_QUOTA_MIN_NS);
            pool_small_shares(claims.iter_mut().zip(&mut waited_ns).collect());
            assert!(total_ns(&claims) <= 20 * KERNEL_QUOTA_MIN_NS);
            for (count, claim) in pieces.iter_mut().zip(&claims) {
                *count += claim.share_ns / KERNEL_QUOTA_MIN_NS;
            }
        }
        assert!(pieces.iter().all(|count| (1..=3).contains(count)));
    }
}
