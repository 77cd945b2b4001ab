//! Class, nice, weight and per-CPU limit.

use std::fmt;
use std::str::FromStr;

use plimsoll_policy::order as core;

use super::error::KnobError;
use super::units::{self, PPM};
use super::word::serde_as_text;

/// Rank of a group among all work of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Rank of all other work.
    Normal,
    /// Rank below normal work: runs only in time that no other work uses.
    Batch,
}

impl FromStr for Class {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        match text {
            "normal" => Ok(Self::Normal),
            "batch" => Ok(Self::Batch),
            _ => Err(KnobError::new(
                "class",
                text,
                "is not a class",
                "normal or batch",
            )),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Batch => "batch",
        })
    }
}

/// Parses a whole number in a range, for `nice` and `weight`.
fn whole<T: FromStr + PartialOrd + fmt::Display>(
    knob: &'static str,
    text: &str,
    low: T,
    high: T,
) -> Result<T, KnobError> {
    let allowed = format!("a whole number from {low} to {high}");
    match text.trim().parse::<T>() {
        Err(_) => Err(KnobError::new(knob, text, "is not a whole number", allowed)),
        Ok(value) if value < low || value > high => {
            Err(KnobError::new(knob, text, "is out of range", allowed))
        }
        Ok(value) => Ok(value),
    }
}

/// Nice level, −20 (first) to 19 (last).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nice {
    pub nice: i32,
}

impl FromStr for Nice {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        Ok(Self {
            nice: whole("nice", text, core::NICE_MIN, core::NICE_MAX)?,
        })
    }
}

impl fmt::Display for Nice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.nice)
    }
}

/// Weight against sibling groups, as cgroup v2 `cpu.weight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// 1 … 10000; 100 is the default of every group.
    pub weight: u32,
}

impl FromStr for Weight {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let (low, high) = (core::GROUP_WEIGHT_MIN, core::GROUP_WEIGHT_MAX);
        Ok(Self {
            weight: whole("weight", text, low, high)?,
        })
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.weight)
    }
}

/// Largest share that batch work may use of any one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuLimit {
    /// 1 … 1,000,000.
    pub ppm: u32,
}

impl FromStr for CpuLimit {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        const FORMS: &str = "a share of each CPU above 0% and up to 100%, such as 80%";
        let error = |problem: &str| KnobError::new("cpu-limit", text, problem, FORMS);
        let ppm = units::percent_ppm(text).map_err(|e| error(e.problem()))?;
        if ppm == 0 || ppm > PPM {
            return Err(error("is out of range"));
        }
        // At most PPM, which fits.
        Ok(Self { ppm: ppm as u32 })
    }
}

impl fmt::Display for CpuLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_percent(u64::from(self.ppm)))
    }
}

serde_as_text!(Class, Weight, CpuLimit, Nice);
