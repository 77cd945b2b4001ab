//! Interference experiment: a Monte Carlo simulation of the cost of bursts of
//! some groups to the others.
//!
//! Each of `m` groups has a quota of the machine and a burst. In each period it
//! demands a random amount of CPU. It saves the unused part of its quota, up to
//! its burst; for demand beyond the quota it may spend its savings, as far as
//! the other groups leave CPU free. Without bursts, every period ends with all
//! quotas served. With bursts, the groups' entitlements may exceed the machine:
//! then the period misses its deadline. The experiment reports how often, and
//! for how long.
//!
//! Source: the simulation in "Re: [PATCH v4 1/4] sched/fair: Introduce
//! primitives for CFS bandwidth burst", H. Chang, linux-kernel, 12 May 2021.
//! Its table is [`published`].
//!
//! # Points that the source leaves open
//! - The WCET (worst-case execution time) of a request is counted per period: a
//!   run of `L` periods of which the last meets the deadline contributes
//!   `L, L−1, … 1`.
//! - A period meets its deadline if, after sharing, CPU is left over or no
//!   group with burst left still wants any.
//! - Groups start with an empty burst, and each part of a run is warmed up
//!   before counting starts, see [`RowPlan`].
//! - Free CPU is shared in proportion to the quotas, which for equal groups
//!   means equally. Time that a group does not want goes to the others.
//!
//! # Decisions of the policy core
//! The core decides how much a group has saved: the savings are a
//! [`plimsoll_policy::bandwidth::Pool`]. The source's `gather_token` is the
//! refill, its `use_token` a charge. The core refills the pool up to quota plus
//! burst at each boundary, while the pseudo-code caps the burst alone; at
//! boundaries both give the same result.
//!
//! # Files
//! | file | subject |
//! | --- | --- |
//! | `distribution`, `sampler` | distributions of demand, and drawing from them |
//! | `samples` | a file of measured demand |
//! | `account` | a group's savings, kept by the core |
//! | `machine` | one period of all groups |
//! | `tally`, `estimate` | counts, and estimates with confidence intervals |
//! | `experiment` | rows of cells, cut into batches, on threads |
//! | `published` | the source's table |

mod account;
mod distribution;
mod estimate;
mod experiment;
mod machine;
pub mod published;
mod sampler;
mod samples;
mod tally;

pub use distribution::{Distribution, PARETO_ALPHA_DEFAULT, SIGMA_DEFAULT};
pub use estimate::{BATCHES, CellReport, Estimate};
pub use experiment::{Experiment, ExperimentError, PERIODS_MAX, PERIODS_MIN, Row, RowPlan, Watch};
pub use machine::{BURST_MAX, BurstBound, GROUPS_MAX, GroupParams, Machine, Period, QUOTA_MIN};
pub use sampler::Sampler;
pub use samples::{Samples, SamplesError};
pub use tally::{LENGTHS, Tally};
