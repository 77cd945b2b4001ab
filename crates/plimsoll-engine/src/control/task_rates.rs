//! Usage rates of the single tasks of capped groups, measured on demand.
//!
//! The kernel keeps no such average. A measurement takes two reads in `/proc` for each task.
//! The first yields the average since the task started. From the second on, the run time
//! between two measurements moves the core's decaying average; the time before the first
//! is assumed to have been used at the rate measured after it.

use std::collections::HashMap;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::name::printable;
use plimsoll_policy::NSEC_PER_SEC;
use plimsoll_policy::ratecap::{Bucket, RateCapParams};
use procfs::process::Process;

use crate::knobs::HalfLife;
use crate::sample::{TASK_RATES_MAX, TaskRate, TaskRates};

/// Largest number of groups with averages: those measured last.
const GROUPS_MAX: usize = 16;
/// Number of half-lives after which nothing is left of an average.
const HALF_LIVES_MAX: u64 = 20;

/// Kernel's counters of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading {
    command: String,
    /// Start time since boot.
    started_ns: u64,
    ran_ns: u64,
}

/// Task that was measured before.
#[derive(Debug)]
struct Known {
    started_ns: u64,
    ran_ns: u64,
    read_ns: u64,
    /// Whether the task was measured only once, so that the only interval is its whole life.
    is_first: bool,
    bucket: Bucket,
}

#[derive(Debug, Default)]
struct RatedGroup {
    asked_ns: u64,
    tasks: HashMap<i32, Known>,
}

/// Averages of the tasks of all groups that were measured recently.
#[derive(Debug, Default)]
pub(crate) struct TaskMeter {
    groups: HashMap<String, RatedGroup>,
}

/// Returns the average of a task that has run at an even rate since it started.
fn even(
    params: RateCapParams,
    ran_ns: u64,
    in_ns: u64,
    life_ns: u64,
    now_ns: u64,
) -> Option<Bucket> {
    let window_ns = life_ns.min(HALF_LIVES_MAX * params.half_life_ns);
    let ran_ns = u128::from(ran_ns) * u128::from(window_ns) / u128::from(in_ns.max(1));
    let mut bucket = Bucket::new(params, now_ns.saturating_sub(window_ns)).ok()?;
    bucket.rate_update(u64::try_from(ran_ns).unwrap_or(u64::MAX), now_ns);
    Some(bucket)
}

impl Known {
    /// Returns the state after a reading; `None`: the task has no average.
    fn after(
        before: Option<Self>,
        reading: &Reading,
        params: RateCapParams,
        now_ns: u64,
    ) -> Option<Self> {
        let is_same = |known: &Self| {
            known.started_ns == reading.started_ns && known.bucket.params() == params
        };
        let life_ns = now_ns.saturating_sub(reading.started_ns);
        let mut known = Self {
            started_ns: reading.started_ns,
            ran_ns: reading.ran_ns,
            read_ns: now_ns,
            is_first: true,
            bucket: even(params, reading.ran_ns, life_ns, life_ns, now_ns)?,
        };
        let Some(before) = before.filter(is_same) else {
            return Some(known);
        };
        let ran_ns = reading.ran_ns.saturating_sub(before.ran_ns);
        let interval_ns = now_ns.saturating_sub(before.read_ns);
        known.is_first = false;
        known.bucket = before.bucket;
        if before.is_first {
            known.bucket = even(params, ran_ns, interval_ns, life_ns, now_ns)?;
        } else {
            known.bucket.rate_update(ran_ns, now_ns);
        }
        Some(known)
    }
}

impl TaskMeter {
    pub fn measure(&mut self, group: &str, tids: &[i32], half_life: HalfLife) -> TaskRates {
        self.measure_by(group, tids, half_life, boot_ns(), read)
    }

    fn measure_by(
        &mut self,
        group: &str,
        tids: &[i32],
        half_life: HalfLife,
        now_ns: u64,
        read: impl Fn(i32) -> Option<Reading>,
    ) -> TaskRates {
        let params = RateCapParams {
            half_life_ns: half_life.half_life_ns,
            ..RateCapParams::default()
        };
        let mut before = self.groups.remove(group).unwrap_or_default().tasks;
        let mut after = RatedGroup {
            asked_ns: now_ns,
            tasks: HashMap::new(),
        };
        let mut rates = Vec::new();
        for &tid in tids.iter().take(TASK_RATES_MAX) {
            // A task that has ended meanwhile has no rate.
            let Some(reading) = read(tid) else { continue };
            let Some(known) = Known::after(before.remove(&tid), &reading, params, now_ns) else {
                continue;
            };
            rates.push(TaskRate {
                tid,
                command: reading.command,
                rate_ppm: known.bucket.rate_ppm(),
                background: false,
            });
            after.tasks.insert(tid, known);
        }
        self.keep(group, after);
        TaskRates::new(rates, tids.len())
    }

