//! Computes rates from two states. Pure.
//!
//! Counters only grow during the lifetime of their process. A counter that went
//! backwards has been restarted; then there is no rate rather than a wrong one.

use plimsoll_cgroupfs::CpuStat;
use plimsoll_daemon::state::{GroupState, MachineState, State};
use plimsoll_engine::sample::Sample;
use serde::Serialize;

/// A whole, in ppm.
pub const PPM: u64 = 1_000_000;

/// Usage of the machine's CPUs, in ppm of all of them. Normal, batch and idle
/// add up to a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MachineRates {
    pub normal_ppm: u64,
    /// Work of batch groups of Plimsoll.
    pub batch_ppm: u64,
    pub idle_ppm: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GroupRates {
    /// CPU time used, in ppm of one CPU.
    pub cpu_ppm: Option<u64>,
    /// Periods of the group's limits that elapsed while the group was active.
    pub nr_periods: Option<u64>,
    /// Share of those that ended throttled, in ppm.
    pub throttled_ppm: Option<u64>,
    /// Share of those that used more than the quota, in ppm.
    pub bursts_ppm: Option<u64>,
    /// Time that the group's tasks waited for a CPU, summed over tasks, in ppm of the time elapsed.
    pub wait_ppm: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// Time between the states; 0 for the first one.
    pub interval_usec: u64,
    pub machine: Option<MachineRates>,
    /// The groups, in the order of the later state.
    pub groups: Vec<GroupRates>,
}

/// `part` of `whole` in ppm; `None` if the whole is 0.
fn share_ppm(part: u64, whole: u64) -> Option<u64> {
    let ppm = (u128::from(part) * u128::from(PPM)).checked_div(u128::from(whole))?;
    Some(u64::try_from(ppm).unwrap_or(u64::MAX))
}

pub fn between(old: Option<&State>, new: &State) -> Rates {
    let nothing = || Rates {
        groups: vec![GroupRates::default(); new.groups.len()],
        ..Rates::default()
    };
    // Counters of another daemon start anew.
    let Some(old) = old.filter(|old| old.daemon.pid == new.daemon.pid) else {
        return nothing();
    };
    let Some(elapsed_usec) = new.machine.at_usec.checked_sub(old.machine.at_usec) else {
        return nothing();
    };
    // Both are sorted by name, so one pass finds all pairs.
    let mut earlier = old.groups.iter().peekable();
    let rates_of = |group: &GroupState| {
        while earlier.next_if(|old| old.name < group.name).is_some() {}
        let before = earlier.next_if(|old| old.name == group.name);
        before.map_or_else(GroupRates::default, |old| {
            group_rates(old, group, elapsed_usec)
        })
    };
    Rates {
        interval_usec: elapsed_usec,
        machine: machine_rates(&old.machine, &new.machine),
        groups: new.groups.iter().map(rates_of).collect(),
    }
}

fn machine_rates(old: &MachineState, new: &MachineState) -> Option<MachineRates> {
    let elapsed_usec = new.at_usec.checked_sub(old.at_usec)?;
    let capacity_usec = elapsed_usec.saturating_mul(u64::from(new.nr_cpus));
    let busy_usec = new.busy_usec.checked_sub(old.busy_usec)?;
    let batch_usec = new.batch_usec.checked_sub(old.batch_usec)?;
    // Clamped, because the two counters are not read at the same instant.
    let busy_ppm = share_ppm(busy_usec.max(batch_usec), capacity_usec)?.min(PPM);
    let batch_ppm = share_ppm(batch_usec, capacity_usec)?.min(busy_ppm);
    Some(MachineRates {
        normal_ppm: busy_ppm - batch_ppm,
        batch_ppm,
        idle_ppm: PPM - busy_ppm,
    })
}

/// Sum over all limits of a group; `None` if it has none.
pub fn limits(sample: &Sample) -> Option<CpuStat> {
    let per_task = sample.per_task.map(|tasks| CpuStat {
        nr_periods: tasks.nr_periods,
        nr_throttled: tasks.nr_throttled,
        ..CpuStat::default()
    });
    let all = [sample.quota, sample.cap, per_task];
    all.into_iter().flatten().reduce(|sum, one| sum.plus(&one))
}

