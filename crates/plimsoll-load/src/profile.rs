//! Profile of a load over time: the CPU time that is due by any moment.

/// An interval of constant load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Share of one CPU, 0 to 1.
    pub(crate) share: f64,
    /// CPU time due by `from_ns`.
    due_before_ns: f64,
}

/// Contiguous phases from 0 to the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    phases: Vec<Phase>,
}

impl Profile {
    /// Creates a profile with `share` from 0 on, and with the share of each
    /// step from its time on, until `end_ns`. The steps are in ascending order
    /// and before the end.
    pub(crate) fn new(share: f64, steps: impl Iterator<Item = (u64, f64)>, end_ns: u64) -> Self {
        let mut phases = vec![Phase {
            from_ns: 0,
            to_ns: end_ns,
            share,
            due_before_ns: 0.0,
        }];
        for (at_ns, share) in steps {
            let due_before_ns = match phases.last_mut() {
                Some(last) => {
                    last.to_ns = at_ns;
                    last.due_ns(at_ns)
                }
                None => 0.0,
            };
            phases.push(Phase {
                from_ns: at_ns,
                to_ns: end_ns,
                share,
                due_before_ns,
            });
        }
        Self { phases }
    }

    pub(crate) fn phases(&self) -> &[Phase] {
        &self.phases
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.phases.last().map_or(0, |phase| phase.to_ns)
    }

    /// Index of the phase that contains `at_ns`; `None` from the end on.
    pub(crate) fn index_at(&self, at_ns: u64) -> Option<usize> {
        let index = self.phases.partition_point(|phase| phase.to_ns <= at_ns);
        (index < self.phases.len()).then_some(index)
    }

    /// CPU time of one CPU that is due from the start to `at_ns`.
    pub(crate) fn due_ns(&self, at_ns: u64) -> u64 {
        let at_ns = at_ns.min(self.end_ns());
        let index = self.index_at(at_ns).unwrap_or(self.phases.len() - 1);
        self.phases[index].due_ns(at_ns) as u64
    }
}

impl Phase {
    fn due_ns(&self, at_ns: u64) -> f64 {
        self.due_before_ns + self.share * (at_ns - self.from_ns) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_time_adds_up_over_the_phases() {
        let profile = Profile::new(0.4, [(1_000, 0.5), (3_000, 0.0)].into_iter(), 4_000);
        let at = [0, 500, 1_000, 2_000, 3_000, 3_500, 4_000, 9_000];
        let due = at.map(|t| profile.due_ns(t));
        assert_eq!(due, [0, 200, 400, 900, 1_400, 1_400, 1_400, 1_400]);
        let index = at.map(|t| profile.index_at(t));
        let expected = [0, 0, 1, 1, 2, 2].map(Some);
        assert_eq!(index[..6], expected);
        assert_eq!(index[6..], [None, None]);
        assert_eq!(profile.end_ns(), 4_000);
    }
}
