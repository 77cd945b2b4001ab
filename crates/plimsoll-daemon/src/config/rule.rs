//! Groups of the file: the match and the knobs of each.

use std::collections::{HashMap, HashSet};

use globset::Glob;
use plimsoll_engine::group_policy::check_name;
use plimsoll_engine::host::nr_cpus_present;
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::toml_file::{FileError, KNOB_KEYS, Table, read_knobs};

use super::gone;
use super::patterns::{PatternError, Patterns, parse_cgroup, parse_unit};

/// Prefix of the name of a group of a single process.
pub(crate) const PROCESS_GROUP: &str = "pid-";
/// The keys of a match.
const MATCH_KEYS: [&str; 2] = ["cgroup", "unit"];

/// One group of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name, unique in the file.
    pub name: String,
    /// Cgroups that belong to it.
    pub matches: Match,
    /// The desired knobs.
    pub knobs: Knobs,
}

/// Conditions of a group, all of which have to be true. At least one is given. The knobs apply
/// to each matching cgroup separately.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    /// The cgroup's path below the mount point, with a `/` in front.
    pub cgroup: Option<Patterns>,
    /// The name of the systemd unit that the cgroup is: the last part of its path, if that ends
    /// in `.service`, `.scope` or `.slice`.
    pub unit: Option<Patterns>,
}

impl Match {
    /// Patterns that overlap with the same pattern of another group, whichever
    /// cgroups exist, each with its key. Where both keys are given, the overlap
    /// depends on the cgroup.
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

/// Reads all groups.
pub(super) fn read_all(top: &Table) -> Result<Vec<Rule>, FileError> {
    let mut earlier = Earlier::default();
    let tables = top.tables("group", "a group")?;
    let rules = tables.iter().map(|table| {
        let rule = read(table)?;
        earlier.add(table, &rule)?;
        Ok(rule)
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
    fn add(&mut self, table: &Table, rule: &Rule) -> Result<(), FileError> {
        let name = &rule.name;
        if !self.names.insert(name.clone()) {
            let problem =
                format!("name: `{name}` is another group's too; allowed: a name of its own");
            return Err(table.error("name", problem));
        }
        for (key, pattern) in rule.matches.sole_patterns() {
            let group = self.patterns.entry((key, pattern.to_owned()));
            let group = group.or_insert_with(|| name.clone());
            if group != name {
                let problem = format!(
                    "match: {key} `{pattern}` is a pattern of group `{group}`, too; allowed: one \
                     group for each"
                );
                return Err(table.error("match", problem));
            }
        }
        Ok(())
    }
}

fn read(table: &Table) -> Result<Rule, FileError> {
    let mut keys = vec!["name", "match"];
    keys.extend(KNOB_KEYS);
    table.check_keys(&keys)?;
    const NAME: &str = "the group's name in quotes";
    let Some(name) = table.text("name", NAME)? else {
        return Err(table.error("name", format!("name: `` is missing; allowed: {NAME}")));
    };
    check_name(name).map_err(|error| table.error("name", format!("name: {error}")))?;
    if name.starts_with(PROCESS_GROUP) {
        let problem = format!(
            "name: `{name}` is not allowed; allowed: one that does not begin with \
             `{PROCESS_GROUP}`, as groups of `plimsoll set PID` do"
        );
        return Err(table.error("name", problem));
    }
    let knobs = read_knobs(table)?;
    // Those that are offline may come back, and then the file is right.
    let checked = knobs.check_cpus(nr_cpus_present());
    checked.map_err(|error| table.error("headroom", error.to_string()))?;
    Ok(Rule {
        name: name.to_owned(),
        matches: read_match(table)?,
        knobs,
    })
}

fn read_match(group: &Table) -> Result<Match, FileError> {
    const ALLOWED: &str = "such as { cgroup = \"/system.slice/nginx.service\" }";
    let Some(table) = group.table("match", "a match")? else {
        let problem = format!("match: `` is missing; allowed: the cgroups of the group, {ALLOWED}");
        return Err(group.error("match", problem));
    };
    gone::check(&table, "match.")?;
    table.check_keys(&MATCH_KEYS)?;
    if table.entries().is_empty() {
        let allowed = MATCH_KEYS.join(", ");
        let problem = format!("match: `` is empty; allowed: one or more of {allowed}");
        return Err(group.error("match", problem));
    }
    Ok(Match {
        cgroup: patterns(&table, "cgroup", parse_cgroup)?,
        unit: patterns(&table, "unit", parse_unit)?,
    })
}

/// A pattern, or a list of them.
fn patterns(
    table: &Table,
    key: &str,
    parse: impl Fn(&str) -> Result<Glob, PatternError>,
) -> Result<Option<Patterns>, FileError> {
    const ALLOWED: &str = "a pattern, or a list of patterns, with * and ? for what may be anything";
    let Some(entry) = table.find(key) else {
        return Ok(None);
    };
    let mut globs = Vec::new();
    for (text, span) in table.one_or_more(key, ALLOWED)? {
        let glob = parse(text).map_err(|error| {
            table.error_at(span, format!("{key}: `{text}` {error}; allowed: {ALLOWED}"))
        });
        globs.push(glob?);
    }
    if globs.is_empty() {
        return Err(table.refused(entry, "is empty", ALLOWED));
    }
    let patterns = Patterns::new(globs).map(Some);
    patterns.map_err(|error| table.error(key, format!("{key}: {error}")))
}
