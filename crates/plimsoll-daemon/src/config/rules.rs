//! All groups of the file, and which of them match a cgroup.

use std::collections::BTreeSet;
use std::ops::Deref;

use globset::{Glob, GlobSet};

use super::patterns::TooLarge;
use super::rule::{Match, Rule};

/// The groups in the order of the file, which is their precedence. They read
/// as a slice and do not change.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    paths: PatternSet,
    units: PatternSet,
}

impl Rules {
    pub(super) fn new(rules: Vec<Rule>) -> Result<Self, TooLarge> {
        let patterns = |of: fn(&Match) -> &Option<Vec<Glob>>| {
            let rules = rules.iter().enumerate();
            PatternSet::new(rules.flat_map(|(number, rule)| {
                let globs = of(&rule.matches).iter().flatten();
                globs.map(move |glob| (glob, number))
            }))
        };
        Ok(Self {
            paths: patterns(|matches| &matches.cgroup)?,
            units: patterns(|matches| &matches.unit)?,
            rules,
        })
    }

    /// The groups that match a cgroup, in the order of the file. `path`
    /// is its path below the mount point, with a `/` in front; `unit` is its
    /// own name, if that is a systemd unit's.
    pub(crate) fn matching(&self, path: &str, unit: Option<&str>) -> impl Iterator<Item = &Rule> {
        let by_path = self.paths.matching(path);
        let by_unit = unit.map_or_else(BTreeSet::new, |unit| self.units.matching(unit));
        let either = (&by_path | &by_unit).into_iter();
        let rules = either.map(|number| (number, &self.rules[number]));
        rules.filter_map(move |(number, rule)| {
            let Match { cgroup, unit } = &rule.matches;
            let is_match = (cgroup.is_none() || by_path.contains(&number))
                && (unit.is_none() || by_unit.contains(&number));
            is_match.then_some(rule)
        })
    }
}

/// Patterns of all rules, compiled together.
#[derive(Debug, Clone, Default)]
struct PatternSet {
    set: GlobSet,
    /// Numbers of the rules, by the number of the pattern in the set.
    rules: Vec<usize>,
}

impl PatternSet {
    fn new<'a>(patterns: impl Iterator<Item = (&'a Glob, usize)>) -> Result<Self, TooLarge> {
        let (globs, rules): (Vec<&Glob>, Vec<usize>) = patterns.unzip();
        let set = GlobSet::new(globs)?;
        Ok(Self { set, rules })
    }

    /// Returns the rules that have a pattern that matches the whole text.
    ///
    /// The library takes a text that ends in a `.` for a path without a file name: patterns that
    /// begin with `*.` or `**/` may not match it.
    fn matching(&self, text: &str) -> BTreeSet<usize> {
        let patterns = self.set.matches(text).into_iter();
        patterns.map(|index| self.rules[index]).collect()
    }
}

impl Deref for Rules {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.rules
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.rules.iter()
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}
