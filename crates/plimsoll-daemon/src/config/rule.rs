//! Groups of the file: the match and the knobs of each.

use std::collections::{HashMap, HashSet};
use std::fmt;

use globset::{Glob, GlobSet};
use plimsoll_engine::cgroup::check_one_cgroup;
use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::host::nr_cpus_present;
use plimsoll_engine::knobs::{BandwidthLine, Knobs, from_word};
use plimsoll_engine::text_file::{FileError, Source};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::patterns::{PatternError, TooLarge, parse_cgroup, parse_unit};
use super::{EnforcerWanted, check_keys, gone, read, table_of};

/// Prefix of the name of a group of a single process.
pub(crate) const PROCESS_GROUP: &str = "pid-";
/// Description of the allowed patterns, for messages.
const PATTERNS_ALLOWED: &str =
    "a pattern, or a list of patterns, with * and ? for what may be anything";
/// Description of a match, for messages.
const MATCH_ALLOWED: &str =
    "the cgroups of the group, such as { cgroup = \"/system.slice/nginx.service\" }";
/// The keys of a group that are no knobs.
const OTHER_KEYS: [&str; 3] = ["name", "match", "cpu-max"];
const KEYS: [&str; 16] = [
    "name",
    "match",
    "class",
    "nice",
    "weight",
    "quota",
    "burst",
    "cpu-max",
    "cap",
    "soft-cap",
    "half-life",
    "per-task",
    "headroom",
    "tolerance",
    "cpu-limit",
    "host-tuning",
];

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Unique in the file.
    pub name: String,
    pub matches: Match,
    pub knobs: Knobs,
}

/// Conditions of a group, all of which have to be true. At least one is given. The knobs apply
/// to each matching cgroup separately.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    /// The cgroup's path below the mount point, with a `/` in front.
    pub cgroup: Option<Vec<Glob>>,
    /// The name of the systemd unit that the cgroup is: the last part of its path, if that ends
    /// in `.service`, `.scope` or `.slice`.
    pub unit: Option<Vec<Glob>>,
}

impl Match {
    /// Returns whether the match names a cgroup by its path.
    pub(crate) fn names(&self, path: &str) -> bool {
        self.cgroup.iter().flatten().any(|glob| glob.glob() == path)
    }

    /// Returns the patterns that alone decide the match, each with its key: another group with the
    /// same pattern overlaps with this one, whichever cgroups exist. Where both keys are given, the
    /// overlap depends on the cgroup, and nothing is returned.
    fn sole_patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let is_sole = self.cgroup.is_none() || self.unit.is_none();
        let cgroups = self.cgroup.iter().flatten();
        let units = self.unit.iter().flatten();
        let cgroups = cgroups.map(|glob| ("cgroup", glob.glob()));
        let all = cgroups.chain(units.map(|glob| ("unit", glob.glob())));
        all.filter(move |_| is_sole)
    }
}

/// A group as it is written, but for its match and its knobs.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Written {
    name: Option<String>,
    #[serde(default, deserialize_with = "cpu_max")]
    cpu_max: Option<BandwidthLine>,
}

fn cpu_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BandwidthLine>, D::Error> {
    from_word(deserializer).map(Some)
}

pub(super) fn read_all(
    source: &Source,
    groups: Option<Spanned<DeValue<'_>>>,
    enforcer: EnforcerWanted,
) -> Result<Vec<Rule>, FileError> {
    let not_tables = |value: &Spanned<DeValue<'_>>| {
        let kind = value.get_ref().type_str();
        let problem = format!("group: {kind} is not allowed; allowed: tables, [[group]] each");
        source.error(value.span().start, problem)
    };
    let Some(groups) = groups else {
        return Ok(Vec::new());
    };
    let Some(tables) = groups.get_ref().as_array() else {
        return Err(not_tables(&groups));
    };
    let mut earlier = Earlier::default();
    let rules = tables.iter().map(|value| match value.get_ref() {
        DeValue::Table(table) => {
            let start = value.span().start;
            let table = FileTable {
                source,
                start,
                table,
                enforcer,
            };
            let rule = table.read()?;
            earlier.add(&table, &rule)?;
            Ok(rule)
        }
        _ => Err(not_tables(value)),
    });
    rules.collect()
}

/// Names and patterns of earlier groups.
#[derive(Default)]
struct Earlier {
    names: HashSet<String>,
    /// Patterns with their keys, and the names of their groups.
    patterns: HashMap<(&'static str, String), String>,
}

impl Earlier {
    /// Refuses a group with the name or a pattern of an earlier one. Whether
    /// different patterns overlap is only known where both match a cgroup: the
    /// first group of the file has it, and the overlap is reported.
    fn add(&mut self, table: &FileTable<'_>, rule: &Rule) -> Result<(), FileError> {
        let name = &rule.name;
        if !self.names.insert(name.clone()) {
            let problem = format!("`{name}` is another group's too; allowed: a name of its own");
            return Err(table.error("name", problem));
        }
        for (key, pattern) in rule.matches.sole_patterns() {
            let group = self.patterns.entry((key, pattern.to_owned()));
            let group = group.or_insert_with(|| name.clone());
            if group != name {
                let problem = format!(
                    "{key} `{pattern}` is a pattern of group `{group}`, too; allowed: one group \
                     for each"
                );
                return Err(table.error("match", problem));
            }
        }
        Ok(())
    }
}

/// The table of a group in the file.
struct FileTable<'a> {
    source: &'a Source,
    start: usize,
    table: &'a DeTable<'a>,
    enforcer: EnforcerWanted,
}

