//! Arguments of `top`.

use std::time::Duration;

use clap::Args;

use super::columns::Column;

/// Examples at the end of the help.
pub const EXAMPLES: &str = "Examples:
  plimsoll top
  plimsoll top --interval 5s --sort throttled
  plimsoll top --once
  plimsoll top --once --json

Press ? for the keys. Falls back to ASCII if the locale is not UTF-8; NO_COLOR disables colours.";

const INTERVAL_MIN: Duration = Duration::from_millis(200);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Interval between updates, 200ms to 60s
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        value_parser = plimsoll_load::time_between(INTERVAL_MIN, INTERVAL_MAX),
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
