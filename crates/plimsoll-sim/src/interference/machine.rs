//! One period of all groups: demand, quota, sharing, deadline.

use std::array::from_fn;

use plimsoll_policy::RUNTIME_MAX_NS;
use plimsoll_policy::bandwidth::ParamError;

use super::account::{Account, Hand, lesser};

/// The most groups.
pub const GROUPS_MAX: usize = 1_000;
/// The smallest quota, as a share of the machine.
pub const QUOTA_MIN: f64 = 0.001;
/// The largest burst that is not unlimited, in quotas.
pub const BURST_MAX: f64 = 1_000.0;

/// The largest group's quota. The largest burst fits above it.
const LARGEST_QUOTA_NS: f64 = (RUNTIME_MAX_NS >> 10) as f64;
/// Quotas are multiples of this, so that tenths of them are whole.
const QUOTA_STEP_NS: f64 = 10.0;
/// No pool takes more; keeps sums whole numbers, exact below 2^53.
const GAINED_MAX_NS: f64 = RUNTIME_MAX_NS as f64;
/// Groups are stored in so many lanes; what is missing wants nothing.
const LANES: usize = 4;
/// Shares that sum up to this close to 1 are the whole machine.
const WHOLE: f64 = 1e-9;

/// A group's part of the machine, and what it wants on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Quota as a share of the machine, [`QUOTA_MIN`] to 1.
    pub quota: f64,
    /// Mean demand as a share of the quota, above 0 and below 1; none: as the
    /// samples of an empirical distribution have it.
    pub mean: Option<f64>,
}

/// How much of its unused quota a group may save.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Burst {
    /// So many quotas, 0 to [`BURST_MAX`].
    Quotas(f64),
    /// All that the core can hold: more than 1,000 quotas.
    Unlimited,
}

/// What came of a period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Period {
    /// Whether it met its deadline.
    pub is_met: bool,
    /// CPU time used, in the machine's nanoseconds.
    pub used_ns: f64,
}

/// Groups on one machine, period by period.
///
/// The machine has so many nanoseconds in a period that the largest quota is
/// 2^34 of them. All times are whole nanoseconds in `f64`s, so sums are exact
/// and do not depend on their order.
#[derive(Debug, Clone)]
pub struct Machine {
    groups: usize,
    /// All quotas.
    quotas_ns: f64,
    /// Of the machine, what is no group's quota.
    spare_ns: f64,
    quota_ns: Vec<f64>,
    backlog_ns: Vec<f64>,
    gained_ns: Vec<f64>,
    accounts: Vec<Account>,
    hands: Vec<Hand>,
    /// Groups that want more than their quota.
    over: Vec<usize>,
    /// What they want of it and may have, in the same order.
    offered_ns: Vec<f64>,
}

/// The machine's time in a period.
fn machine_ns(groups: &[Group]) -> f64 {
    let largest = groups.iter().map(|group| group.quota).fold(0.0, f64::max);
    LARGEST_QUOTA_NS / largest
}

/// Each group's quota in the machine's nanoseconds.
pub(super) fn quotas_ns(groups: &[Group]) -> Vec<f64> {
    let machine_ns = machine_ns(groups);
    let whole = |group: &Group| (group.quota * machine_ns / QUOTA_STEP_NS).floor() * QUOTA_STEP_NS;
    groups.iter().map(whole).collect()
}

impl Machine {
    /// Groups that have saved nothing and have nothing left to do. `bursts`:
    /// of each group.
    ///
    /// # Errors
    /// If the core refuses a group's quota and burst; never if all is within
    /// the ranges that the fields name.
    pub fn new(groups: &[Group], bursts: &[Burst]) -> Result<Self, ParamError> {
        let mut quota_ns = quotas_ns(groups);
        let account = |(quota_ns, burst): (&f64, &Burst)| {
            let burst_ns = match burst {
                Burst::Quotas(quotas) => Some((quotas * quota_ns).round() as u64),
                Burst::Unlimited => None,
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
            hands: accounts.iter().map(Account::hand).collect(),
            accounts,
            over: vec![0; lanes],
            offered_ns: vec![0.0; lanes],
        })
    }

    /// The machine's time in a period.
    #[must_use]
    pub fn capacity_ns(&self) -> f64 {
        self.spare_ns + self.quotas_ns
    }

    /// The groups' quotas.
    #[must_use]
    pub fn quota_ns(&self) -> &[f64] {
        &self.quota_ns[..self.groups]
    }

