//! Quota, period and burst.

use std::fmt;
use std::str::FromStr;

use plimsoll_policy::bandwidth::{self as core, BandwidthParams};

use super::error::KnobError;
use super::units::{self, NSEC_PER_USEC, PPM};
use super::word::serde_as_text;

const QUOTA_FORMS: &str = "QUOTA/PERIOD such as 600ms/100ms (quota of at least 1ms, period of 1ms to 1s), or CPUs such as 6cpus";
const BURST_FORMS: &str = "a time of at least 0 such as 400ms; quota + burst up to 17592s";
const SLICE_FORMS: &str = "a time from 100us to 1s in whole microseconds, such as 5ms";
const CPU_MAX_FORMS: &str = "up to three values in microseconds, \"QUOTA PERIOD BURST\", such as \"600000 100000 400000\"; the quota may be max";

/// Runtime per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Runtime per period; `None`: unlimited.
    pub quota_ns: Option<u64>,
    pub period_ns: u64,
}

impl Quota {
    /// Returns the rate in ppm of one CPU; `None`: unlimited.
    pub fn rate_ppm(&self) -> Option<u64> {
        let quota_ns = u128::from(self.quota_ns?);
        let ppm = quota_ns * u128::from(PPM) / u128::from(self.period_ns.max(1));
        Some(u64::try_from(ppm).unwrap_or(u64::MAX))
    }
}

impl FromStr for Quota {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("quota", text, problem, QUOTA_FORMS);
        let quota = if let Some((quota, period)) = text.split_once('/') {
            let quota_ns = match quota.trim() {
                "max" => None,
                quota => Some(units::duration_ns(quota).map_err(|e| error(e.problem()))?),
            };
            let period_ns = units::duration_ns(period).map_err(|e| error(e.problem()))?;
            Self {
                quota_ns,
                period_ns,
            }
        } else if text.trim() == "max" {
            Self {
                quota_ns: None,
                period_ns: core::PERIOD_DEFAULT_NS,
            }
        } else {
            let ppm = units::cpus_ppm(text).map_err(|e| error(e.problem()))?;
            let period_ns = core::PERIOD_DEFAULT_NS;
            let quota_ns = ppm
                .checked_mul(period_ns / PPM)
                .ok_or_else(|| error("is too large"))?;
            Self {
                quota_ns: Some(quota_ns),
                period_ns,
            }
        };
        Bandwidth::of(quota, None)
            .check()
            .map_err(|e| error(&e.problem))?;
        Ok(quota)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quota_ns {
            None => f.write_str("max")?,
            Some(quota_ns) => f.write_str(&units::show_duration(quota_ns))?,
        }
        write!(f, "/{}", units::show_duration(self.period_ns))
    }
}

/// Unused quota that may be saved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Runtime; 0: none.
    pub burst_ns: u64,
}

impl FromStr for Burst {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("burst", text, problem, BURST_FORMS);
        let burst_ns = match text.trim() {
            "0" => 0,
            text => units::duration_ns(text).map_err(|e| error(e.problem()))?,
        };
        if burst_ns > plimsoll_policy::RUNTIME_MAX_NS {
            return Err(error("is too large"));
        }
        Ok(Self { burst_ns })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_duration(self.burst_ns))
    }
}

/// Quota, period and burst on one line, in microseconds as in the kernel's `cpu.max`. Missing
/// values keep those in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandwidthLine {
    /// Quota; `Some(None)` is `max`.
    pub quota_ns: Option<Option<u64>>,
    pub period_ns: Option<u64>,
    pub burst_ns: Option<u64>,
}

impl BandwidthLine {
    /// Completes missing values from those in force.
    ///
    /// # Errors
    /// When the completed values are out of range.
    pub fn complete(&self, old: Option<Bandwidth>) -> Result<(Quota, Option<Burst>), KnobError> {
        let old_quota = old.map(|b| b.quota);
        let quota = Quota {
            quota_ns: self.quota_ns.unwrap_or(old_quota.and_then(|q| q.quota_ns)),
            period_ns: self
                .period_ns
                .or(old_quota.map(|q| q.period_ns))
                .unwrap_or(core::PERIOD_DEFAULT_NS),
        };
        // A burst of 0 that is in force is left out, one that is asked for is not.
        let old_burst = old.map(|b| b.burst_ns).filter(|ns| *ns > 0);
        // One above the quota is not asked for either: as much of it stays as the kernel takes.
        let old_burst =
            old_burst.filter(|ns| quota.quota_ns.is_none_or(|quota_ns| *ns <= quota_ns));
        let burst_ns = self.burst_ns.or(old_burst);
        let burst = burst_ns.map(|burst_ns| Burst { burst_ns });
        Bandwidth::of(quota, burst).check()?;
        Ok((quota, burst))
    }
}

