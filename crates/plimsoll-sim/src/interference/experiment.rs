//! Rows of cells, cut into batches, on threads.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use plimsoll_policy::bandwidth::ParamError;
use thiserror::Error;

use super::distribution::Distribution;
use super::estimate::{Batch, CellReport};
use super::machine::{BURST_MAX, Burst, GROUPS_MAX, Group, Machine, QUOTA_MIN};
use super::sampler::{Sampler, stream};
use super::tally::Tally;
use super::turns::Turns;

/// Each row is cut into so many batches. Enough that Student's t is close to
/// the normal, few enough that each is long.
pub const BATCHES: usize = 32;
/// The fewest periods of a cell.
pub const PERIODS_MIN: u64 = 1_000;
/// The most: weeks of computing.
pub const PERIODS_MAX: u64 = 1_000_000_000_000;

/// What is remembered fades over σ²/(1 − u)² periods; a batch is warmed up for
/// so many times that.
const WARMUP_TIMES: f64 = 20.0;
/// The shortest and the longest warm-up, in periods.
const WARMUP: (f64, f64) = (200.0, 100_000.0);
/// Looks at the watch after so many periods: some 50 µs with 20 groups.
const LOOK_EVERY: u64 = 512;
/// A batch goes on for so many periods before others have their turn.
const TURN: u64 = 16 * LOOK_EVERY;
/// Runs that go on when a batch ends are followed for no longer than this.
const FOLLOW_MAX: u64 = 1_000_000;
/// What shares of quotas may exceed 1 by, for thirds do not sum up to 1.
const ROUNDING: f64 = 1e-9;

/// Groups, and the bursts to try on them. All bursts see the same draws, so
/// that what differs is theirs.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What the groups may want.
    pub distribution: Distribution,
    /// The groups: 1 to [`GROUPS_MAX`]. Their quotas sum up to 1 at most; what
    /// they leave is free for everybody.
    pub groups: Vec<Group>,
    /// 0, independent, to 1. A Gaussian copula with one factor: group `j`
    /// draws its demand at the quantile `Φ(√r·Z + √(1−r)·Z_j)` of its
    /// distribution, with `Z` common to all groups and `Z_j` its own, all
    /// standard normal, new in each period. So `r` is the correlation of two
    /// groups' normal variables and their distributions stay as they are; the
    /// correlation of the demands themselves is a little lower.
    pub correlation: f64,
    /// One column for each entry: the burst of each group.
    pub columns: Vec<Vec<Burst>>,
}

/// Several rows and how long to run them.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// The rows.
    pub rows: Vec<Row>,
    /// Periods of each cell that count, [`PERIODS_MIN`] to [`PERIODS_MAX`].
    pub periods: u64,
    /// The same seed gives the same result, whatever the number of threads.
    pub seed: u64,
}

/// Why an experiment cannot be run: field, value, what is allowed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExperimentError {
    /// A field is out of range.
    #[error("{0}")]
    Field(String),
    /// The core refuses a quota and its burst.
    #[error("group: {0}")]
    Core(#[from] ParamError),
}

/// How a row is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Periods that each batch runs before it counts.
    ///
    /// Groups start with nothing saved and nothing to do. What that makes of
    /// the first periods fades as that of any queue that is used to `u` of its
    /// capacity: over σ²/(1 − u)² periods, σ the coefficient of variation. 20
    /// times that, at least 200 periods and at most 100,000.
    pub warmup: u64,
    /// Periods of a row that count.
    pub periods: u64,
}

impl Plan {
    /// Of a row that is to run for `periods`.
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

    /// Periods of one batch that count: the first ones take what does not divide.
    fn batch(&self, batch: usize) -> u64 {
        let (batch, batches) = (batch as u64, BATCHES as u64);
        self.periods / batches + u64::from(batch < self.periods % batches)
    }
}

