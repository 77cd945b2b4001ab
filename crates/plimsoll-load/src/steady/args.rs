//! Arguments of a steady load.

use std::time::Duration;

use crate::limits::{DURATION_MAX, DURATION_MIN, GRAIN_MAX, GRAIN_MIN};
use crate::units::{number_between, time_between};

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct SteadyArgs {
    /// Load in percent of all CPUs in the affinity mask, 0 to 100
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = number_between(0.0, 100.0),
        allow_hyphen_values = true
    )]
    pub(super) percent: f64,
    /// Period in which each CPU is busy for its share, 100us to 1s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2ms",
        value_parser = time_between(GRAIN_MIN, GRAIN_MAX),
        allow_hyphen_values = true
    )]
    pub(super) grain: Duration,
    /// Duration of the run, up to 24h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = time_between(DURATION_MIN, DURATION_MAX),
        allow_hyphen_values = true
    )]
    pub(super) duration: Duration,
}
