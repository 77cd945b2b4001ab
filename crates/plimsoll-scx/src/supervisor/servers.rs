//! Control of the kernel's ext servers: sets them to the tolerance of the groups, and restarts
//! them.
//!
//! The kernel stops the server of a CPU when the scheduler has no task for it, such as while a
//! group is throttled, and starts it only when another task of the scheduler is queued at that CPU.
//! Writing its runtime starts it, too. That costs two opens, a read, a write and the lock of one
//! run queue, so it is done only if a task waits, and only on CPUs that other work has kept for
//! longer than the server would have allowed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use plimsoll_engine::host::{Mode, nr_cpus_online};
use plimsoll_engine::journal::Journal;
use plimsoll_engine::knobs::Tolerance;

use crate::bpf_intf::{
    plimsoll_cpu, plimsoll_cpu_state_PLIMSOLL_CPU_OTHER as CPU_OTHER, plimsoll_group,
    plimsoll_group_flags_PLIMSOLL_QUOTA as QUOTA, plimsoll_limits_PLIMSOLL_SLOT_DEFAULT,
};
use crate::control_error::ControlError;
use crate::ext_server::{ExtServer, Setting};
use crate::machine::Demand;
use crate::objects::Objects;
use crate::sample::monotonic_ns;

use super::period_backoff::PeriodBackoff;

/// Interval of checks whether a task waits for a server.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Most servers restarted at one check; the next continues with others.
const RESTARTS_MAX: usize = 32;

/// The owner's control of the ext servers.
pub(super) struct Servers {
    servers: Option<ExtServer>,
    /// The tolerance and the period that they were last set to.
    period_ns: u64,
    tolerance: Tolerance,
    period_backoff: PeriodBackoff,
    groups_seen: Option<u32>,
    checked: Option<Instant>,
    /// Time of the last restart of each CPU's server, by the clock of the scheduler's maps.
    restarted_ns: HashMap<u32, u64>,
}

impl Servers {
    /// The servers of this host, if it has any. In mode all no task is behind the fair class.
    pub fn of_this_host(mode: Mode) -> Self {
        Self {
            servers: match mode {
                Mode::Partial => ExtServer::of_this_host(),
                Mode::All => None,
            },
            period_ns: 0,
            tolerance: Tolerance::default(),
            period_backoff: PeriodBackoff::default(),
            groups_seen: None,
            checked: None,
            restarted_ns: HashMap::new(),
        }
    }

    /// Sets the servers to the tolerance of the groups, if groups have changed or slices last too
    /// long, and restarts those that the kernel has stopped.
    ///
    /// # Errors
    /// When the kernel refuses, or the journal cannot be written.
    pub fn tick(
        &mut self,
        objects: &Objects,
        journal: &mut Journal,
        now: Instant,
    ) -> Result<(), ControlError> {
        let Some(servers) = &self.servers else {
            return Ok(());
        };
        let changed = objects.shared.groups_changed();
        let mut is_new = self.groups_seen != Some(changed);
        if is_new {
            self.groups_seen = Some(changed);
            let tolerance = Demand::now(objects).tolerance();
            if tolerance != self.tolerance {
                // Slices are of another length now.
                self.period_backoff = PeriodBackoff::default();
            }
            self.tolerance = tolerance;
        }
        let is_due = self.checked.is_none_or(|at| now >= at + CHECK_INTERVAL);
        if !is_new && !is_due {
            return Ok(());
        }
        let (setting, now_ns) = (
            Setting::of(self.tolerance, nr_cpus_online()),
            monotonic_ns(),
        );
        if is_due {
            self.checked = Some(now);
            let tolerated_ns = objects.shared.tolerated_ns();
            is_new |= self
                .period_backoff
                .update(self.tolerance, setting, tolerated_ns, now_ns);
        }
        if is_new {
            let setting = self.period_backoff.of(setting);
            self.period_ns = setting.period_ns;
            servers.set(setting, journal)?;
        }
        if !is_due {
            return Ok(());
        }
        let all = (0..objects.nr_cpu_ids).filter_map(|cpu| Some((cpu, objects.cpu(cpu)?)));
        let late = starved(all, &self.restarted_ns, self.period_ns, now_ns);
        // Last: there may be a thousand groups.
        if !late.is_empty() && anything_waits(objects, now_ns) {
            for cpu in late {
                self.restarted_ns.insert(cpu, now_ns);
                // A CPU that went offline has no server. The next check is for others.
                let _ = servers.restart(cpu);
            }
        }
        Ok(())
    }
}

fn anything_waits(objects: &Objects, now_ns: u64) -> bool {
    let slots = plimsoll_limits_PLIMSOLL_SLOT_DEFAULT..objects.shared.nr_slots_used();
    let mut groups = slots.filter_map(|slot| objects.group(slot));
    groups.any(|group| waits(&group, now_ns))
}

