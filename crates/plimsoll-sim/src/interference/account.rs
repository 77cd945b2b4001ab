//! What one group has saved up, asked of the policy core.

use plimsoll_policy::RUNTIME_MAX_NS;
use plimsoll_policy::bandwidth::{Cpu, PERIOD_MIN_NS, ParamError, Params, Pool, SLICE_MIN_NS};

/// The length of a period on the pool's clock. The core's rule does not depend
/// on it; the shortest leaves the clock the most room.
const PERIOD_NS: u64 = PERIOD_MIN_NS;

/// A group's pool, and what it has not been told yet.
///
/// The core is asked when its answer is needed, not in each period. That is
/// exact for two reasons, both properties of its rule (at a boundary, the pool
/// is filled by the quota, up to quota and burst):
///
/// - Periods in which a group uses no more than its quota only fill the pool.
///   So it makes no difference how a total of unused quota is spread over
///   them: whole idle periods first, the rest in one, is the same.
/// - As long as what was spent was there at the last settlement, and what is
///   left of it fits into the burst together with what was gained, no order of
///   the two touches either end of the pool.
///
/// Times are whole nanoseconds, in an `f64` where the machine's sums need them.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pool: Pool,
    cpu: Cpu,
    /// The pool's clock. It stands still over periods that change nothing.
    now_ns: u64,
    quota_ns: u64,
    burst_ns: u64,
}

/// What an account has in hand: all that most periods need to know of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hand {
    /// What was saved at the last settlement, less what was spent since.
    left_ns: f64,
    /// What was saved at the last settlement.
    saved_ns: f64,
    /// The most that can be saved.
    burst_ns: f64,
}

impl Account {
    /// A group that has saved nothing. A burst of `None` is all that the core
    /// can hold.
    pub(super) fn new(quota_ns: u64, burst_ns: Option<u64>) -> Result<Self, ParamError> {
        let burst_ns = burst_ns.unwrap_or(RUNTIME_MAX_NS - quota_ns);
        let params = Params {
            period_ns: PERIOD_NS,
            quota_ns: Some(quota_ns),
            burst_ns,
            slice_ns: SLICE_MIN_NS,
        };
        Ok(Self {
            pool: Pool::new(params, 0)?,
            cpu: Cpu::default(),
            now_ns: 0,
            quota_ns,
            burst_ns,
        })
    }

    /// What is in hand at a boundary, everything told.
    pub(super) fn hand(&self) -> Hand {
        let saved_ns = self.saved_ns();
        Hand {
            left_ns: saved_ns,
            saved_ns,
            burst_ns: self.burst_ns as f64,
        }
    }

    /// Tells the core what happened since it was last told: `gained_ns` of the
    /// quota was left, and what the hand lacks was spent.
    fn settle(&mut self, hand: &mut Hand, gained_ns: f64) {
        // Whole, not negative and below 2^53.
        let spent_ns = (hand.saved_ns - hand.left_ns) as i64 as u64;
        let gained_ns = gained_ns as i64 as u64;
        let (boundaries, rest_ns) = self.boundaries(gained_ns);
        let used_ns = spent_ns + self.quota_ns - rest_ns;
        // The CPU takes a slice beyond what it ran, and runs that as well:
        // nothing stays with it, and the pool says what the group has.
        let last_ns = used_ns.min(SLICE_MIN_NS);
        let may_run = self
            .pool
            .charge(&mut self.cpu, used_ns - last_ns, self.now_ns);
        debug_assert!(may_run, "what is spent was offered");
        self.pool.book(&mut self.cpu, last_ns);
        self.now_ns += boundaries * PERIOD_NS;
        self.pool.refill(true, self.now_ns);
        hand.saved_ns = self.saved_ns();
        hand.left_ns = hand.saved_ns;
    }

    /// In how many periods that much is left of the quota, and how much of it
    /// in the last.
    #[inline]
    fn boundaries(&self, gained_ns: u64) -> (u64, u64) {
        // Mostly; a division takes longer than the rest of the settlement.
        if gained_ns < self.quota_ns {
            return (1, gained_ns);
        }
        (gained_ns / self.quota_ns + 1, gained_ns % self.quota_ns)
    }

    /// What the pool holds beyond the quota, just behind a boundary.
    #[inline]
    fn saved_ns(&self) -> f64 {
        // What the CPU keeps is not negative: it was never charged too much.
        let left_ns = self.pool.runtime_ns() + self.cpu.runtime_ns().unsigned_abs();
        // With a demand that ends within a slice of the quota, a CPU may keep
        // less than that beyond the burst.
        let saved_ns = left_ns.saturating_sub(self.quota_ns);
        // Below 2^53. From a signed number it is a single instruction.
        saved_ns.min(self.burst_ns) as i64 as f64
    }
}

