//! Experiments: rows of cells, cut into batches that run on threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_policy::OutOfRange;
use thiserror::Error;

use super::distribution::Distribution;
use super::estimate::{BATCHES, Batch, CellReport};
use super::machine::{BURST_MAX, BurstBound, GROUPS_MAX, GroupParams, Machine, QUOTA_MIN};
use super::sampler::{Sampler, stream};
use super::tally::Tally;

pub const PERIODS_MIN: u64 = 1_000;
/// Maximum number of periods of a cell: weeks of computing.
pub const PERIODS_MAX: u64 = 1_000_000_000_000;

/// Initial conditions fade over σ²/(1 − u)² periods; the warm-up of a batch is
/// this many times that.
const WARMUP_TIMES: f64 = 20.0;
/// Shortest and longest warm-up, in periods.
const WARMUP: (f64, f64) = (200.0, 100_000.0);
/// Number of periods between two checks whether to stop: some 50 µs with 20
/// groups.
const LOOK_EVERY: u64 = 512;
/// A run of missed deadlines that is open at the end of a batch is followed for
/// at most this many periods.
const FOLLOW_MAX: u64 = 1_000_000;
/// Tolerance for a sum of quotas above 1, because thirds do not sum up to 1.
const ROUNDING: f64 = 1e-9;

/// Groups, and the bursts to compare. All bursts use the same draws, so that
/// the differences are due to the bursts.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Distribution of the groups' demand.
    pub distribution: Distribution,
    /// The groups: 1 to [`GROUPS_MAX`]. Their quotas sum up to at most 1; the
    /// rest of the machine is free for all.
    pub groups: Vec<GroupParams>,
    /// Correlation, 0 (independent) to 1. A Gaussian copula with one factor:
    /// group `j` draws its demand at the quantile `Φ(√r·Z + √(1−r)·Z_j)` of its
    /// distribution, where `Z` is common to all groups and `Z_j` belongs to
    /// one, all standard normal and new in each period. So `r` is the
    /// correlation of two groups' normal variables, and their distributions do
    /// not change; the correlation of the demands themselves is a little lower.
    pub correlation: f64,
    /// The columns: the burst of each group.
    pub columns: Vec<Vec<BurstBound>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    pub rows: Vec<Row>,
    /// Periods counted in each cell, [`PERIODS_MIN`] to [`PERIODS_MAX`].
    pub periods: u64,
    /// Seed. The same seed gives the same result with any number of threads.
    pub seed: u64,
}

/// Reason why an experiment cannot run: field, value, allowed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExperimentError {
    #[error("{0}")]
    Field(String),
    /// The core refuses a quota and its burst.
    #[error("group: {0}")]
    Core(#[from] OutOfRange),
}

/// Division of a row into warm-up and counted periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlan {
    /// Periods that each batch runs before counting starts.
    ///
    /// Groups start without savings and without pending work. The effect on the
    /// first periods fades like that of any queue with utilisation `u`: over
    /// σ²/(1 − u)² periods, σ being the coefficient of variation. The warm-up
    /// is 20 times that, at least 200 periods and at most 100,000.
    pub warmup: u64,
    /// Counted periods of the row.
    pub periods: u64,
}

impl RowPlan {
    #[must_use]
    pub fn of(row: &Row, periods: u64) -> Self {
        let own_mean = row.distribution.mean().unwrap_or(0.0);
        let means = row
            .groups
            .iter()
            .map(|group| group.mean.unwrap_or(own_mean));
        let length = |mean: f64| {
            let squared = row.distribution.variation_squared(mean).max(1.0);
            WARMUP_TIMES * squared / (1.0 - mean).powi(2)
        };
        let longest = means.map(length).fold(0.0, f64::max);
        Self {
            warmup: longest.clamp(WARMUP.0, WARMUP.1) as u64,
            periods,
        }
    }

    /// Counted periods of one batch; the remainder of the division goes to the
    /// first batches.
    fn batch(&self, batch: usize) -> u64 {
        let (batch, batches) = (batch as u64, BATCHES as u64);
        self.periods / batches + u64::from(batch < self.periods % batches)
    }
}

/// Progress of an experiment and the signal to stop it, shared by its threads.
pub struct Watch<'a> {
    /// Whether to stop; called some thousand times a second.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Periods of rows done, warm-up included; see [`Experiment::work`].
    pub done: &'a AtomicU64,
}

impl Watch<'_> {
    /// Adds finished periods. Returns whether to continue.
    fn proceed(&self, periods: u64) -> bool {
        self.done.fetch_add(periods, Ordering::Relaxed);
        !(self.is_over)()
    }
}

