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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Config;
    use super::*;

    fn config(matches: impl Iterator<Item = String>) -> Config {
        let mut text = String::from("version = 1\n");
        for (index, matches) in matches.enumerate() {
            text += &format!("[[group]]\nname = \"g{index}\"\nmatch = {{ {matches} }}\n");
        }
        Config::parse("p.toml", &text).unwrap()
    }

    fn names<'a>(rules: impl Iterator<Item = &'a Rule>) -> Vec<&'a str> {
        rules.map(|rule| rule.name.as_str()).collect()
    }

    fn unit_of(path: &str) -> Option<&str> {
        let own = path.rsplit('/').next().unwrap();
        let units = [".service", ".scope", ".slice"];
        let is_unit = |end: &&str| own.ends_with(end) && own.len() > end.len();
        units.iter().any(is_unit).then_some(own)
    }

    /// The groups that match, each pattern tried by itself.
    fn one_by_one<'a>(config: &'a Config, path: &str) -> Vec<&'a str> {
        let any = |globs: &[Glob], text: &str| {
            let mut globs = globs.iter();
            globs.any(|glob| glob.compile_matcher().is_match(text))
        };
        let is_match = |rule: &&Rule| {
            let (cgroup, unit) = (&rule.matches.cgroup, &rule.matches.unit);
            let cgroup = cgroup.as_ref();
            let unit = unit.as_ref();
            cgroup.is_none_or(|patterns| any(patterns, path))
                && unit.is_none_or(|patterns| unit_of(path).is_some_and(|unit| any(patterns, unit)))
        };
        names(config.rules.iter().filter(is_match))
    }

    fn by_sets<'a>(config: &'a Config, path: &str) -> Vec<&'a str> {
        names(config.rules.matching(path, unit_of(path)))
    }

    proptest! {
        #[test]
        fn the_sets_match_as_each_pattern_by_itself(
            patterns in prop::collection::vec(
                ("(/(a|b|\\*|\\*\\*|a\\*|\\*b|\\?|\\[ab\\]|\\{a,b\\}|a\\.slice|\\*\\.slice)){1,3}", 0..4u8), 1..12),
            paths in prop::collection::vec("(/(a|b|ab|a\\.slice|b\\.slice)){1,3}", 1..20),
        ) {
            let mut seen = std::collections::HashSet::new();
            let matches = patterns.iter().map(|(pattern, kind)| match kind {
                0 | 1 => format!("cgroup = \"{pattern}\""),
                2 => format!("unit = \"{}\"", pattern.rsplit('/').next().unwrap()),
                _ => format!("cgroup = [\"{pattern}\", \"/x*\"], unit = \"*.slice\""),
            });
            let config = config(matches.filter(|matches| seen.insert(matches.clone())));
            for path in paths {
                prop_assert_eq!(by_sets(&config, &path), one_by_one(&config, &path), "{}", path);
            }
        }
    }
}