impl Hand {
    /// Spends as much of `wanted_ns` beyond its quota as the group may use in
    /// this period, and returns it. `gained_ns` is what it left of its quota in
    /// the periods before, since this last set it to 0.
    #[inline]
    pub(super) fn take(
        &mut self,
        account: &mut Account,
        wanted_ns: f64,
        gained_ns: &mut f64,
    ) -> f64 {
        let is_untold = (*gained_ns > 0.0) | (self.left_ns < self.saved_ns);
        let is_short = (wanted_ns > self.left_ns) & is_untold;
        // Without a branch for each: none of them can be predicted.
        if is_short | (self.left_ns + *gained_ns > self.burst_ns) {
            account.settle(self, *gained_ns);
            *gained_ns = 0.0;
        }
        let taken_ns = lesser(wanted_ns, self.left_ns);
        self.left_ns -= taken_ns;
        taken_ns
    }

    /// Spends `used_ns` of what has been given back. Negative: gives back what
    /// has been taken in this period and was not used.
    #[inline]
    pub(super) fn spend(&mut self, used_ns: f64) {
        self.left_ns -= used_ns;
    }
}

/// [`f64::min`] also looks for what is not a number.
#[inline]
pub(super) fn lesser(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUOTA_NS: u64 = 1 << 34;

    /// The core driven period by period, each charged and refilled by itself.
    struct Stepwise {
        pool: Pool,
        cpu: Cpu,
        now_ns: u64,
    }

    impl Stepwise {
        fn saved_ns(&self) -> u64 {
            let left_ns = self.pool.runtime_ns() as i64 + self.cpu.runtime_ns();
            left_ns as u64 - QUOTA_NS
        }

        fn period(&mut self, used_ns: u64) {
            let last_ns = used_ns.min(SLICE_MIN_NS);
            if used_ns > 0 {
                assert!(
                    self.pool
                        .charge(&mut self.cpu, used_ns - last_ns, self.now_ns)
                );
                self.pool.book(&mut self.cpu, last_ns);
            }
            self.now_ns += PERIOD_NS;
            assert_eq!(self.pool.refill(true, self.now_ns), 1);
        }
    }

    fn stepwise(burst_ns: u64) -> Stepwise {
        let params = Params {
            period_ns: PERIOD_NS,
            quota_ns: Some(QUOTA_NS),
            burst_ns,
            slice_ns: SLICE_MIN_NS,
        };
        Stepwise {
            pool: Pool::new(params, 0).unwrap(),
            cpu: Cpu::default(),
            now_ns: 0,
        }
    }

    proptest! {
        /// Demand in eighths of the quota, the burst too.
        #[test]
        fn asking_when_needed_is_what_asking_in_each_period_is(
            burst in 0u64..40,
            demands in prop::collection::vec(0u64..20, 1..300),
        ) {
            let eighth_ns = QUOTA_NS / 8;
            let burst_ns = burst * eighth_ns;
            let mut account = Account::new(QUOTA_NS, Some(burst_ns)).unwrap();
            let mut hand = account.hand();
            let mut gained_ns = 0.0;
            let mut plain = stepwise(burst_ns);
            for demand in demands {
                let need_ns = demand * eighth_ns;
                if need_ns <= QUOTA_NS {
                    gained_ns += (QUOTA_NS - need_ns) as f64;
                    plain.period(need_ns);
                } else {
                    let excess_ns = need_ns - QUOTA_NS;
                    let offered_ns = hand.take(&mut account, excess_ns as f64, &mut gained_ns);
                    let expected_ns = excess_ns.min(plain.saved_ns());
                    prop_assert_eq!(offered_ns, expected_ns as f64);
                            plain.period(QUOTA_NS + expected_ns);
                }
            }
        }
    }

    #[test]
    fn without_a_burst_nothing_is_offered() {
        let mut account = Account::new(QUOTA_NS, Some(0)).unwrap();
        let mut gained_ns = 5.0 * QUOTA_NS as f64;
        assert_eq!(account.hand().take(&mut account, 1.0, &mut gained_ns), 0.0);
    }

    #[test]
    fn an_unlimited_burst_takes_hundreds_of_quotas() {
        let mut account = Account::new(QUOTA_NS, None).unwrap();
        let mut gained_ns = 900.0 * QUOTA_NS as f64;
        let all = gained_ns;
        assert_eq!(account.hand().take(&mut account, 1e15, &mut gained_ns), all);
    }
}
