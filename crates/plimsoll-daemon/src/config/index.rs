//! Which patterns may match a text, without trying all of them.
//!
//! Every pattern begins or ends with something that stands for itself alone.
//! It is filed under whichever of both fewer others have, and tried on texts
//! that begin or end so.

use std::collections::{BTreeSet, HashMap};

use super::patterns::{ends, is_literal};

/// Patterns, each with the number of the rule that has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// Those without wildcards.
    literal: Numbers,
    by_start: Numbers,
    by_end: Numbers,
    /// The lengths of what they are filed under, in bytes.
    starts: BTreeSet<usize>,
    ends: BTreeSet<usize>,
}

type Numbers = HashMap<Box<str>, Vec<u32>>;

impl Index {
    pub(super) fn new(patterns: &[(&str, u32)]) -> Self {
        let mut index = Self::default();
        let (mut starts, mut ends_) = (HashMap::new(), HashMap::new());
        let wild = patterns.iter().filter(|(text, _)| !is_literal(text));
        for (text, _) in wild {
            let (start, end) = ends(text);
            *starts.entry(start).or_insert(0) += 1;
            *ends_.entry(end).or_insert(0) += 1;
        }
        for (text, number) in patterns {
            let (start, end) = ends(text);
            if is_literal(text) {
                file(&mut index.literal, text, *number);
            } else if (starts[start], end.len()) <= (ends_[end], start.len()) {
                file(&mut index.by_start, start, *number);
                index.starts.insert(start.len());
            } else {
                file(&mut index.by_end, end, *number);
                index.ends.insert(end.len());
            }
        }
        index
    }

    /// The rules of which some pattern may match a text: all that do, and some
    /// more.
    pub(super) fn candidates(&self, text: &str, found: &mut Vec<u32>) {
        let start = |length: &usize| self.by_start.get(text.get(..*length)?);
        let end = |length: &usize| {
            let rest = text.len().checked_sub(*length)?;
            self.by_end.get(text.get(rest..)?)
        };
        let filed = self.literal.get(text).into_iter();
        let filed = filed.chain(self.starts.iter().filter_map(start));
        let filed = filed.chain(self.ends.iter().filter_map(end));
        found.extend(filed.flatten());
    }
}