    fn keep(&mut self, name: &str, group: RatedGroup) {
        if self.groups.len() >= GROUPS_MAX {
            let oldest = self.groups.iter().min_by_key(|(_, group)| group.asked_ns);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.groups.remove(&oldest);
            }
        }
        self.groups.insert(name.to_owned(), group);
    }

    pub fn forget(&mut self, group: &str) {
        self.groups.remove(group);
    }
}

/// Current time of the clock in which the kernel reports starts of tasks.
fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

fn read(tid: i32) -> Option<Reading> {
    let task = Process::new(tid).ok()?;
    let stat = task.stat().ok()?;
    let tick_ns = NSEC_PER_SEC / procfs::ticks_per_second().max(1);
    Some(Reading {
        command: printable(&stat.comm),
        started_ns: stat.starttime.saturating_mul(tick_ns),
        ran_ns: task.schedstat().ok()?.sum_exec_runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::units::PPM;

    const PPM_1_PERCENT: u64 = PPM / 100;

    fn reading(started_s: u64, ran_ms: u64) -> Reading {
        Reading {
            command: "work".into(),
            started_ns: started_s * NSEC_PER_SEC,
            ran_ns: ran_ms * 1_000_000,
        }
    }

    fn rate(meter: &mut TaskMeter, now_ms: u64, reading: &Reading) -> u64 {
        let now_ns = now_ms * 1_000_000;
        let read = |_| Some(reading.clone());
        let rates = meter.measure_by("g", &[7], HalfLife::default(), now_ns, read);
        rates.tasks[0].rate_ppm
    }

    fn near(rate_ppm: u64, percent: u64) {
        let difference = rate_ppm.abs_diff(percent * PPM_1_PERCENT);
        assert!(difference < PPM_1_PERCENT / 2, "{rate_ppm} ppm");
    }

    #[test]
    fn the_first_measurement_averages_over_the_tasks_life() {
        // A day at 20 %.
        near(
            rate(
                &mut TaskMeter::default(),
                86_400_000,
                &reading(0, 17_280_000),
            ),
            20,
        );
        // One half-life at 100 %.
        near(
            rate(&mut TaskMeter::default(), 11_000, &reading(10, 1_000)),
            50,
        );
    }

    #[test]
    fn further_measurements_move_the_average() {
        let mut meter = TaskMeter::default();
        rate(&mut meter, 100_000, &reading(0, 0));
        // The task begins to burn: the average assumes that it always did.
        near(rate(&mut meter, 100_200, &reading(0, 200)), 100);
        // Idle for one half-life, and for one more.
        near(rate(&mut meter, 101_200, &reading(0, 200)), 50);
        near(rate(&mut meter, 102_200, &reading(0, 200)), 25);
        // Another task with the same number.
        near(rate(&mut meter, 103_200, &reading(102, 1_200)), 56);
    }

    #[test]
    fn the_fastest_come_first_and_no_more_than_the_bound_are_measured() {
        let mut meter = TaskMeter::default();
        let tids: Vec<i32> = (1..=300).collect();
        let read = |tid: i32| (tid != 3).then(|| reading(0, u64::from(tid.unsigned_abs())));
        let rates = meter.measure_by("g", &tids, HalfLife::default(), NSEC_PER_SEC, read);
        assert_eq!(rates.nr_tasks, 300);
        assert_eq!(rates.tasks.len(), TASK_RATES_MAX - 1);
        assert_eq!((rates.tasks[0].tid, rates.tasks[254].tid), (256, 1));
    }

    #[test]
    fn averages_of_groups_that_were_not_measured_recently_are_forgotten() {
        let mut meter = TaskMeter::default();
        for number in 0..GROUPS_MAX as u64 + 5 {
            let name = number.to_string();
            meter.measure_by(&name, &[], HalfLife::default(), number, |_| None);
        }
        assert_eq!(meter.groups.len(), GROUPS_MAX);
        assert!(!meter.groups.contains_key("4") && meter.groups.contains_key("5"));
        meter.forget("5");
        assert_eq!(meter.groups.len(), GROUPS_MAX - 1);
    }
}
