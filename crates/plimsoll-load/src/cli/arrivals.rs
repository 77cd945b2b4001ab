//! Arrival process as given by single parameters on the command line.

use std::time::Duration;

use clap::ValueEnum;

use super::duration;
use crate::arrivals::Arrivals;
use crate::error::LoadError;

/// Default rate.
const RATE_DEFAULT: f64 = 300.0;

/// The kinds of arrival processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ArrivalKind {
    /// Independent requests: exponential gaps
    Poisson,
    /// Bursts
    Bursty,
}

/// Parameters of the arrival process.
#[derive(Debug, clap::Args)]
pub(super) struct ArrivalArgs {
    /// Arrival process [default: poisson, or bursty if --burst-size is given]
    #[arg(long, value_enum)]
    arrivals: Option<ArrivalKind>,
    /// Mean requests per second, 0.001 to 1000000 [default: 300]
    #[arg(
        long,
        value_name = "PER_SECOND",
        conflicts_with_all = ["burst_size", "burst_every"],
        allow_hyphen_values = true
    )]
    rate: Option<f64>,
    /// Requests in one burst, which arrive at once, 1 to 100000
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    burst_size: Option<u32>,
    /// Time from one burst to the next, 1ms or more
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    burst_every: Option<Duration>,
}

impl ArrivalArgs {
    /// Builds the process. Its values are not checked yet, see
    /// [`Arrivals::validate`].
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for parameters that contradict each other.
    pub(super) fn arrivals(&self) -> Result<Arrivals, LoadError> {
        let is_bursty = self.burst_size.is_some() || self.burst_every.is_some();
        if is_bursty && self.arrivals == Some(ArrivalKind::Poisson) {
            return Err(LoadError::invalid(
                "arrivals",
                "poisson",
                "bursty with bursts",
            ));
        }
        if !is_bursty && self.arrivals != Some(ArrivalKind::Bursty) {
            let rate = self.rate.unwrap_or(RATE_DEFAULT);
            return Ok(Arrivals::Poisson { rate });
        }
        let missing =
            |field| LoadError::invalid(field, "none", "bursts need burst-size and burst-every");
        Ok(Arrivals::Bursts {
            size: self.burst_size.ok_or_else(|| missing("burst-size"))?,
            every: self.burst_every.ok_or_else(|| missing("burst-every"))?,
        })
    }
}
