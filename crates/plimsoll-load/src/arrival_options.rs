//! Arrival process as given by single parameters on the command line or in a
//! file.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use crate::arrivals::Arrivals;
use crate::error::LoadError;
use crate::units::show;

/// Default rate.
const RATE_DEFAULT: f64 = 300.0;

/// The kinds of arrival processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ArrivalKind {
    /// Independent requests: exponential gaps
    Poisson,
    /// Equal gaps
    Uniform,
    /// Bursts, plus a Poisson stream if --rate is given
    Bursty,
}

impl FromStr for ArrivalKind {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Self, LoadError> {
        ValueEnum::from_str(text, false)
            .map_err(|_| LoadError::invalid("arrivals", text, "poisson, uniform or bursty"))
    }
}

/// Parameters that were given; `None` for the others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ArrivalOptions {
    /// Default: Poisson, or bursty if a parameter of bursts is given.
    pub kind: Option<ArrivalKind>,
    /// Mean requests per second; default 300, or 0 with bursts.
    pub rate: Option<f64>,
    /// Requests of one burst.
    pub burst_size: Option<u32>,
    /// Time from the start of a burst to that of the next.
    pub burst_every: Option<Duration>,
    /// Time over which the requests of a burst are spread.
    pub burst_spread: Option<Duration>,
}

impl ArrivalOptions {
    /// Builds the process. Its values are not checked yet, see
    /// [`Arrivals::validate`].
    ///
    /// # Errors
    /// [`LoadError::Invalid`] for parameters that contradict each other.
    pub fn arrivals(&self) -> Result<Arrivals, LoadError> {
        let bursty =
            self.burst_size.is_some() || self.burst_every.is_some() || self.burst_spread.is_some();
        let by_default = if bursty {
            ArrivalKind::Bursty
        } else {
            ArrivalKind::Poisson
        };
        let kind = self.kind.unwrap_or(by_default);
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