impl FromStr for BandwidthLine {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("cpu-max", text, problem, CPU_MAX_FORMS);
        let microseconds = |word: &str| {
            if word.starts_with('-') {
                return Err(error("has a negative value"));
            }
            let value: u64 = word
                .parse()
                .map_err(|_| error("has a value that is no number"))?;
            value
                .checked_mul(NSEC_PER_USEC)
                .ok_or_else(|| error("is too large"))
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() || words.len() > 3 {
            return Err(error(if words.is_empty() {
                "is empty"
            } else {
                "has too many values"
            }));
        }
        let quota_ns = match words[0] {
            "max" => None,
            word => Some(microseconds(word)?),
        };
        let line = Self {
            quota_ns: Some(quota_ns),
            period_ns: words.get(1).map(|word| microseconds(word)).transpose()?,
            burst_ns: words.get(2).map(|word| microseconds(word)).transpose()?,
        };
        line.complete(None).map_err(|e| error(&e.problem))?;
        Ok(line)
    }
}

/// Runtime that a CPU takes from a group's quota at once; one value for the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandwidthSlice {
    /// 100 µs to 1 s, in whole microseconds.
    pub slice_ns: u64,
}

impl Default for BandwidthSlice {
    fn default() -> Self {
        Self {
            slice_ns: core::SLICE_DEFAULT_NS,
        }
    }
}

impl FromStr for BandwidthSlice {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let error = |problem: &str| KnobError::new("bandwidth-slice", text, problem, SLICE_FORMS);
        let slice_ns = units::duration_ns(text).map_err(|e| error(e.problem()))?;
        if !(core::SLICE_MIN_NS..=core::SLICE_MAX_NS).contains(&slice_ns) {
            return Err(error("is out of range"));
        }
        if slice_ns % NSEC_PER_USEC != 0 {
            return Err(error("is finer than can be set"));
        }
        Ok(Self { slice_ns })
    }
}

impl fmt::Display for BandwidthSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&units::show_duration(self.slice_ns))
    }
}

/// Quota, period and burst together, as people and other programs give and take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    pub quota: Quota,
    /// Burst; 0: none.
    pub burst_ns: u64,
}

impl Bandwidth {
    pub fn of(quota: Quota, burst: Option<Burst>) -> Self {
        Self {
            quota,
            burst_ns: burst.map_or(0, |b| b.burst_ns),
        }
    }

    /// Asks the core whether these values are in range.
    ///
    /// # Errors
    /// Names a value that is out of range.
    pub fn check(&self) -> Result<(), KnobError> {
        let params = BandwidthParams {
            period_ns: self.quota.period_ns,
            quota_ns: self.quota.quota_ns,
            burst_ns: self.burst_ns,
            slice_ns: core::SLICE_DEFAULT_NS,
        };
        params.check().map_err(|_| {
            let quota = self.quota;
            let period_bad =
                quota.period_ns < core::PERIOD_MIN_NS || quota.period_ns > core::PERIOD_MAX_NS;
            let problem = if period_bad {
                "has a period outside 1ms … 1s"
            } else if quota.quota_ns.is_some_and(|ns| ns < core::QUOTA_MIN_NS) {
                "is a quota under 1ms"
            } else {
                "is beyond 17592s (2^44 ns) together with its burst"
            };
            let value = match self.burst_ns {
                0 => quota.to_string(),
                ns => format!("{quota} with burst {}", units::show_duration(ns)),
            };
            KnobError::new("quota", value, problem, QUOTA_FORMS)
        })
    }
}

serde_as_text!(Quota, Burst, BandwidthSlice);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_have_the_range_of_the_core() {
        for text in ["100us", "5ms", "1s"] {
            assert_eq!(text.parse::<BandwidthSlice>().unwrap().to_string(), text);
        }
        for text in ["99us", "1.1s", "100.5us", "5", "-5ms", ""] {
            let error = text.parse::<BandwidthSlice>().unwrap_err().to_string();
            assert!(error.contains("100us to 1s"), "{error}");
        }
        assert_eq!(BandwidthSlice::default().to_string(), "5ms");
    }

    #[test]
    fn the_forms_of_the_specification_parse() {
        let quota: Quota = "600ms/100ms".parse().unwrap();
        assert_eq!(
            (quota.quota_ns, quota.period_ns),
            (Some(600_000_000), 100_000_000)
        );
        assert_eq!("6cpus".parse::<Quota>().unwrap(), quota);
        assert_eq!(quota.rate_ppm(), Some(6_000_000));
        let line: BandwidthLine = "600000 100000 400000".parse().unwrap();
        let burst = Some("400ms".parse().unwrap());
        assert_eq!(line.complete(None).unwrap(), (quota, burst));
    }

    #[test]
    fn a_partial_line_keeps_the_rest() {
        let burst: Option<Burst> = Some("10ms".parse().unwrap());
        let old = Bandwidth::of("50ms/200ms".parse().unwrap(), burst);
        let line: BandwidthLine = "max".parse().unwrap();
        let unlimited = "max/200ms".parse().unwrap();
        assert_eq!(line.complete(Some(old)).unwrap(), (unlimited, burst));
    }

    #[test]
    fn lines_and_sums_out_of_range_are_refused() {
        for text in [
            "1 2 3 4",
            "",
            "x",
            "-5 100000",
            "500 100000",
            "50000 1000001",
            "17000000000 1000000 900000000",
        ] {
            assert_eq!(
                text.parse::<BandwidthLine>().unwrap_err().knob,
                "cpu-max",
                "{text}"
            );
        }
        let sum = Bandwidth::of("17000s/1s".parse().unwrap(), Some("1000s".parse().unwrap()));
        assert!(sum.check().unwrap_err().to_string().contains("2^44"));
    }
}
