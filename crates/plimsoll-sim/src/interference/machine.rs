//! Simulation of one period of all groups: demand, quota, sharing, deadline.

use std::array::from_fn;

use plimsoll_policy::{OutOfRange, RUNTIME_MAX_NS};

use super::account::{Account, Savings, lesser};

pub const GROUPS_MAX: usize = 1_000;
/// The smallest quota, as a share of the machine.
pub const QUOTA_MIN: f64 = 0.001;
/// The largest finite burst, in quotas.
pub const BURST_MAX: f64 = 1_000.0;

/// Quota of the group with the largest quota. Leaves room for the largest burst
/// above it.
const LARGEST_QUOTA_NS: f64 = (RUNTIME_MAX_NS >> 10) as f64;
/// Quotas are multiples of this, so that tenths of them are whole.
const QUOTA_STEP_NS: f64 = 10.0;
/// Upper bound of the time a pool can gain; keeps sums below 2^53, where they
/// are exact.
const GAINED_MAX_NS: f64 = RUNTIME_MAX_NS as f64;
/// Groups are padded to a multiple of this many lanes; padding has no demand.
const LANES: usize = 4;
/// Tolerance within which shares that sum up to 1 are the whole machine.
const WHOLE: f64 = 1e-9;

/// Quota and mean demand of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupParams {
    /// Quota as a share of the machine, [`QUOTA_MIN`] to 1.
    pub quota: f64,
    /// Mean demand as a share of the quota, above 0 and below 1; `None` for the
    /// mean of the samples of an empirical distribution.
    pub mean: Option<f64>,
}

/// Bound on the unused quota that a group may save.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BurstBound {
    /// Number of quotas, 0 to [`BURST_MAX`].
    Quotas(f64),
    /// The maximum of the core: more than 1,000 quotas.
    Unlimited,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    pub is_met: bool,
    /// CPU time used, in the machine's nanoseconds.
    pub used_ns: f64,
}

/// Groups on one machine, simulated period by period.
///
/// The length of a period is chosen so that the largest quota is 2^34 ns. All
/// times are whole nanoseconds in `f64`s, so sums are exact and do not depend
/// on their order.
#[derive(Debug, Clone)]
pub struct Machine {
    groups: usize,
    quotas_ns: f64,
    /// Time of the machine that belongs to no group's quota.
    spare_ns: f64,
    quota_ns: Vec<f64>,
    backlog_ns: Vec<f64>,
    gained_ns: Vec<f64>,
    accounts: Vec<Account>,
    savings: Vec<Savings>,
    /// Groups that want more than their quota.
    over: Vec<usize>,
    /// Time beyond the quota that is granted to them, in the same order.
    offered_ns: Vec<f64>,
}

/// CPU time of the machine in a period.
fn machine_ns(groups: &[GroupParams]) -> f64 {
    let largest = groups.iter().map(|group| group.quota).fold(0.0, f64::max);
    LARGEST_QUOTA_NS / largest
}

/// Each group's quota in the machine's nanoseconds.
pub(super) fn quotas_ns(groups: &[GroupParams]) -> Vec<f64> {
    let machine_ns = machine_ns(groups);
    let whole =
        |group: &GroupParams| (group.quota * machine_ns / QUOTA_STEP_NS).floor() * QUOTA_STEP_NS;
    groups.iter().map(whole).collect()
}

