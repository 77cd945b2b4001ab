//! Property tests of shares of a grant, and what groups get in turn.

use plimsoll_policy::NSEC_PER_MSEC as MS;
use plimsoll_policy::sharing::{LEAST_NS, Sharer, WANT_ANYTHING_NS, share, split};
use proptest::prelude::*;

proptest! {
    #[test]
    fn shares_equal_those_of_rounds_over_all_groups(
        raw in prop::collection::vec((want(), 0..=10_001u32), 0..=150),
        grant_ns in prop_oneof![0..=100u64, 0..=200 * MS, Just(u64::MAX)],
    ) {
        let group = |&(want_ns, weight)| Sharer { want_ns, weight, share_ns: 7, ..Sharer::default() };
        let mut groups: Vec<Sharer> = raw.iter().map(group).collect();
        let expected = shares_by_rounds(&groups, grant_ns);
        split(&mut groups, grant_ns);
        let shares: Vec<u64> = groups.iter().map(|group| group.share_ns).collect();
        prop_assert_eq!(shares, expected);
    }
}

/// A want of a batch group: little, so that many are satisfied, or anything.
fn want() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..=20 * MS,
        1 => 0..=20u64,
        1 => Just(WANT_ANYTHING_NS),
    ]
}

/// Reference for `split`, slow and obvious: in each round, all that want no more than their part of
/// the rest get it; when there is none, all get their part.
fn shares_by_rounds(groups: &[Sharer], grant_ns: u64) -> Vec<u64> {
    let weight = |group: &Sharer| u128::from(group.weight.clamp(1, 10_000));
    let mut left_ns = u128::from(grant_ns.min(plimsoll_policy::RUNTIME_MAX_NS));
    let mut shares: Vec<Option<u64>> = vec![None; groups.len()];
    loop {
        let open = || (0..groups.len()).filter(|&index| shares[index].is_none());
        let sum: u128 = open().map(|index| weight(&groups[index])).sum();
        let part = |index: usize| left_ns * weight(&groups[index]) / sum;
        let satisfied: Vec<usize> = open()
            .filter(|&index| u128::from(groups[index].want_ns) <= part(index))
            .collect();
        if satisfied.is_empty() {
            let rest = |index: usize| shares[index].unwrap_or_else(|| part(index) as u64);
            return (0..groups.len()).map(rest).collect();
        }
        for index in satisfied {
            shares[index] = Some(groups[index].want_ns);
            left_ns -= u128::from(groups[index].want_ns);
        }
    }
}

fn hungry(weight: u32) -> Sharer {
    Sharer {
        want_ns: WANT_ANYTHING_NS,
        modest_ns: WANT_ANYTHING_NS,
        weight,
        ..Sharer::default()
    }
}

fn total_ns(groups: &[Sharer]) -> u64 {
    groups.iter().map(|group| group.share_ns).sum()
}

#[test]
fn a_waiting_group_gets_the_quota_that_many_others_hardly_use() {
    let light = Sharer {
        want_ns: LEAST_NS,
        modest_ns: 20_000,
        weight: 100,
        ..Sharer::default()
    };
    let mut groups = vec![light; 99];
    groups.push(hungry(100));
    share(&mut groups, 14 * MS);
    assert_eq!(groups[99].share_ns, 14 * MS - 99 * 20_000);
    // A share that is too little for the kernel all the same stays fair.
    share(&mut groups, 2 * MS);
    assert_eq!(groups[99].share_ns, 20_000);
}

#[test]
fn small_shares_reach_all_groups_in_turn() {
    // A weight with the pieces that a group of it gets.
    for (all, pieces, rounds) in [
        (
            vec![(100, 60..=140), (100, 60..=140), (200, 160..=240)],
            1,
            400,
        ),
        (vec![(100, 1..=3); 1_000], 20, 100),
    ] {
        let mut groups: Vec<Sharer> = all.iter().map(|(weight, _)| hungry(*weight)).collect();
        let mut got = vec![0; groups.len()];
        for _ in 0..rounds {
            share(&mut groups, pieces * LEAST_NS);
            assert!(total_ns(&groups) <= pieces * LEAST_NS);
            for (count, group) in got.iter_mut().zip(&groups) {
                *count += group.share_ns / LEAST_NS;
            }
        }
        assert_eq!(got.iter().sum::<u64>(), pieces * rounds);
        let mut fair = all.iter().zip(&got);
        assert!(
            fair.all(|((_, fair), count)| fair.contains(count)),
            "{got:?}"
        );
    }
}
