//! All groups of the file, and which of them may claim a cgroup.

use std::ops::Deref;

use super::index::Index;
use super::patterns::Patterns;
use super::rule::Rule;

/// The groups in the order of the file, which is their precedence. They read
/// as a slice and do not change.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    paths: Index,
    units: Index,
    /// Groups that claim every cgroup.
    everywhere: Vec<u32>,
}

impl Rules {
    /// The groups that may claim a cgroup, in the order of the file: all that
    /// do, and some more. Its path is that below the mount point, with a `/` in
    /// front, and `unit` is its own name if that is one of a systemd unit.
    pub(crate) fn candidates(&self, path: &str, unit: Option<&str>) -> impl Iterator<Item = &Rule> {
        let mut numbers = self.everywhere.clone();
        self.paths.candidates(path, &mut numbers);
        if let Some(unit) = unit {
            self.units.candidates(unit, &mut numbers);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
            .into_iter()
            .map(|number| &self.rules[number as usize])
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        let (mut paths, mut units, mut everywhere) = (Vec::new(), Vec::new(), Vec::new());
        // A file of 4 MiB has fewer than 2^32.
        let of_cgroups = (0u32..).zip(&rules);
        for (number, rule) in of_cgroups.filter(|(_, rule)| !rule.matches.is_of_processes()) {
            match (&rule.matches.cgroup, &rule.matches.unit) {
                // Where both have to hold, one is enough to find it.
                (Some(patterns), _) => paths.extend(numbered(patterns, number)),
                (None, Some(patterns)) => units.extend(numbered(patterns, number)),
                (None, None) => everywhere.push(number),
            }
        }
        let (paths, units) = (Index::new(&paths), Index::new(&units));
        Self {
            rules,
            paths,
            units,
            everywhere,
        }
    }
}

fn numbered(patterns: &Patterns, number: u32) -> impl Iterator<Item = (&str, u32)> {
    patterns.texts().map(move |text| (text, number))
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

impl FromIterator<Rule> for Rules {
    fn from_iter<T: IntoIterator<Item = Rule>>(rules: T) -> Self {
        rules.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.rules == other.rules
    }
}