/// Whether tasks of a group wait although its limits let them run. A group whose limit ended after
/// its server stopped starves.
fn waits(group: &plimsoll_group, now_ns: u64) -> bool {
    let at_no_cpu = group
        .nr_runnable
        .saturating_sub(group.nr_running)
        .saturating_sub(group.nr_parked);
    let is_throttled = group.params.flags & QUOTA != 0
        && group.pool.runtime_ns == 0
        && group.pool.nr_throttled_cpus > 0;
    at_no_cpu > 0 && !is_throttled && group.blocked_until_ns <= now_ns
}

/// The CPUs on which other work has run for two periods of the server, and whose server was not
/// restarted within them, the longest wait first.
fn starved(
    cpus: impl Iterator<Item = (u32, plimsoll_cpu)>,
    restarted_ns: &HashMap<u32, u64>,
    period_ns: u64,
    now_ns: u64,
) -> Vec<u32> {
    let since = |cpu: u32, known: &plimsoll_cpu| {
        let restarted = restarted_ns.get(&cpu).copied().unwrap_or(0);
        known.since_ns.max(restarted)
    };
    let kept = cpus.filter(|(_, known)| known.online != 0 && known.state == CPU_OTHER);
    let mut late: Vec<(u64, u32)> = kept
        .map(|(cpu, known)| (since(cpu, &known), cpu))
        .filter(|(since_ns, _)| now_ns.saturating_sub(*since_ns) >= 2 * period_ns)
        .collect();
    late.sort_unstable();
    late.into_iter()
        .map(|(_, cpu)| cpu)
        .take(RESTARTS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_intf::{
        plimsoll_cpu_state_PLIMSOLL_CPU_BATCH as CPU_BATCH,
        plimsoll_cpu_state_PLIMSOLL_CPU_IDLE as CPU_IDLE,
    };

    const MS: u64 = 1_000_000;

    fn group() -> plimsoll_group {
        // SAFETY: integers, and structs and arrays of them.
        unsafe { std::mem::zeroed() }
    }

    fn cpu(state: u32, since_ns: u64) -> plimsoll_cpu {
        plimsoll_cpu {
            state,
            since_ns,
            online: 1,
            // SAFETY: integers only.
            ..unsafe { std::mem::zeroed() }
        }
    }

    #[test]
    fn running_parked_and_limited_tasks_do_not_wait_for_a_server() {
        let mut group = group();
        assert!(!waits(&group, 0));
        (group.nr_runnable, group.nr_running, group.nr_parked) = (3, 2, 1);
        assert!(!waits(&group, 0));
        group.nr_runnable = 4;
        assert!(waits(&group, 0));
        group.blocked_until_ns = 5;
        assert!(!waits(&group, 4) && waits(&group, 5));
        group.params.flags = QUOTA;
        group.pool.nr_throttled_cpus = 1;
        assert!(!waits(&group, 5));
        // The next period has begun: the group starves.
        group.pool.runtime_ns = 1;
        assert!(waits(&group, 5));
    }

    #[test]
    fn servers_are_started_where_other_work_has_run_for_two_periods() {
        let now_ns = 1000 * MS;
        let cpus = [
            cpu(CPU_OTHER, now_ns - 50 * MS),
            cpu(CPU_OTHER, now_ns - 39 * MS),
            cpu(CPU_IDLE, 0),
            cpu(CPU_BATCH, 0),
            cpu(CPU_OTHER, now_ns - 300 * MS),
        ];
        let all = || (0..).zip(cpus);
        let none = HashMap::new();
        assert_eq!(starved(all(), &none, 20 * MS, now_ns), [4, 0]);
        // A server that was just restarted is left alone.
        let just = HashMap::from([(4, now_ns - 10 * MS)]);
        assert_eq!(starved(all(), &just, 20 * MS, now_ns), [0]);
        assert!(starved(all(), &none, 4000 * MS, now_ns).is_empty());
    }

    #[test]
    fn a_check_restarts_a_bounded_number_of_servers_and_the_next_others() {
        let all = || (0..40).map(|number| (number, cpu(CPU_OTHER, 0)));
        let now_ns = 1000 * MS;
        let first = starved(all(), &HashMap::new(), 20 * MS, now_ns);
        assert_eq!(first.len(), RESTARTS_MAX);
        let restarted = first.into_iter().map(|cpu| (cpu, now_ns)).collect();
        let next = starved(all(), &restarted, 20 * MS, now_ns + 100 * MS);
        assert_eq!(next[..8], [32, 33, 34, 35, 36, 37, 38, 39]);
    }
}
