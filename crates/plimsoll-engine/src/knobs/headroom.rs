//! Headroom and tolerance.

use std::fmt;
use std::str::FromStr;

use plimsoll_policy::headroom::{self as core, CoreHeadroom};

use super::error::KnobError;
use super::units::{self, PPM};
use super::word::serde_as_text;

const HEADROOM_FORMS: &str =
    "a share of the machine from 0% to 100% such as 30%, or whole CPUs such as 2cpus";
const TOLERANCE_FORMS: &str = "RUNTIME/PERIOD such as 1ms/100ms (period of 1ms to 10s, runtime up to the period and 1s), or 0";

/// Idle CPU to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    /// Share of all CPUs, averaged over time; in ppm.
    Share(u32),
    /// Number of CPUs at every instant.
    Cpus(u32),
}

impl Headroom {
    /// Returns the headroom as a share of `nr_cpus`, in ppm.
    pub fn share_ppm(self, nr_cpus: u32) -> u32 {
        match self {
            Self::Share(ppm) => ppm,
            Self::Cpus(cpus) => core::from_cpus_ppm(cpus, nr_cpus),
        }
    }
}

impl From<Headroom> for CoreHeadroom {
    fn from(headroom: Headroom) -> Self {
        match headroom {
            Headroom::Share(ppm) => Self::Share(ppm),
            Headroom::Cpus(cpus) => Self::Cpus(cpus),
        }
    }
}

impl From<CoreHeadroom> for Headroom {
    fn from(headroom: CoreHeadroom) -> Self {
        match headroom {
            CoreHeadroom::Share(ppm) => Self::Share(ppm),
            CoreHeadroom::Cpus(cpus) => Self::Cpus(cpus),
        }
    }
}

impl FromStr for Headroom {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("headroom", text, problem, HEADROOM_FORMS);
        if text.trim_end().ends_with("cpus") || text.trim_end().ends_with("cpu") {
            let ppm = units::cpus_ppm(text).map_err(|e| error(e.problem()))?;
            if ppm % PPM != 0 {
                return Err(error("is not a whole number of CPUs"));
            }
            let cpus = u32::try_from(ppm / PPM).map_err(|_| error("is too large"))?;
            return Ok(Self::Cpus(cpus));
        }
        let ppm = units::percent_ppm(text).map_err(|e| error(e.problem()))?;
        match u32::try_from(ppm) {
            Ok(share) if ppm <= PPM => Ok(Self::Share(share)),
            _ => Err(error("is more than the whole machine")),
        }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match *self {
            Self::Share(ppm) => units::show_percent(u64::from(ppm)),
            Self::Cpus(cpus) => units::show_cpus(u64::from(cpus) * PPM),
        })
    }
}

/// Runtime that all batch work together is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Runtime; 0: batch work may starve.
    pub runtime_ns: u64,
    pub period_ns: u64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            runtime_ns: core::TOLERANCE_RUNTIME_DEFAULT_NS,
            period_ns: core::TOLERANCE_PERIOD_DEFAULT_NS,
        }
    }
}

impl FromStr for Tolerance {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("tolerance", text, problem, TOLERANCE_FORMS);
        if text.trim() == "0" {
            return Ok(Self {
                runtime_ns: 0,
                ..Self::default()
            });
        }
        let (runtime, period) = text.split_once('/').ok_or_else(|| error("has no period"))?;
        let runtime_ns = units::duration_ns(runtime).map_err(|e| error(e.problem()))?;
        let period_ns = units::duration_ns(period).map_err(|e| error(e.problem()))?;
        if !(core::TOLERANCE_PERIOD_MIN_NS..=core::TOLERANCE_PERIOD_MAX_NS).contains(&period_ns) {
            return Err(error("has a period out of range"));
        }
        if runtime_ns > period_ns {
            return Err(error("has a runtime longer than its period"));
        }
        if runtime_ns > core::TOLERANCE_RUNTIME_MAX_NS {
            return Err(error("has a runtime out of range"));
        }
        Ok(Self {
            runtime_ns,
            period_ns,
        })
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}",
            units::show_duration(self.runtime_ns),
            units::show_duration(self.period_ns)
        )
    }
}

serde_as_text!(Headroom, Tolerance);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_parse() {
        assert_eq!("30%".parse(), Ok(Headroom::Share(300_000)));
        assert_eq!("2cpus".parse(), Ok(Headroom::Cpus(2)));
        assert_eq!(Headroom::Cpus(1).share_ppm(2), 500_000);
        assert_eq!(Headroom::Cpus(9).share_ppm(2), 1_000_000);
        assert_eq!("1ms/100ms".parse(), Ok(Tolerance::default()));
        assert_eq!("0".parse::<Tolerance>().unwrap().runtime_ns, 0);
    }
}
