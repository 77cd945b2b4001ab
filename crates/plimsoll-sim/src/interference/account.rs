//! Account of the CPU time that one group has saved, kept by the policy core.

use plimsoll_policy::bandwidth::{
    BandwidthCpu, BandwidthParams, PERIOD_MIN_NS, Pool, SLICE_MIN_NS,
};
use plimsoll_policy::{OutOfRange, RUNTIME_MAX_NS};

/// Length of a period on the pool's clock. The core's rule does not depend on
/// it; the shortest leaves the clock the most room.
const PERIOD_NS: u64 = PERIOD_MIN_NS;

/// A group's pool, with deferred updates.
///
/// The core is called when its answer is needed, not in each period. The result
/// is exact because of two properties of its rule (at a boundary, the pool is
/// refilled by the quota, up to quota plus burst):
///
/// - Periods in which a group uses no more than its quota only fill the pool.
///   So the distribution of a total of unused quota over them makes no
///   difference: whole idle periods first and the rest in one is the same.
/// - If the savings at the last update covered the spending since, and what is
///   left of them plus the gains fits into the burst, then no order of gains
///   and spending reaches either bound of the pool.
///
/// Times are whole nanoseconds, in an `f64` where the machine's sums need them.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pool: Pool,
    cpu: BandwidthCpu,
    /// Clock of the pool. It does not advance over periods that change nothing.
    now_ns: u64,
    quota_ns: u64,
    burst_ns: u64,
}

/// Savings that are available to a group: a cache of its account, sufficient
/// for most periods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Savings {
    /// Savings at the last update, less the spending since.
    left_ns: f64,
    /// Savings at the last update.
    saved_ns: f64,
    burst_ns: f64,
}

impl Account {
    /// Creates the account of a group without savings. A burst of `None` is the
    /// maximum of the core.
    pub(super) fn new(quota_ns: u64, burst_ns: Option<u64>) -> Result<Self, OutOfRange> {
        let burst_ns = burst_ns.unwrap_or(RUNTIME_MAX_NS - quota_ns);
        let params = BandwidthParams {
            period_ns: PERIOD_NS,
            quota_ns: Some(quota_ns),
            burst_ns,
            slice_ns: SLICE_MIN_NS,
        };
        Ok(Self {
            pool: Pool::new(params, 0)?,
            cpu: BandwidthCpu::default(),
            now_ns: 0,
            quota_ns,
            burst_ns,
        })
    }

    /// Savings at a boundary, with all updates applied.
    pub(super) fn savings(&self) -> Savings {
        let saved_ns = self.saved_ns();
        Savings {
            left_ns: saved_ns,
            saved_ns,
            burst_ns: self.burst_ns as f64,
        }
    }

    /// Applies deferred updates to the core: `gained_ns` of the quota were not
    /// used, and the difference between the saved and the available time was
    /// spent.
    fn sync(&mut self, savings: &mut Savings, gained_ns: f64) {
        // Whole, not negative and below 2^53.
        let spent_ns = (savings.saved_ns - savings.left_ns) as i64 as u64;
        let gained_ns = gained_ns as i64 as u64;
        let (boundaries, rest_ns) = self.boundaries(gained_ns);
        let used_ns = spent_ns + self.quota_ns - rest_ns;
        // The CPU acquires a slice beyond what it ran and runs that as well.
        // Nothing stays with the CPU, so the pool holds all of the group's
        // runtime.
        let last_ns = used_ns.min(SLICE_MIN_NS);
        let may_run = self
            .pool
            .charge(&mut self.cpu, used_ns - last_ns, self.now_ns);
        debug_assert!(may_run, "only savings are spent");
        self.pool.book(&mut self.cpu, last_ns);
        self.now_ns += boundaries * PERIOD_NS;
        self.pool.refill(true, self.now_ns);
        savings.saved_ns = self.saved_ns();
        savings.left_ns = savings.saved_ns;
    }

    /// The number of periods in which `gained_ns` of the quota are left over,
    /// and the amount in the last of them.
    #[inline]
    fn boundaries(&self, gained_ns: u64) -> (u64, u64) {
        // The common case; a division would take longer than the rest of the
        // update.
        if gained_ns < self.quota_ns {
            return (1, gained_ns);
        }
        (gained_ns / self.quota_ns + 1, gained_ns % self.quota_ns)
    }

    /// Runtime of the pool beyond the quota, just after a boundary.
    #[inline]
    fn saved_ns(&self) -> f64 {
        // Runtime of the CPU is never negative, because it is never
        // overcharged.
        let left_ns = self.pool.runtime_ns() + self.cpu.runtime_ns().unsigned_abs();
        // With a demand that ends within a slice of the quota, the CPU may keep
        // less than a slice beyond the burst.
        let saved_ns = left_ns.saturating_sub(self.quota_ns);
        // Below 2^53. The conversion from a signed number is a single
        // instruction.
        saved_ns.min(self.burst_ns) as i64 as f64
    }
}

impl Savings {
    /// Spends up to `wanted_ns` beyond the quota, as far as the group may in
    /// this period, and returns the amount. `gained_ns` is the quota left
    /// unused since the last update, which resets it to 0.
    #[inline]
    pub(super) fn take(
        &mut self,
        account: &mut Account,
        wanted_ns: f64,
        gained_ns: &mut f64,
    ) -> f64 {
        let is_untold = (*gained_ns > 0.0) | (self.left_ns < self.saved_ns);
        let is_short = (wanted_ns > self.left_ns) & is_untold;
        // Combined without short-circuit, because neither condition can be
        // predicted.
        if is_short | (self.left_ns + *gained_ns > self.burst_ns) {
            account.sync(self, *gained_ns);
            *gained_ns = 0.0;
        }
        let taken_ns = lesser(wanted_ns, self.left_ns);
        self.left_ns -= taken_ns;
        taken_ns
    }

    /// Spends `used_ns` of an amount that has been returned. A negative value
    /// returns time that was taken in this period and not used.
    #[inline]
    pub(super) fn spend(&mut self, used_ns: f64) {
        self.left_ns -= used_ns;
    }
}

/// Minimum of two numbers, without the check for NaN of [`f64::min`].
#[inline]
pub(super) fn lesser(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA_NS: u64 = 1 << 34;

    #[test]
    fn an_unlimited_burst_takes_hundreds_of_quotas() {
        let mut account = Account::new(QUOTA_NS, None).unwrap();
        let mut gained_ns = 900.0 * QUOTA_NS as f64;
        let all = gained_ns;
        assert_eq!(
            account.savings().take(&mut account, 1e15, &mut gained_ns),
            all
        );
    }
}
