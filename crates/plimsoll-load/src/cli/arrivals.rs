//! Arrival process as given by single parameters on the command line.

use std::time::Duration;

use clap::ValueEnum;

use super::duration;
use crate::arrivals::Arrivals;
use crate::error::LoadError;
use crate::units::show;

/// Default rate.
const RATE_DEFAULT: f64 = 300.0;

/// The kinds of arrival processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ArrivalKind {
    /// Independent requests: exponential gaps
    Poisson,
    /// Equal gaps
    Uniform,
    /// Bursts, plus a Poisson stream if --rate is given
    Bursty,
}

/// Parameters of the arrival process.
#[derive(Debug, clap::Args)]
pub(super) struct ArrivalArgs {
    /// Arrival process [default: poisson, or bursty if --burst-size is given]
    #[arg(long, value_enum)]
    arrivals: Option<ArrivalKind>,
    /// Mean requests per second, 0.001 to 1000000 [default: 300, or 0 with
    /// bursts]
    #[arg(long, value_name = "PER_SECOND", allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Requests in one burst, 1 to 100000
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    burst_size: Option<u32>,
    /// Time from one burst to the next, 1ms or more
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    burst_every: Option<Duration>,
    /// Time over which the requests of a burst are spread; 0s for all at once
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    burst_spread: Option<Duration>,
}

impl ArrivalArgs {
    /// Builds the process. Its values are not checked yet, see
    /// [`Arrivals::validate`].
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for parameters that contradict each other.
    pub(super) fn arrivals(&self) -> Result<Arrivals, LoadError> {
        let bursty =
            self.burst_size.is_some() || self.burst_every.is_some() || self.burst_spread.is_some();
        let by_default = if bursty {
            ArrivalKind::Bursty
        } else {
            ArrivalKind::Poisson
        };
        let kind = self.arrivals.unwrap_or(by_default);
        if kind == ArrivalKind::Bursty {
            return self.bursts();
        }
        const ALONE: &str = "only with bursty arrivals";
        if let Some(size) = self.burst_size {
            return Err(LoadError::invalid("burst-size", size, ALONE));
        }
        if let Some(every) = self.burst_every {
            return Err(LoadError::invalid("burst-every", show(every), ALONE));
        }
        if let Some(spread) = self.burst_spread {
            return Err(LoadError::invalid("burst-spread", show(spread), ALONE));
        }
        let rate = self.rate.unwrap_or(RATE_DEFAULT);
        Ok(match kind {
            ArrivalKind::Uniform => Arrivals::Uniform { rate },
            ArrivalKind::Poisson | ArrivalKind::Bursty => Arrivals::Poisson { rate },
        })
    }

    fn bursts(&self) -> Result<Arrivals, LoadError> {
        let missing =
            |field| LoadError::invalid(field, "none", "bursts need burst-size and burst-every");
        Ok(Arrivals::Bursts {
            size: self.burst_size.ok_or_else(|| missing("burst-size"))?,
            every: self.burst_every.ok_or_else(|| missing("burst-every"))?,
            spread: self.burst_spread.unwrap_or_default(),
            base_rate: self.rate.unwrap_or(0.0),
        })
    }
}