    /// So many demands are one period: those of the groups, and zeros to fill
    /// up the lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.quota_ns.len()
    }

    /// Runs a period in which the groups' new demand is `demand_ns`, whole
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

    /// Each group uses its quota as far as it has work. Returns what they
    /// leave, and how many want more: those are listed in `over`.
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
            // Without a branch: whether a group is over cannot be predicted.
            for (lane, left) in left.iter().enumerate() {
                self.over[over] = first + lane;
                over += usize::from(left.is_sign_negative());
            }
        }
        (idle_ns.iter().sum(), over)
    }

    /// Grants those groups all that they want and may have, as if there were
    /// enough for everybody, which mostly there is. Returns the sum.
    #[inline]
    fn grant_all(&mut self, over: usize) -> f64 {
        let mut sum_ns = 0.0;
        for (group, offered_ns) in self.over[..over].iter().zip(&mut self.offered_ns) {
            let account = &mut self.accounts[*group];
            let (backlog_ns, gained_ns) =
                (&mut self.backlog_ns[*group], &mut self.gained_ns[*group]);
            *offered_ns = self.hands[*group].take(account, *backlog_ns, gained_ns);
            *backlog_ns -= *offered_ns;
            sum_ns += *offered_ns;
        }
        sum_ns
    }

    /// Undoes that. Sums of whole numbers are exact.
    fn take_back_all(&mut self, over: usize) {
        for index in 0..over {
            self.grant(self.over[index], -self.offered_ns[index]);
        }
    }

    /// Shares `free_ns`, which is not enough, in proportion to the quotas;
    /// what a group does not want goes to the others.
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
            // Not all of them went: together they want more than there is.
            if left == before {
                return self.share_evenly(left, per_quota, free_ns);
            }
        }
    }

    /// Each of those groups wants more than its share. What rounding leaves
    /// goes, too: no time is lost.
    fn share_evenly(&mut self, left: usize, per_quota: f64, mut free_ns: f64) {
        for index in 0..left {
            let group = self.over[index];
            // Whole: a cast, because without SSE 4.1 `floor` is a call.
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
        self.hands[group].spend(granted_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(groups: usize, burst: Burst) -> Machine {
        let group = Group {
            quota: 1.0 / groups as f64,
            mean: Some(0.5),
        };
        Machine::new(&vec![group; groups], &vec![burst; groups]).unwrap()
    }

    /// Demand in quotas.
    fn period(machine: &mut Machine, demand: &[f64]) -> Period {
        let quota_ns = machine.quota_ns().to_vec();
        let mut demand_ns: Vec<f64> = demand.iter().zip(quota_ns).map(|(d, q)| d * q).collect();
        demand_ns.resize(machine.lanes(), 0.0);
        machine.period(&demand_ns)
    }

    fn backlogs(machine: &Machine) -> Vec<f64> {
        let (backlogs, quotas) = (machine.backlog_ns.iter(), &machine.quota_ns);
        let in_quotas = backlogs.zip(quotas).map(|(backlog, quota)| backlog / quota);
        in_quotas.take(machine.groups).collect()
    }

    #[test]
    fn a_group_without_tokens_waits_and_misses_nobodys_deadline() {
        let mut machine = equal(2, Burst::Quotas(1.0));
        assert!(period(&mut machine, &[1.5, 0.0]).is_met);
        assert_eq!(backlogs(&machine), [0.5, 0.0]);
    }

    #[test]
    fn a_burst_beside_a_group_that_claims_its_savings_too_misses_the_deadline() {
        let mut machine = equal(2, Burst::Quotas(1.0));
        assert!(period(&mut machine, &[0.0, 0.25]).is_met);
        // Both want 0.75 more and have that; nothing is free.
        let missed = period(&mut machine, &[1.75, 1.75]);
        assert!(!missed.is_met);
        assert_eq!(missed.used_ns, machine.capacity_ns());
        assert_eq!(backlogs(&machine), [0.75, 0.75]);
        // The first may use what the second leaves, all of it.
        assert!(period(&mut machine, &[0.0, 0.0]).is_met);
        assert_eq!(backlogs(&machine), [0.0, 0.0]);
    }

    #[test]
    fn a_period_that_is_used_to_the_last_nanosecond_meets_its_deadline() {
        let mut machine = equal(5, Burst::Unlimited);
        assert!(period(&mut machine, &[0.7, 0.7, 0.7, 0.7, 0.7]).is_met);
        let full = period(&mut machine, &[1.3, 0.9, 0.9, 0.9, 1.0]);
        assert!(full.is_met);
        assert_eq!(full.used_ns, machine.capacity_ns());
    }

    #[test]
    fn what_a_group_does_not_want_goes_to_the_others() {
        let mut machine = equal(4, Burst::Unlimited);
        period(&mut machine, &[0.0; 4]);
        // 0.8 is free; wanted are 0.1, 0.5 and 0.5: 0.35 each for those two.
        assert!(!period(&mut machine, &[0.2, 1.1, 1.5, 1.5]).is_met);
        let waiting: Vec<f64> = backlogs(&machine)
            .iter()
            .map(|b| (b * 1e6).round())
            .collect();
        assert_eq!(waiting, [0.0, 0.0, 150_000.0, 150_000.0]);
    }

    #[test]
    fn larger_quotas_get_larger_shares_and_spare_machine_is_free() {
        let group = |quota| Group {
            quota,
            mean: Some(0.5),
        };
        let groups = [group(0.5), group(0.25)];
        let mut machine = Machine::new(&groups, &[Burst::Unlimited; 2]).unwrap();
        period(&mut machine, &[0.0, 0.0]);
        // The spare quarter: two thirds of it for the first, one for the second.
        assert!(!period(&mut machine, &[2.0, 2.0]).is_met);
        let waiting: Vec<f64> = backlogs(&machine)
            .iter()
            .map(|b| (b * 1e6).round())
            .collect();
        assert_eq!(waiting, [666_667.0, 666_667.0]);
    }
}