impl Machine {
    /// Creates groups without savings and without pending work. `bursts`: one
    /// for each group.
    ///
    /// # Errors
    /// If the core refuses a group's quota and burst; never if all values are
    /// within the ranges that the fields document.
    pub fn new(groups: &[GroupParams], bursts: &[BurstBound]) -> Result<Self, OutOfRange> {
        let mut quota_ns = quotas_ns(groups);
        let account = |(quota_ns, burst): (&f64, &BurstBound)| {
            let burst_ns = match burst {
                BurstBound::Quotas(quotas) => Some((quotas * quota_ns).round() as u64),
                BurstBound::Unlimited => None,
            };
            Account::new(*quota_ns as u64, burst_ns)
        };
        let accounts = quota_ns.iter().zip(bursts).map(account);
        let accounts = accounts.collect::<Result<Vec<_>, _>>()?;
        let shares: f64 = groups.iter().map(|group| group.quota).sum();
        let spare = if 1.0 - shares < WHOLE {
            0.0
        } else {
            1.0 - shares
        };
        let lanes = groups.len().next_multiple_of(LANES);
        quota_ns.resize(lanes, 0.0);
        Ok(Self {
            groups: groups.len(),
            quotas_ns: quota_ns.iter().sum(),
            spare_ns: (spare * machine_ns(groups)).floor(),
            quota_ns,
            backlog_ns: vec![0.0; lanes],
            gained_ns: vec![0.0; lanes],
            savings: accounts.iter().map(Account::savings).collect(),
            accounts,
            over: vec![0; lanes],
            offered_ns: vec![0.0; lanes],
        })
    }

    /// CPU time of the machine in a period.
    #[must_use]
    pub fn capacity_ns(&self) -> f64 {
        self.spare_ns + self.quotas_ns
    }

    #[must_use]
    pub fn quota_ns(&self) -> &[f64] {
        &self.quota_ns[..self.groups]
    }

