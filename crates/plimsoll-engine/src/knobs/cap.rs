//! Rate caps, hard and soft, and the half-life of the usage rate.

use std::fmt;
use std::str::FromStr;

use plimsoll_policy::ratecap as core;

use super::error::KnobError;
use super::units::{self, PPM};
use super::word::serde_as_text;

const CAP_FORMS: &str = "a share of one CPU from 0.1% in steps of 0.1%, such as 25% or 150%";
const SOFT_CAP_FORMS: &str =
    "a share of one CPU from 0% in steps of 0.1%, such as 10%; 0% means always in the background";
const HALF_LIFE_FORMS: &str = "a time from 50ms to 60s, such as 5s";

/// Parses a share of one CPU into per mille.
fn permille(knob: &'static str, text: &str, forms: &str) -> Result<u32, KnobError> {
    let error = |problem: &str| KnobError::new(knob, text, problem, forms);
    let ppm = units::percent_ppm(text).map_err(|e| error(e.problem()))?;
    if ppm % (PPM / 1000) != 0 {
        return Err(error("is finer than can be set"));
    }
    u32::try_from(ppm / (PPM / 1000))
        .ok()
        .filter(|permille| *permille <= core::CAP_MAX_PERMILLE)
        .ok_or_else(|| error("is more than 8192 CPUs"))
}

/// Hard cap, as a share of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// 1 (0.1 %) and up.
    pub permille: u32,
}

impl FromStr for Cap {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let permille = permille("cap", text, CAP_FORMS)?;
        if permille < core::CAP_MIN_PERMILLE {
            return Err(KnobError::new(
                "cap",
                text,
                "would stop the work for good",
                CAP_FORMS,
            ));
        }
        Ok(Self { permille })
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_percent(u64::from(self.permille) * 1000))
    }
}

/// Soft cap, as a share of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftCap {
    /// 0: always in the background.
    pub permille: u32,
}

impl FromStr for SoftCap {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        Ok(Self {
            permille: permille("soft-cap", text, SOFT_CAP_FORMS)?,
        })
    }
}

impl fmt::Display for SoftCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_percent(u64::from(self.permille) * 1000))
    }
}

/// Time after which past runtime counts half in the usage rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfLife {
    /// 50 ms to 60 s.
    pub half_life_ns: u64,
}

impl Default for HalfLife {
    fn default() -> Self {
        Self {
            half_life_ns: core::HALF_LIFE_DEFAULT_NS,
        }
    }
}

impl FromStr for HalfLife {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("half-life", text, problem, HALF_LIFE_FORMS);
        let half_life_ns = units::duration_ns(text).map_err(|e| error(e.problem()))?;
        if !(core::HALF_LIFE_MIN_NS..=core::HALF_LIFE_MAX_NS).contains(&half_life_ns) {
            return Err(error("is out of range"));
        }
        Ok(Self { half_life_ns })
    }
}

impl fmt::Display for HalfLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_duration(self.half_life_ns))
    }
}

serde_as_text!(Cap, SoftCap, HalfLife);