impl Experiment {
    /// Checks that the experiment can run.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), ExperimentError> {
        if !(PERIODS_MIN..=PERIODS_MAX).contains(&self.periods) {
            return Err(ExperimentError::Field(format!(
                "periods: `{}` is out of range; allowed: {PERIODS_MIN} to {PERIODS_MAX}",
                self.periods
            )));
        }
        self.rows.iter().try_for_each(Row::check)
    }

    /// Periods of all rows, warm-up included: approximately the final value of
    /// [`Watch::done`].
    #[must_use]
    pub fn work(&self) -> u64 {
        let of_row = |row: &Row| {
            let plan = RowPlan::of(row, self.periods);
            plan.periods + plan.warmup * BATCHES as u64
        };
        self.rows.iter().map(of_row).sum()
    }

    /// Runs all cells and returns them by row and column. If stopped early, the
    /// rows differ by one batch and those that were under way.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn run(
        &self,
        threads: NonZeroUsize,
        watch: &Watch,
    ) -> Result<Vec<Vec<CellReport>>, ExperimentError> {
        self.check()?;
        let (rows, tasks) = (self.rows.len(), self.rows.len() * BATCHES);
        // The first batch of each row, then the second ones, and so on.
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let work = || {
            while !(watch.is_over)() {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                let batch = self.run_batch(task % rows, task / rows, watch);
                let failed = batch.is_err();
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((task, batch));
                if failed {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(tasks) {
                scope.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(task, _)| *task);
        let mut batches: Vec<Vec<Batch>> = vec![Vec::new(); rows];
        for (task, batch) in done {
            batches[task % rows].push(batch?);
        }
        let report = |(row, own): (&Row, &Vec<Batch>)| {
            let columns = 0..row.columns.len();
            let cell = |column| CellReport::of_column(column, own, BATCHES);
            columns.map(cell).collect()
        };
        Ok(self.rows.iter().zip(&batches).map(report).collect())
    }

    /// Runs a batch of a row to its end, or until it is told to stop.
    fn run_batch(&self, row: usize, batch: usize, watch: &Watch) -> Result<Batch, OutOfRange> {
        let of = &self.rows[row];
        let plan = RowPlan::of(of, self.periods);
        let columns = of.columns.iter();
        let machines = columns.map(|bursts| Machine::new(&of.groups, bursts));
        let columns: Vec<Column> = machines
            .map(|machine| machine.map(Column::new))
            .collect::<Result<_, _>>()?;
        let lanes = columns.first().map_or(0, |column| column.machine.lanes());
        let running = RunningBatch {
            sampler: Sampler::new(&of.distribution, &of.groups, of.correlation),
            rng: stream(self.seed, row, batch),
            demand_ns: vec![0.0; lanes],
            columns,
        };
        Ok(running.run(plan.warmup, plan.batch(batch), watch))
    }
}

/// Converts to percent, without the rounding error of binary fractions.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

/// A running batch.
struct RunningBatch {
    sampler: Sampler,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    demand_ns: Vec<f64>,
    columns: Vec<Column>,
}

impl RunningBatch {
    /// Runs the periods of the warm-up and those that count. Returns the result: empty if the
    /// batch is told to stop in its warm-up.
    fn run(mut self, warmup: u64, periods: u64, watch: &Watch) -> Batch {
        let is_warm = self.run_periods(warmup, watch);
        self.columns.iter_mut().for_each(Column::begin);
        let complete = is_warm && self.run_periods(periods, watch) && self.follow(watch);
        let columns = self.columns.into_iter();
        Batch {
            complete,
            tallies: columns.map(Column::into_tally).collect(),
        }
    }

    /// Runs periods, until it is told to stop. Returns whether to continue.
    fn run_periods(&mut self, periods: u64, watch: &Watch) -> bool {
        let mut left = periods;
        while left > 0 {
            let some = left.min(LOOK_EVERY);
            for _ in 0..some {
                self.sampler.draw(&mut self.rng, &mut self.demand_ns);
                for column in &mut self.columns {
                    column.period(&self.demand_ns);
                }
            }
            left -= some;
            if !watch.proceed(some) {
                return false;
            }
        }
        true
    }

    /// Follows runs that began in the batch to their end. Returns whether to
    /// continue.
    fn follow(&mut self, watch: &Watch) -> bool {
        for period in 1..=FOLLOW_MAX {
            if self.columns.iter().all(|column| column.open == 0) {
                break;
            }
            self.sampler.draw(&mut self.rng, &mut self.demand_ns);
            for column in self.columns.iter_mut().filter(|column| column.open > 0) {
                column.follow(&self.demand_ns);
            }
            if period % LOOK_EVERY == 0 && !watch.proceed(0) {
                return false;
            }
        }
        self.columns.iter_mut().for_each(Column::end_run);
        true
    }
}

struct Column {
    machine: Machine,
    tally: Tally,
    /// Number of periods in the current run of missed deadlines.
    open: u64,
    /// Number of those after the end of the batch.
    after: u64,
    used_ns: f64,
    counted: u64,
}

impl Column {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            tally: Tally::default(),
            open: 0,
            after: 0,
            used_ns: 0.0,
            counted: 0,
        }
    }

    /// Starts counting. The current run counts as beginning now.
    fn begin(&mut self) {
        self.tally = Tally::default();
        self.open = 0;
        self.used_ns = 0.0;
        self.counted = 0;
    }

    #[inline]
    fn period(&mut self, demand_ns: &[f64]) {
        let period = self.machine.period(demand_ns);
        self.used_ns += period.used_ns;
        self.counted += 1;
        self.open += 1;
        if period.is_met {
            self.tally.run(self.open, 0);
            self.open = 0;
        }
    }

    /// Runs a period after the end of the batch.
    fn follow(&mut self, demand_ns: &[f64]) {
        self.open += 1;
        self.after += 1;
        if self.machine.period(demand_ns).is_met {
            self.end_run();
        }
    }

    fn end_run(&mut self) {
        if self.open > 0 {
            self.tally.run(self.open, self.after);
            self.open = 0;
        }
    }

    fn into_tally(self) -> Tally {
        Tally {
            used_sum: self.used_ns / self.machine.capacity_ns(),
            counted: self.counted,
            ..self.tally
        }
    }
}