impl FileTable<'_> {
    /// An error about the value of a key, or, where that is not given, about the group.
    fn error(&self, key: &str, problem: impl fmt::Display) -> FileError {
        let value = self.table.get(key);
        let start = value.map_or(self.start, |value| value.span().start);
        self.source.error(start, format!("{key}: {problem}"))
    }

    fn read(&self) -> Result<Rule, FileError> {
        check_keys(self.source, self.table, "a group", &KEYS)?;
        let matches = self.table.get("match").map(|value| self.read_match(value));
        let matches = matches.transpose()?;
        let entries = self.table.clone().into_iter();
        let (others, knobs): (DeTable<'_>, DeTable<'_>) =
            entries.partition(|(key, _)| OTHER_KEYS.contains(&key.get_ref().as_ref()));
        let part = |table| Spanned::new(self.start..self.start, table);
        let Written { name, cpu_max } = read(self.source, part(others))?;
        let missing =
            |key, allowed: &str| self.error(key, format!("`` is missing; allowed: {allowed}"));
        let name = name.ok_or_else(|| missing("name", "the group's name in quotes"))?;
        let matches = matches.ok_or_else(|| missing("match", MATCH_ALLOWED))?;
        let knobs = self.with_cpu_max(read(self.source, part(knobs))?, cpu_max)?;
        check_name(&name).map_err(|error| self.error("name", error))?;
        if name.starts_with(PROCESS_GROUP) {
            let problem = format!(
                "`{name}` is not allowed; allowed: one that does not begin with \
                 `{PROCESS_GROUP}`, as groups of `plimsoll set PID` do"
            );
            return Err(self.error("name", problem));
        }
        if matches == Match::default() {
            return Err(self.error("match", "`` is empty; allowed: one or more of cgroup, unit"));
        }
        // A CPU that is offline may come back, and then the file is right.
        let checked = knobs
            .check()
            .and_then(|()| knobs.check_cpus(nr_cpus_present()));
        checked.map_err(|error| self.knob_error(error.knob, &error))?;
        // The scheduler needs no file of the cgroup for a quota, a cap or a weight.
        if self.enforcer != EnforcerWanted::SchedExt {
            let checked = check_one_cgroup(&knobs);
            checked.map_err(|error| self.knob_error(error.knob().unwrap_or_default(), &error))?;
        }
        Ok(Rule {
            name,
            matches,
            knobs,
        })
    }

    fn read_match(&self, value: &Spanned<DeValue<'_>>) -> Result<Match, FileError> {
        let table = table_of(self.source, "match", value)?;
        gone::check(self.source, table, "match.")?;
        check_keys(self.source, table, "a match", &["cgroup", "unit"])?;
        Ok(Match {
            cgroup: self.patterns(table, "cgroup", parse_cgroup)?,
            unit: self.patterns(table, "unit", parse_unit)?,
        })
    }

    /// Reads the pattern or the patterns of a key. `None`: it is not given.
    fn patterns(
        &self,
        table: &DeTable<'_>,
        key: &str,
        parse: fn(&str) -> Result<Glob, PatternError>,
    ) -> Result<Option<Vec<Glob>>, FileError> {
        let Some(value) = table.get(key) else {
            return Ok(None);
        };
        let refused = |value: &Spanned<DeValue<'_>>, problem: &dyn fmt::Display| {
            let problem = format!("{key}: {problem}; allowed: {PATTERNS_ALLOWED}");
            self.source.error(value.span().start, problem)
        };
        let list: Vec<_> = match value.get_ref() {
            DeValue::Array(list) => list.iter().collect(),
            _ => vec![value],
        };
        if list.is_empty() {
            return Err(refused(value, &"is empty"));
        }
        let glob = |value: &Spanned<DeValue<'_>>| {
            let Some(text) = value.get_ref().as_str() else {
                let kind = value.get_ref().type_str();
                let written = self.source.text()[value.span()].lines().next();
                let problem = format!("{kind} `{}` is no pattern", written.unwrap_or_default());
                return Err(refused(value, &problem));
            };
            parse(text).map_err(|error| refused(value, &format!("`{text}` {error}")))
        };
        let globs: Vec<Glob> = list.into_iter().map(glob).collect::<Result<_, _>>()?;
        // All patterns are compiled together later; these alone say which are too large.
        GlobSet::new(&globs).map_err(|error| {
            let problem = format!("{key}: {}", TooLarge::from(error));
            self.source.error(value.span().start, problem)
        })?;
        Ok(Some(globs))
    }

    /// Returns the knobs with quota and burst of the kernel's own line, if that is given.
    fn with_cpu_max(&self, knobs: Knobs, line: Option<BandwidthLine>) -> Result<Knobs, FileError> {
        let Some(line) = line else {
            return Ok(knobs);
        };
        for (key, is_set) in [
            ("quota", knobs.quota.is_some()),
            ("burst", knobs.burst.is_some()),
        ] {
            if is_set {
                let problem = "stands beside cpu-max; allowed: cpu-max alone, or quota and burst";
                return Err(self.error(key, problem));
            }
        }
        let complete = line.complete(None);
        let (quota, burst) = complete.map_err(|error| self.error("cpu-max", error))?;
        Ok(Knobs {
            quota: Some(quota),
            burst,
            ..knobs
        })
    }

    /// Converts an error of a knob, whose text names the knob itself.
    fn knob_error(&self, knob: &str, error: &impl fmt::Display) -> FileError {
        let value = self.table.get(knob);
        let start = value.map_or(self.start, |value| value.span().start);
        self.source.error(start, error.to_string())
    }
}
