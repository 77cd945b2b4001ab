//! Headroom and tolerance.

use std::fmt;
use std::str::FromStr;

use plimsoll_policy::headroom::{self as core, CoreDemand, CoreHeadroom, CoreTolerance};

use super::Knobs;
use super::error::KnobError;
use super::serde_as_text;
use super::units::{self, PPM};

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

/// Demand of several groups together: the largest headroom and the smallest tolerance, by the
/// policy core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadroomDemand(CoreDemand);

impl HeadroomDemand {
    /// Counts one group. A headroom without a tolerance adds the default one.
    pub fn add(&mut self, headroom: Option<Headroom>, tolerance: Option<Tolerance>) {
        let tolerance = tolerance.map(|tolerance| CoreTolerance {
            runtime_ns: tolerance.runtime_ns,
            period_ns: tolerance.period_ns,
        });
        self.0.add(headroom.map(Into::into), tolerance);
    }

    /// Returns the headroom in force on `nr_cpus` CPUs. Where CPUs have gone offline since it was
    /// asked for, it is all that are left.
    pub fn in_force(&self, nr_cpus: u32) -> Option<Headroom> {
        self.0
            .in_force(nr_cpus)
            .map(|headroom| match headroom.into() {
                Headroom::Cpus(cpus) => Headroom::Cpus(cpus.min(nr_cpus)),
                share => share,
            })
    }

    #[must_use]
    pub fn has_headroom(&self) -> bool {
        self.0.in_force(1).is_some()
    }

    /// Returns the largest headroom in the other form, which is not in force.
    pub fn overruled(&self, nr_cpus: u32) -> Option<Headroom> {
        self.0.overruled(nr_cpus).map(Into::into)
    }

    /// Returns the tolerance in force; the default where no group has brought one.
    pub fn tolerance(&self) -> Tolerance {
        let CoreTolerance {
            runtime_ns,
            period_ns,
        } = self.0.tolerance();
        Tolerance {
            runtime_ns,
            period_ns,
        }
    }

    /// Replaces headroom and tolerance of a batch group by those in force, for people. Without a
    /// headroom in force the group keeps its own. The default tolerance is left out where the group
    /// names none.
    pub fn show_on(&self, knobs: &mut Knobs, nr_cpus: u32) {
        let Some(headroom) = self.in_force(nr_cpus) else {
            return;
        };
        let tolerance = self.tolerance();
        if knobs.tolerance.is_some() || tolerance != Tolerance::default() {
            knobs.tolerance = Some(tolerance);
        }
        knobs.headroom = Some(headroom);
    }
}

impl<'a> FromIterator<&'a Knobs> for HeadroomDemand {
    fn from_iter<T: IntoIterator<Item = &'a Knobs>>(groups: T) -> Self {
        let mut demand = Self::default();
        for knobs in groups {
            demand.add(knobs.headroom, knobs.tolerance);
        }
        demand
    }
}

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

    #[test]
    fn more_cpus_than_are_left_are_all_that_are_left() {
        let mut demand = HeadroomDemand::default();
        demand.add(Some(Headroom::Cpus(3)), None);
        assert_eq!(demand.in_force(4), Some(Headroom::Cpus(3)));
        assert_eq!(demand.in_force(2), Some(Headroom::Cpus(2)));
    }

    #[test]
    fn a_batch_group_shows_the_largest_headroom_with_the_smallest_tolerance() {
        let knobs = |json: &str| serde_json::from_str::<Knobs>(json).unwrap();
        let shown = |demanded: &[&str], json: &str| {
            let groups: Vec<Knobs> = demanded.iter().map(|json| knobs(json)).collect();
            let demand: HeadroomDemand = groups.iter().collect();
            let mut shown = knobs(json);
            demand.show_on(&mut shown, 4);
            shown
        };
        let demanded = [
            r#"{"headroom": "10%", "tolerance": "5ms/100ms"}"#,
            r#"{"class": "batch", "headroom": "30%", "tolerance": "2ms/100ms"}"#,
        ];
        let expected = knobs(r#"{"nice": "5", "headroom": "30%", "tolerance": "2ms/100ms"}"#);
        assert_eq!(shown(&demanded, r#"{"nice": "5"}"#), expected);
        assert_eq!(
            shown(&demanded, r#"{"nice": "5", "headroom": "20%"}"#),
            expected
        );
        // A headroom without a tolerance brings the default along, which is not shown.
        let unset = [demanded[0], r#"{"headroom": "30%"}"#];
        assert_eq!(shown(&unset, "{}"), knobs(r#"{"headroom": "30%"}"#));
        let own = shown(&unset, r#"{"tolerance": "9ms/100ms"}"#);
        assert_eq!(own.tolerance, Some(Tolerance::default()));
        for json in ["{}", r#"{"tolerance": "0"}"#] {
            assert_eq!(shown(&[], json), knobs(json));
        }
    }

    #[test]
    fn bad_values_are_refused() {
        for text in ["101%", "-1%", "1.5cpus", "30", "", "NaN%"] {
            assert!(text.parse::<Headroom>().is_err(), "{text}");
        }
        for text in [
            "1ms",
            "2ms/1ms",
            "2s/5s",
            "1ms/20s",
            "1ms/0ms",
            "-1ms/100ms",
            "",
        ] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
    }
}
