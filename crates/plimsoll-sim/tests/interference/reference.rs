//! Comparison with the port of the source's pseudo-code.

use plimsoll_sim::interference::{BurstBound, Distribution, Machine};

use crate::fixture::{Draws, equal};
use crate::plain::Plain;

fn distributions() -> [Distribution; 4] {
    [
        Distribution::Exponential,
        Distribution::Poisson,
        Distribution::Pareto { alpha: 4.0 },
        Distribution::Lognormal { sigma: 1.0 },
    ]
}

fn quotas(burst: BurstBound) -> f64 {
    match burst {
        BurstBound::Quotas(quotas) => quotas,
        BurstBound::Unlimited => f64::INFINITY,
    }
}

#[test]
fn same_draws_meet_the_same_deadlines_as_the_pseudo_code() {
    const PERIODS: usize = 20_000;
    let bursts = [0.0, 0.5, 1.0, 2.0].map(BurstBound::Quotas);
    for burst in bursts.into_iter().chain([BurstBound::Unlimited]) {
        for (distribution, groups) in distributions().into_iter().zip([5, 20, 3, 7]) {
            let row = equal(distribution, groups, 0.9, &[burst]);
            let mut machine = Machine::new(&row.groups, &row.columns[0]).unwrap();
            let mut plain = Plain::new(groups, machine.quota_ns()[0], quotas(burst));
            let mut draws = Draws::new(&row, machine.lanes(), 11);
            let (capacity_ns, mut missed) = (machine.capacity_ns(), 0);
            for period in 0..PERIODS {
                let demand_ns = draws.next();
                let found = machine.period(demand_ns);
                let expected = plain.period(demand_ns);
                let place = format!("{}, {burst:?}, period {period}", row.distribution.name());
                assert_eq!(found.is_met, expected, "{place}");
                // A deadline is missed only where the machine is used to the end of the period.
                assert!((0.0..=capacity_ns).contains(&found.used_ns), "{place}");
                assert!(found.is_met || found.used_ns == capacity_ns, "{place}");
                missed += usize::from(!found.is_met);
            }
            let may_miss = burst != BurstBound::Quotas(0.0);
            assert_eq!(missed > PERIODS / 200, may_miss, "{missed}");
        }
    }
}
