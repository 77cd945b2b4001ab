//! Arguments of `top`.

use std::time::Duration;

use clap::Args;

use super::{Column, interval};

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Interval between updates, 200ms to 60s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        value_parser = interval,
        allow_hyphen_values = true
    )]
    pub interval: Duration,
    /// Print one table after one interval, then exit
    #[arg(long)]
    pub once: bool,
    /// Print JSON
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Sort key of the groups
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "cpu")]
    pub sort: Column,
}