fn group_rates(old: &GroupState, new: &GroupState, elapsed_usec: u64) -> GroupRates {
    let (Some(old), Some(new)) = (&old.statistics, &new.statistics) else {
        return GroupRates::default();
    };
    let grown = |new: u64, old: u64| new.checked_sub(old);
    let Some(used_usec) = grown(new.usage_usec, old.usage_usec) else {
        return GroupRates::default();
    };
    let mut rates = GroupRates {
        cpu_ppm: share_ppm(used_usec, elapsed_usec),
        ..GroupRates::default()
    };
    if let (Some(old), Some(new)) = (limits(old), limits(new))
        && let Some(periods) = grown(new.nr_periods, old.nr_periods)
    {
        rates.nr_periods = Some(periods);
        // A group that was not active was not throttled.
        let of_periods =
            |count: Option<u64>| count.map(|count| share_ppm(count, periods).unwrap_or(0).min(PPM));
        rates.throttled_ppm = of_periods(grown(new.nr_throttled, old.nr_throttled));
        rates.bursts_ppm = of_periods(grown(new.nr_bursts, old.nr_bursts));
    }
    if let (Some(old), Some(new)) = (&old.batch, &new.batch) {
        let waited = grown(new.total.wait_usec, old.total.wait_usec);
        rates.wait_ppm = waited.and_then(|usec| share_ppm(usec, elapsed_usec));
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing::{group, state};

    #[test]
    fn no_more_than_the_whole_machine_is_used() {
        let mut old = state(&[]);
        let mut new = old.clone();
        new.machine.at_usec += 1_000_000;
        // The two counters were read one after the other.
        new.machine.busy_usec = old.machine.busy_usec + 2_100_000;
        new.machine.batch_usec = old.machine.batch_usec + 2_200_000;
        let machine = between(Some(&old), &new).machine.unwrap();
        assert_eq!(machine.batch_ppm, PPM);
        assert_eq!(machine.normal_ppm + machine.idle_ppm, 0);

        old.machine.at_usec = new.machine.at_usec;
        assert_eq!(between(Some(&old), &new).machine, None, "no time passed");
    }

    #[test]
    fn rates_are_of_the_time_between_the_states() {
        let old = state(&[group("encode", 500_000)]);
        let mut new = state(&[group("aaa", 7), group("encode", 1_500_000)]);
        new.machine.at_usec += 2_000_000;
        let after = new.groups[1].statistics.as_mut().unwrap();
        let quota = after.quota.as_mut().unwrap();
        quota.nr_periods += 20;
        quota.nr_throttled += 5;
        quota.nr_bursts += 1;
        after.batch.as_mut().unwrap().total.wait_usec += 3_000_000;
        let rates = between(Some(&old), &new);
        assert_eq!(rates.interval_usec, 2_000_000);
        assert_eq!(rates.groups[0], GroupRates::default(), "it is new");
        let expected = GroupRates {
            cpu_ppm: Some(500_000),
            nr_periods: Some(20),
            throttled_ppm: Some(250_000),
            bursts_ppm: Some(50_000),
            wait_ppm: Some(1_500_000),
        };
        assert_eq!(rates.groups[1], expected);
    }

    #[test]
    fn restarted_counter_has_no_rate() {
        let old = state(&[group("encode", 500_000)]);
        let mut new = state(&[group("encode", 400_000)]);
        new.machine.at_usec += 1_000_000;
        new.machine.busy_usec = 1;
        let rates = between(Some(&old), &new);
        assert_eq!(rates.groups, [GroupRates::default()]);
        assert_eq!(rates.machine, None);

        let mut restarted = state(&[group("encode", 900_000)]);
        restarted.machine.at_usec += 1_000_000;
        restarted.daemon.pid += 1;
        let rates = between(Some(&old), &restarted);
        assert_eq!((rates.interval_usec, rates.machine), (0, None));
        assert_eq!(rates.groups, [GroupRates::default()]);

        let mut back_in_time = old.clone();
        back_in_time.machine.at_usec -= 1;
        assert_eq!(between(Some(&old), &back_in_time).machine, None);
    }

    #[test]
    fn inactive_group_is_not_throttled_and_unlimited_group_has_no_periods() {
        let mut old = state(&[group("idle", 5)]);
        let mut new = old.clone();
        new.machine.at_usec += 1_000_000;
        let rates = between(Some(&old), &new).groups[0];
        assert_eq!((rates.nr_periods, rates.throttled_ppm), (Some(0), Some(0)));
        for state in [&mut old, &mut new] {
            let sample = state.groups[0].statistics.as_mut().unwrap();
            sample.quota = None;
            sample.batch = None;
        }
        let rates = between(Some(&old), &new).groups[0];
        assert_eq!(rates.cpu_ppm, Some(0));
        assert_eq!((rates.throttled_ppm, rates.wait_ppm), (None, None));
    }
}
