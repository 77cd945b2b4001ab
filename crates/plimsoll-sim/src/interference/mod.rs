//! What bursts of some groups cost the others: a Monte Carlo experiment.
//!
//! Each of `m` groups has a quota of the machine and a burst. In each period
//! it wants a random amount of CPU. What it does not use of its quota it
//! saves, up to its burst; what it wants beyond the quota it may take from
//! what it has saved, as far as the others leave CPU free. As long as nobody
//! bursts, each period ends with everybody's quota served. With bursts, what
//! groups are entitled to may exceed the machine: then the period misses its
//! deadline. The figures are how often, and for how long.
//!
//! Source: the simulation in "Re: [PATCH v4 1/4] sched/fair: Introduce
//! primitives for CFS bandwidth burst", H. Chang, linux-kernel, 12 May 2021.
//! Its table is [`published`].
//!
//! # What the source leaves open
//! - A request's WCET (worst-case execution time) is counted per period: a
//!   run of `L` periods of which the last meets the deadline contributes
//!   `L, L−1, … 1`.
//! - A period meets its deadline if, after sharing, CPU is left over or no
//!   group with burst left still wants any.
//! - Groups start with an empty burst, and each part of a run is warmed up
//!   before it counts, see [`Plan`].
//! - Free CPU is shared in proportion to the quotas, which for equal groups
//!   means equally; what a group does not want goes to the others.
//!
//! # What the core decides
//! How much a group has saved: its pool is a
//! [`plimsoll_policy::bandwidth::Pool`]. The source's `gather_token` is the
//! refill, its `use_token` a charge. The core has one rule, the pool is filled
//! up to quota and burst at each boundary, where the pseudo-code caps the
//! burst alone: seen at boundaries, these are the same.
//!
//! # Files
//! | file | subject |
//! | --- | --- |
//! | `distribution` | what a group may want, and how it is drawn |
//! | `samples` | a file of measured demand |
//! | `account` | what a group has saved, asked of the core |
//! | `machine` | one period of all groups |
//! | `tally`, `estimate` | counts, and what they say with which confidence |
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
mod turns;

pub use distribution::{Distribution, PARETO_ALPHA_DEFAULT, SIGMA_DEFAULT};
pub use estimate::{CellReport, Estimate};
pub use experiment::{
    BATCHES, Experiment, ExperimentError, PERIODS_MAX, PERIODS_MIN, Plan, Row, Watch,
};
pub use machine::{BURST_MAX, Burst, GROUPS_MAX, Group, Machine, Period, QUOTA_MIN};
pub use sampler::Sampler;
pub use samples::{Samples, SamplesError};
pub use tally::{LENGTHS, Tally};