impl Row {
    /// Checks that the row can run.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self) -> Result<(), ExperimentError> {
        let problem = self.distribution.problem();
        let problem = problem.or_else(|| self.groups_problem());
        let problem = problem.or_else(|| {
            let is_allowed = (0.0..=1.0).contains(&self.correlation);
            (!is_allowed).then(|| {
                let value = self.correlation;
                format!("correlation: `{value}` is out of range; allowed: 0 to 1")
            })
        });
        let problem = problem.or_else(|| self.columns.iter().find_map(|c| self.bursts_problem(c)));
        problem.map_or(Ok(()), |problem| Err(ExperimentError::Field(problem)))
    }

    fn groups_problem(&self) -> Option<String> {
        let (count, own_mean) = (self.groups.len(), self.distribution.mean());
        if !(1..=GROUPS_MAX).contains(&count) {
            return Some(format!(
                "groups: `{count}` is out of range; allowed: 1 to {GROUPS_MAX}"
            ));
        }
        for group in &self.groups {
            if !(QUOTA_MIN..=1.0 + ROUNDING).contains(&group.quota) {
                return Some(format!(
                    "quota: `{}%` is out of range; allowed: {}% to 100% of the machine",
                    percent(group.quota),
                    percent(QUOTA_MIN)
                ));
            }
            match group.mean.or(own_mean) {
                Some(mean) if mean > 0.0 && mean < 1.0 => {}
                Some(mean) => {
                    return Some(format!(
                        "mean: `{}%` is out of range; allowed: above 0% and below 100% of the \
                         quota, beyond which the backlog grows without bound",
                        percent(mean)
                    ));
                }
                None => return Some("mean: `` is missing; allowed: a share such as 70%".into()),
            }
        }
        let sum: f64 = self.groups.iter().map(|group| group.quota).sum();
        (sum > 1.0 + ROUNDING).then(|| {
            let sum = percent(sum);
            format!(
                "quota: `{sum}%` is the sum over all groups; allowed: up to 100% of the machine"
            )
        })
    }

    fn bursts_problem(&self, bursts: &[BurstBound]) -> Option<String> {
        if bursts.len() != self.groups.len() {
            let (count, groups) = (bursts.len(), self.groups.len());
            return Some(format!(
                "burst: `{count}` are given; allowed: one for each of {groups} groups"
            ));
        }
        bursts.iter().find_map(|burst| match burst {
            BurstBound::Quotas(quotas) if !(0.0..=BURST_MAX).contains(quotas) => Some(format!(
                "burst: `{}%` is out of range; allowed: 0% to {}% of the quota, or unlimited",
                percent(*quotas),
                percent(BURST_MAX)
            )),
            _ => None,
        })
    }
}
