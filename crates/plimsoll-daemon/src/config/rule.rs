//! Groups of the file: the match and the knobs of each.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use globset::Glob;
use plimsoll_engine::cgroup::check_one_cgroup;
use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::host::nr_cpus_present;
use plimsoll_engine::knobs::{CpuMax, Knobs, from_word};
use plimsoll_engine::text_file::{FileError, Source};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::patterns::{PatternError, Patterns, parse_cgroup, parse_unit};
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
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Match {
    /// The cgroup's path below the mount point, with a `/` in front.
    #[serde(deserialize_with = "patterns::<_, CgroupPattern>")]
    pub cgroup: Option<Patterns>,
    /// The name of the systemd unit that the cgroup is: the last part of its path, if that ends
    /// in `.service`, `.scope` or `.slice`.
    #[serde(deserialize_with = "patterns::<_, UnitPattern>")]
    pub unit: Option<Patterns>,
}

impl Match {
    /// Returns the patterns that alone decide the match, each with its key: another group with the
    /// same pattern overlaps with this one, whichever cgroups exist. Where both keys are given, the
    /// overlap depends on the cgroup, and nothing is returned.
    fn sole_patterns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of = |key, patterns, other: &Option<Patterns>| {
            let patterns: Option<&Patterns> = if other.is_none() { patterns } else { None };
            let globs = patterns.into_iter().flat_map(Patterns::globs);
            globs.map(move |glob| (key, glob.glob()))
        };
        let cgroups = of("cgroup", self.cgroup.as_ref(), &self.unit);
        cgroups.chain(of("unit", self.unit.as_ref(), &self.cgroup))
    }
}

/// A group as it is written, but for its knobs.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Written {
    name: Option<String>,
    #[serde(rename = "match")]
    matches: Option<Match>,
    #[serde(default, deserialize_with = "cpu_max")]
    cpu_max: Option<CpuMax>,
}

fn cpu_max<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<CpuMax>, D::Error> {
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
            let table = Group {
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
    fn add(&mut self, table: &Group<'_>, rule: &Rule) -> Result<(), FileError> {
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
struct Group<'a> {
    source: &'a Source,
    start: usize,
    table: &'a DeTable<'a>,
    enforcer: EnforcerWanted,
}

impl Group<'_> {
    /// An error about the value of a key, or, where that is not given, about the group.
    fn error(&self, key: &str, problem: impl fmt::Display) -> FileError {
        let value = self.table.get(key);
        let start = value.map_or(self.start, |value| value.span().start);
        self.source.error(start, format!("{key}: {problem}"))
    }

    fn read(&self) -> Result<Rule, FileError> {
        check_keys(self.source, self.table, "a group", &KEYS)?;
        if let Some(matches) = self.table.get("match") {
            let matches = table_of(self.source, "match", matches)?;
            gone::check(self.source, matches, "match.")?;
            check_keys(self.source, matches, "a match", &["cgroup", "unit"])?;
        }
        let entries = self.table.clone().into_iter();
        let (others, knobs): (DeTable<'_>, DeTable<'_>) =
            entries.partition(|(key, _)| OTHER_KEYS.contains(&key.get_ref().as_ref()));
        let part = |table| Spanned::new(self.start..self.start, table);
        let Written {
            name,
            matches,
            cpu_max,
        } = read(self.source, part(others))?;
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

    /// Returns the knobs with quota and burst of the kernel's own line, if that is given.
    fn with_cpu_max(&self, knobs: Knobs, line: Option<CpuMax>) -> Result<Knobs, FileError> {
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

/// Element of a list, parsed from its text.
struct Element<P>(P);

impl<'de, P: FromStr<Err = String>> Deserialize<'de> for Element<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(PhantomData)).map(Self)
    }
}

/// Parses a text within the library's call, which adds the place to an error.
struct Text<P>(PhantomData<P>);

impl<P: FromStr<Err = String>> Visitor<'_> for Text<P> {
    type Value = P;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pattern")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<P, E> {
        text.parse().map_err(E::custom)
    }
}

struct CgroupPattern(Glob);

struct UnitPattern(Glob);

impl FromStr for CgroupPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = parse_cgroup(text).map(Self);
        pattern.map_err(|error| not_allowed("cgroup", text, &error))
    }
}

impl FromStr for UnitPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pattern = parse_unit(text).map(Self);
        pattern.map_err(|error| not_allowed("unit", text, &error))
    }
}

impl From<CgroupPattern> for Glob {
    fn from(pattern: CgroupPattern) -> Self {
        pattern.0
    }
}

impl From<UnitPattern> for Glob {
    fn from(pattern: UnitPattern) -> Self {
        pattern.0
    }
}

fn not_allowed(key: &str, text: &str, error: &PatternError) -> String {
    format!("{key}: `{text}` {error}; allowed: {PATTERNS_ALLOWED}")
}

fn patterns<'de, D, P>(deserializer: D) -> Result<Option<Patterns>, D::Error>
where
    D: Deserializer<'de>,
    P: FromStr<Err = String> + Into<Glob>,
{
    struct OneOrMore<P>(PhantomData<P>);

    impl<'de, P: FromStr<Err = String>> Visitor<'de> for OneOrMore<P> {
        type Value = Vec<P>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(PATTERNS_ALLOWED)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Text(PhantomData).visit_str(text).map(|one| vec![one])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(Element(pattern)) = list.next_element()? {
                all.push(pattern);
            }
            Ok(all)
        }
    }

    let all = deserializer.deserialize_any(OneOrMore::<P>(PhantomData))?;
    if all.is_empty() {
        return Err(D::Error::custom(format!(
            "is empty; allowed: {PATTERNS_ALLOWED}"
        )));
    }
    let globs = all.into_iter().map(Into::into).collect();
    Patterns::new(globs).map(Some).map_err(D::Error::custom)
}