    /// Number of demands that make up one period: those of the groups, padded
    /// with zeros to whole lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.quota_ns.len()
    }

    /// Runs a period. `demand_ns` has the new demand of the groups in whole
    /// nanoseconds, [`lanes`](Self::lanes) of them.
    #[inline]
    pub fn period(&mut self, demand_ns: &[f64]) -> Period {
        let (idle_ns, over) = self.use_quotas(demand_ns);
        let quotas_used_ns = self.quotas_ns - idle_ns;
        if over == 0 {
            return Period {
                is_met: true,
                used_ns: quotas_used_ns,
            };
        }
        let free_ns = self.spare_ns + idle_ns;
        let offered_ns = self.grant_all(over);
        let is_met = offered_ns <= free_ns;
        if !is_met {
            self.take_back_all(over);
            self.share(over, free_ns);
        }
        Period {
            is_met,
            used_ns: quotas_used_ns + offered_ns.min(free_ns),
        }
    }

    /// Runs each group within its quota. Returns the unused time, and the
    /// number of groups that want more, which are listed in `over`.
    #[inline]
    fn use_quotas(&mut self, demand_ns: &[f64]) -> (f64, usize) {
        let mut idle_ns = [0.0; LANES];
        let mut over = 0;
        let quotas = self.quota_ns.as_chunks::<LANES>().0.iter();
        let backlogs = self.backlog_ns.as_chunks_mut::<LANES>().0;
        let gains = self.gained_ns.as_chunks_mut::<LANES>().0;
        let demands = demand_ns.as_chunks::<LANES>().0;
        let lanes = quotas.zip(backlogs).zip(gains).zip(demands);
        for (first, (((quota, backlog), gained), demand)) in (0..).step_by(LANES).zip(lanes) {
            let left: [f64; LANES] = from_fn(|lane| quota[lane] - (backlog[lane] + demand[lane]));
            let idle = left.map(|left| if left > 0.0 { left } else { 0.0 });
            *backlog = from_fn(|lane| idle[lane] - left[lane]);
            *gained = from_fn(|lane| lesser(gained[lane] + idle[lane], GAINED_MAX_NS));
            idle_ns = from_fn(|lane| idle_ns[lane] + idle[lane]);
            // Branch-free, because it cannot be predicted which groups want
            // more.
            for (lane, left) in left.iter().enumerate() {
                self.over[over] = first + lane;
                over += usize::from(left.is_sign_negative());
            }
        }
        (idle_ns.iter().sum(), over)
    }

    /// Grants the listed groups all that they want and may have, on the
    /// assumption that there is enough, which is the common case. Returns the
    /// sum.
    #[inline]
    fn grant_all(&mut self, over: usize) -> f64 {
        let mut sum_ns = 0.0;
        for (group, offered_ns) in self.over[..over].iter().zip(&mut self.offered_ns) {
            let account = &mut self.accounts[*group];
            let (backlog_ns, gained_ns) =
                (&mut self.backlog_ns[*group], &mut self.gained_ns[*group]);
            *offered_ns = self.savings[*group].take(account, *backlog_ns, gained_ns);
            *backlog_ns -= *offered_ns;
            sum_ns += *offered_ns;
        }
        sum_ns
    }

    /// Undoes [`grant_all`](Self::grant_all). Sums of whole numbers are exact.
    fn take_back_all(&mut self, over: usize) {
        for index in 0..over {
            self.grant(self.over[index], -self.offered_ns[index]);
        }
    }

    /// Shares `free_ns`, which does not suffice, in proportion to the quotas.
    /// Time that a group does not want goes to the others.
    fn share(&mut self, over: usize, mut free_ns: f64) {
        let mut left = over;
        loop {
            let waiting = self.over[..left].iter();
            let per_quota = free_ns / waiting.map(|group| self.quota_ns[*group]).sum::<f64>();
            let before = left;
            let mut index = 0;
            while index < left {
                let group = self.over[index];
                let wanted_ns = self.offered_ns[index];
                if wanted_ns > per_quota * self.quota_ns[group] {
                    index += 1;
                    continue;
                }
                self.grant(group, wanted_ns);
                free_ns -= wanted_ns;
                left -= 1;
                self.over.swap(index, left);
                self.offered_ns.swap(index, left);
            }
            // No group was satisfied: together they want more than there is.
            if left == before {
                return self.share_evenly(left, per_quota, free_ns);
            }
        }
    }

    /// Shares among groups that each want more than their share. The rounding
    /// remainder is distributed too, so that no time is lost.
    fn share_evenly(&mut self, left: usize, per_quota: f64, mut free_ns: f64) {
        for index in 0..left {
            let group = self.over[index];
            // A cast rounds down, because without SSE 4.1 `floor` is a function
            // call.
            let share_ns = (per_quota * self.quota_ns[group]) as i64 as f64;
            let granted_ns = lesser(share_ns, free_ns);
            self.grant(group, granted_ns);
            self.offered_ns[index] -= granted_ns;
            free_ns -= granted_ns;
        }
        for index in 0..left {
            let granted_ns = self.offered_ns[index].min(free_ns);
            self.grant(self.over[index], granted_ns);
            free_ns -= granted_ns;
        }
    }

    fn grant(&mut self, group: usize, granted_ns: f64) {
        self.backlog_ns[group] -= granted_ns;
        self.savings[group].spend(granted_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_time_is_shared_in_proportion_to_quotas() {
        let groups = [0.1, 0.2, 0.3].map(|quota| GroupParams {
            quota,
            mean: Some(0.5),
        });
        let mut machine = Machine::new(&groups, &[BurstBound::Unlimited; 3]).unwrap();
        let quota_ns = machine.quota_ns.clone();
        let mut period = |quotas: [f64; LANES]| {
            let demands = quota_ns.iter().zip(quotas);
            let demand_ns: Vec<f64> = demands.map(|(quota, quotas)| quotas * quota).collect();
            machine.period(&demand_ns)
        };
        assert!(period([0.0; LANES]).is_met && period([0.0; LANES]).is_met);
        // The second group wants 10 % of the spare 40 %, which is less than its share. The others
        // share the rest: 75 % of their quotas, of the 200 % that each wants.
        assert!(!period([3.0, 1.5, 3.0, 0.0]).is_met);
        let waiting = [0, 1, 2].map(|group| machine.backlog_ns[group] / quota_ns[group]);
        let rounded = waiting.map(|quotas| (quotas * 1e6).round() / 1e6);
        assert_eq!(rounded, [1.25, 0.0, 1.25]);
    }
}