fn file(numbers: &mut Numbers, under: &str, number: u32) {
    match numbers.get_mut(under) {
        Some(numbers) => numbers.push(number),
        None => {
            numbers.insert(under.into(), vec![number]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};
    use proptest::prelude::*;

    use super::super::Config;

    /// What this thread has run: others on the machine do not count.
    fn cpu_time() -> Duration {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
            .unwrap()
            .into()
    }

    fn config(matches: impl Iterator<Item = String>) -> Config {
        let mut text = String::from("version = 1\n");
        for (index, matches) in matches.enumerate() {
            text += &format!("[[group]]\nname = \"g{index}\"\nmatch = {{ {matches} }}\n");
        }
        Config::parse("p.toml", &text).unwrap()
    }

    /// The names of the first groups that match, all tried one after the other.
    fn slowly<'a>(config: &'a Config, path: &str) -> Vec<&'a str> {
        let rules = config.rules.iter();
        let own = path.rsplit('/').next().unwrap();
        let units = [".service", ".scope", ".slice"];
        let is_unit = units
            .iter()
            .any(|end| own.ends_with(end) && own.len() > end.len());
        let matches = rules.filter(|rule| {
            let matches = &rule.matches;
            let cgroup = matches.cgroup.as_ref();
            let unit = matches.unit.as_ref();
            !matches.is_of_processes()
                && cgroup.is_none_or(|patterns| patterns.match_text(path))
                && unit.is_none_or(|patterns| is_unit && patterns.match_text(own))
        });
        matches.take(2).map(|rule| rule.name.as_str()).collect()
    }

    fn quickly<'a>(config: &'a Config, path: &str) -> Vec<&'a str> {
        let Some(claim) = config.claim_of_cgroup(path) else {
            return Vec::new();
        };
        let rival = claim.rival.map(|rule| rule.name.as_str());
        std::iter::once(claim.rule.name.as_str())
            .chain(rival)
            .collect()
    }

    /// Groups as large hosts have them: most of one cgroup or unit, some with
    /// wildcards in various places.
    fn rule(number: usize) -> String {
        match number % 10 {
            0 => format!("cgroup = \"/tenants.slice/t{number}-*\""),
            1 => format!("unit = \"job{number}-*.service\""),
            2 => format!("cgroup = \"/**/worker-{number}\""),
            3 => format!("cgroup = [\"/a.slice/s{number}.service\", \"/b/s{number}/*\"]"),
            4 => format!("unit = \"*-{number}.scope\", cgroup = \"/user.slice/**\""),
            5 => format!("executable = \"e{number}\""),
            _ if number == 999 => "cgroup = \"/**\"".into(),
            _ => format!("cgroup = \"/system.slice/s{number}.service\""),
        }
    }

    fn path(number: usize) -> String {
        let rule = number % 1000;
        match number % 10 {
            0 => format!("/tenants.slice/t{rule}-{number}"),
            1 => format!("/user.slice/job{rule}-{number}.service"),
            2 => format!("/pods/{number}/worker-{rule}"),
            3 if number.is_multiple_of(4) => format!("/a.slice/s{rule}.service"),
            3 => format!("/b/s{rule}/x"),
            4 => format!("/user.slice/user-0.slice/session-{rule}.scope"),
            _ => format!("/system.slice/s{rule}.service"),
        }
    }

    #[test]
    fn a_thousand_groups_and_ten_thousand_cgroups_are_matched_as_one_by_one_but_soon() {
        let config = config((0..1000).map(rule));
        let paths: Vec<String> = (0..10_000).map(path).collect();
        let start = cpu_time();
        let claims: Vec<Vec<&str>> = paths.iter().map(|path| quickly(&config, path)).collect();
        let taken = cpu_time() - start;
        assert!(taken < Duration::from_secs(2), "{taken:?}");
        // One by one takes too long for all of them.
        for (path, claim) in paths.iter().zip(&claims).step_by(13) {
            assert_eq!(*claim, slowly(&config, path), "{path}");
        }
        for (number, claim) in claims.iter().enumerate() {
            let number = number % 1000;
            let expected = match number % 10 {
                5 => vec!["g999".to_owned()],
                _ if number == 999 => vec!["g999".to_owned()],
                _ => vec![format!("g{number}"), "g999".to_owned()],
            };
            assert_eq!(*claim, expected, "{number}");
        }
    }

    #[test]
    fn few_groups_are_tried_for_one_cgroup() {
        let config = config((0..1000).map(rule));
        for number in 0..1000 {
            let path = path(number);
            let unit = path.rsplit('/').next();
            let tried = config.rules.candidates(&path, unit).count();
            assert!(tried < 110, "{path}: {tried}");
        }
    }

    proptest! {
        /// Whatever the patterns, those that match are found.
        #[test]
        fn what_is_found_is_what_is_there(
            patterns in prop::collection::vec(
                ("(/(a|b|\\*|\\*\\*|a\\*|\\*b|\\?|\\[ab\\]|\\{a,b\\}|a\\.slice|\\*\\.slice)){1,3}", 0..4u8), 1..12),
            paths in prop::collection::vec("(/(a|b|ab|a\\.slice|b\\.slice)){1,3}", 1..20),
        ) {
            let mut seen = std::collections::HashSet::new();
            let patterns = patterns.into_iter().filter(|(pattern, _)| seen.insert(pattern.clone()));
            let config = config(patterns.map(|(pattern, kind)| match kind {
                0 | 1 => format!("cgroup = \"{pattern}\""),
                2 => format!("unit = \"{}\"", &pattern[1..]),
                _ => format!("cgroup = [\"{pattern}\", \"/x*\"], unit = \"*.slice\""),
            }));
            for path in paths {
                prop_assert_eq!(quickly(&config, &path), slowly(&config, &path), "{}", path);
            }
        }
    }
}