/// How far an experiment is, and whether to end it. Shared by its threads.
pub struct Watch<'a> {
    /// Asked some thousand times a second.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
    /// Periods of rows done, warm-up included; see [`Experiment::work`].
    pub done: &'a AtomicU64,
}

impl Watch<'_> {
    /// Adds what was done. Returns whether to go on.
    fn goes_on(&self, periods: u64) -> bool {
        self.done.fetch_add(periods, Ordering::Relaxed);
        !(self.is_over)()
    }
}

impl Experiment {
    /// Whether it can be run.
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

    /// Periods of all rows, warm-up included: what [`Watch::done`] will be
    /// close to at the end.
    #[must_use]
    pub fn work(&self) -> u64 {
        let of_row = |row: &Row| {
            let plan = Plan::of(row, self.periods);
            plan.periods + plan.warmup * BATCHES as u64
        };
        self.rows.iter().map(of_row).sum()
    }

    /// Runs all cells and returns them by row and column. If it ends early,
    /// all rows are about as far.
    ///
    /// # Errors
    /// See [`check`](Self::check).
    pub fn run(
        &self,
        threads: NonZeroUsize,
        watch: &Watch,
    ) -> Result<Vec<Vec<CellReport>>, ExperimentError> {
        self.check()?;
        let turns = Turns::new(self, threads);
        let tasks = self.rows.len() * BATCHES;
        let batches: Vec<Mutex<Option<Batch>>> = (0..tasks).map(|_| Mutex::new(None)).collect();
        let failed = Mutex::new(None);
        let work = || {
            while !(watch.is_over)() {
                match turns.next() {
                    Ok(Some((task, mut running))) => {
                        if running.turn(watch) {
                            set(&batches[task], running.into_batch());
                            turns.ended();
                        } else {
                            turns.again(task, running);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        set(&failed, error);
                        break;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.get().min(tasks) {
                scope.spawn(work);
            }
            work();
        });
        for (task, running) in turns.into_waiting() {
            set(&batches[task], running.into_batch());
        }
        if let Some(error) = take(failed) {
            return Err(error.into());
        }
        let batches: Vec<Option<Batch>> = batches.into_iter().map(take).collect();
        let rows = self.rows.iter().enumerate();
        Ok(rows
            .map(|(row, of)| self.report(row, of, &batches))
            .collect())
    }

    fn report(&self, row: usize, of: &Row, batches: &[Option<Batch>]) -> Vec<CellReport> {
        let own = batches.iter().skip(row).step_by(self.rows.len());
        let own: Vec<&Batch> = own.flatten().collect();
        let columns = 0..of.columns.len();
        let cell = |column| CellReport::of_column(column, &own, BATCHES);
        columns.map(cell).collect()
    }

    /// A batch of a row at its start.
    pub(super) fn begin_batch(&self, row: usize, batch: usize) -> Result<Running, ParamError> {
        let of = &self.rows[row];
        let plan = Plan::of(of, self.periods);
        let columns = of.columns.iter();
        let machines = columns.map(|bursts| Machine::new(&of.groups, bursts));
        let mut running = Running {
            sampler: Sampler::new(&of.distribution, &of.groups, of.correlation),
            rng: stream(self.seed, row, batch),
            demand_ns: Vec::new(),
            columns: machines
                .map(|machine| machine.map(Column::new))
                .collect::<Result<_, _>>()?,
            warmup_left: plan.warmup,
            left: plan.batch(batch),
            complete: false,
        };
        let lanes = running
            .columns
            .first()
            .map_or(0, |column| column.machine.lanes());
        running.demand_ns.resize(lanes, 0.0);
        Ok(running)
    }
}

/// Percent, without what binary fractions add to decimal ones.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

fn set<T>(place: &Mutex<Option<T>>, value: T) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
}

fn take<T>(place: Mutex<Option<T>>) -> Option<T> {
    place.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A batch under way.
pub(super) struct Running {
    sampler: Sampler,
    rng: rand_xoshiro::Xoshiro256PlusPlus,
    demand_ns: Vec<f64>,
    columns: Vec<Column>,
    /// Periods to go of the warm-up.
    warmup_left: u64,
    /// Periods to go of those that count.
    left: u64,
    /// Whether it was run to its end.
    complete: bool,
}

impl Running {
    /// Goes on for [`TURN`] periods. Returns whether the batch is done.
    fn turn(&mut self, watch: &Watch) -> bool {
        let warmup = self.warmup_left.min(TURN);
        if warmup > 0 {
            self.warmup_left -= self.stretch(warmup, watch);
            if self.warmup_left == 0 {
                self.columns.iter_mut().for_each(Column::begin);
            }
            return false;
        }
        self.left -= self.stretch(self.left.min(TURN), watch);
        if self.left > 0 {
            return false;
        }
        self.complete = !(watch.is_over)() && self.follow(watch);
        true
    }

    /// Runs so many periods, or fewer if it is over. Returns how many.
    fn stretch(&mut self, periods: u64, watch: &Watch) -> u64 {
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
            if !watch.goes_on(some) {
                break;
            }
        }
        periods - left
    }

    /// What is known of it: nothing, as long as it is warmed up.
    fn into_batch(mut self) -> Batch {
        if self.warmup_left > 0 {
            self.columns.iter_mut().for_each(Column::begin);
        }
        let columns = self.columns.into_iter();
        Batch {
            complete: self.complete,
            tallies: columns.map(Column::into_tally).collect(),
        }
    }

    /// Follows runs that began in the batch to their end. Returns whether to go on.
    fn follow(&mut self, watch: &Watch) -> bool {
        for period in 1..=FOLLOW_MAX {
            if self.columns.iter().all(|column| column.open == 0) {
                break;
            }
            self.sampler.draw(&mut self.rng, &mut self.demand_ns);
            for column in self.columns.iter_mut().filter(|column| column.open > 0) {
                column.follow(&self.demand_ns);
            }
            if period % LOOK_EVERY == 0 && !watch.goes_on(0) {
                return false;
            }
        }
        self.columns.iter_mut().for_each(Column::give_up);
        true
    }
}

/// One machine and what is counted of it.
struct Column {
    machine: Machine,
    tally: Tally,
    /// Periods of the run that is under way.
    open: u64,
    /// Of those, periods after the end.
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

    /// From now on it counts. A run that is under way began now.
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

    /// A period after the end.
    fn follow(&mut self, demand_ns: &[f64]) {
        self.open += 1;
        self.after += 1;
        if self.machine.period(demand_ns).is_met {
            self.give_up();
        }
    }

    /// A run that is under way is over.
    fn give_up(&mut self) {
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
    /// Whether it can be run.
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
                         quota, beyond which what is left to do grows without end",
                        percent(mean)
                    ));
                }
                None => return Some("mean: `` is missing; allowed: a share such as 70%".into()),
            }
        }
        let sum: f64 = self.groups.iter().map(|group| group.quota).sum();
        (sum > 1.0 + ROUNDING).then(|| {
            let sum = percent(sum);
            format!("quota: `{sum}%` is what all have together; allowed: up to 100% of the machine")
        })
    }

    fn bursts_problem(&self, bursts: &[Burst]) -> Option<String> {
        if bursts.len() != self.groups.len() {
            let (count, groups) = (bursts.len(), self.groups.len());
            return Some(format!(
                "burst: `{count}` are given; allowed: one for each of {groups} groups"
            ));
        }
        bursts.iter().find_map(|burst| match burst {
            Burst::Quotas(quotas) if !(0.0..=BURST_MAX).contains(quotas) => Some(format!(
                "burst: `{}%` is out of range; allowed: 0% to {}% of the quota, or unlimited",
                percent(*quotas),
                percent(BURST_MAX)
            )),
            _ => None,
        })
    }
}
