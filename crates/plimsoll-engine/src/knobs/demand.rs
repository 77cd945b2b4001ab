//! Demand for headroom of several groups together.

use plimsoll_policy::headroom::{CoreDemand, CoreTolerance};

use super::Knobs;
use super::headroom::{Headroom, Tolerance};

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
}
