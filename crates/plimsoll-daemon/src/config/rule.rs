//! The groups of the file: what belongs to each, and its knobs.

use std::collections::{HashMap, HashSet};

use nix::unistd::{Uid, User};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::policy_set::check_name;
use plimsoll_engine::toml_file::{FileError, KNOB_KEYS, Table, read_knobs};

use super::PROCESS_GROUP;
use super::patterns::{Patterns, Wildcards};

/// The keys of a match.
const MATCH_KEYS: [&str; 5] = ["cgroup", "unit", "executable", "user", "command"];

/// One group of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name, unique in the file.
    pub name: String,
    /// What belongs to it.
    pub matches: Match,
    /// What is asked of it.
    pub knobs: Knobs,
}

/// What belongs to a group: whatever all of these hold of that are given. At
/// least one is.
///
/// With `executable`, `user` or `command` it is processes that belong to the
/// group, which are moved into a cgroup of Plimsoll's; else it is cgroups,
/// each of which has the knobs for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Match {
    /// The cgroup's path below the mount point, with a `/` in front.
    pub cgroup: Option<Patterns>,
    /// The name of the systemd unit: the last part of the cgroup's path that
    /// ends in `.service`, `.scope` or `.slice`.
    pub unit: Option<Patterns>,
    /// The file that a process runs: its path, or, without a `/` in the
    /// pattern, its name.
    pub executable: Option<Patterns>,
    /// Who runs it.
    pub users: Option<Vec<Uid>>,
    /// The command line, its words with one space between them.
    pub command: Option<Patterns>,
}

impl Match {
    /// Whether it is processes that belong to the group.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        self.executable.is_some() || self.users.is_some() || self.command.is_some()
    }

    /// What of it two groups cannot both have, whatever cgroups there will be:
    /// patterns, each with the key that it is of. Where both keys are given,
    /// it takes a cgroup to find out.
    fn claims(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let of = |key, patterns, other: &Option<Patterns>| {
            let alone = !self.is_of_processes() && other.is_none();
            let patterns: Option<&Patterns> = if alone { patterns } else { None };
            let texts = patterns.into_iter().flat_map(Patterns::texts);
            texts.map(move |text| (key, text))
        };
        let cgroups = of("cgroup", self.cgroup.as_ref(), &self.unit);
        cgroups.chain(of("unit", self.unit.as_ref(), &self.cgroup))
    }
}

/// Reads all groups.
pub(super) fn read_all(top: &Table) -> Result<Vec<Rule>, FileError> {
    let mut taken = Taken::default();
    let tables = top.tables("group", "a group")?;
    let rules = tables.iter().map(|table| taken.take(table, read(table)?));
    rules.collect()
}

/// What earlier groups have.
#[derive(Default)]
struct Taken {
    names: HashSet<String>,
    /// Patterns with their keys, and the names of the groups that have them.
    claims: HashMap<(&'static str, String), String>,
}

impl Taken {
    /// Two groups cannot have the same name, nor claim the same cgroups. What
    /// different patterns claim is only known where they meet one: there the
    /// first group of the file has it, and it is told.
    fn take(&mut self, table: &Table, rule: Rule) -> Result<Rule, FileError> {
        let name = &rule.name;
        if self.names.contains(name) {
            let problem =
                format!("name: `{name}` is another group's too; allowed: a name of its own");
            return Err(table.error("name", problem));
        }
        for (key, pattern) in rule.matches.claims() {
            if let Some(other) = self.claims.get(&(key, pattern.to_owned())) {
                let problem = format!(
                    "match: {key} `{pattern}` is claimed by group `{other}` too; allowed: one \
                     group for each"
                );
                return Err(table.error("match", problem));
            }
        }
        let claims = rule.matches.claims();
        let claims = claims.map(|(key, pattern)| ((key, pattern.to_owned()), name.clone()));
        self.claims.extend(claims);
        self.names.insert(name.clone());
        Ok(rule)
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
    Ok(Rule {
        name: name.to_owned(),
        matches: read_match(table)?,
        knobs: read_knobs(table)?,
    })
}

fn read_match(group: &Table) -> Result<Match, FileError> {
    const ALLOWED: &str = "such as { cgroup = \"/system.slice/nginx.service\" }";
    let Some(table) = group.table("match", "a match")? else {
        let problem =
            format!("match: `` is missing; allowed: what belongs to the group, {ALLOWED}");
        return Err(group.error("match", problem));
    };
    table.check_keys(&MATCH_KEYS)?;
    if table.entries().is_empty() {
        let allowed = MATCH_KEYS.join(", ");
        let problem = format!("match: `` is empty; allowed: one or more of {allowed}");
        return Err(group.error("match", problem));
    }
    Ok(Match {
        cgroup: cgroup_patterns(&table)?,
        unit: patterns(&table, "unit", Wildcards::OfPaths, |_| Ok(()))?,
        executable: patterns(&table, "executable", Wildcards::OfPaths, |_| Ok(()))?,
        users: users(&table)?,
        command: patterns(&table, "command", Wildcards::OfText, |_| Ok(()))?,
    })
}

fn cgroup_patterns(table: &Table) -> Result<Option<Patterns>, FileError> {
    patterns(table, "cgroup", Wildcards::OfPaths, |text| {
        match text.strip_prefix('/') {
            Some("") => Err("is the root, which has no limits"),
            Some(path) if path.ends_with('/') => Err("ends in a `/`"),
            Some(_) => Ok(()),
            None => Err("does not begin with a `/`"),
        }
    })
}

/// A pattern, or a list of them.
fn patterns(
    table: &Table,
    key: &str,
    wildcards: Wildcards,
    check: impl Fn(&str) -> Result<(), &'static str>,
) -> Result<Option<Patterns>, FileError> {
    const ALLOWED: &str = "a pattern, or a list of patterns, with * and ? for what may be anything";
    let words = table.one_or_more(key, ALLOWED)?;
    if words.is_empty() {
        return match table.find(key) {
            Some(entry) => Err(table.refused(entry, "is empty", ALLOWED)),
            None => Ok(None),
        };
    }
    let refused = |index: usize, problem: &str| {
        let (text, span): (&str, _) = words[index];
        let problem = format!("{key}: `{text}` {problem}; allowed: {ALLOWED}");
        table.error_at(span, problem)
    };
    for (index, (text, _)) in words.iter().enumerate() {
        let checked = if text.is_empty() {
            Err("is empty")
        } else {
            check(text)
        };
        checked.map_err(|problem| refused(index, problem))?;
    }
    let texts: Vec<&str> = words.iter().map(|(text, _)| *text).collect();
    let patterns = Patterns::new(&texts, wildcards);
    patterns
        .map(Some)
        .map_err(|(index, problem)| refused(index, &format!("is no pattern ({problem})")))
}

fn users(table: &Table) -> Result<Option<Vec<Uid>>, FileError> {
    const ALLOWED: &str = "a user's name or number, or a list of them";
    if table.find("user").is_none() {
        return Ok(None);
    }
    let mut users = Vec::new();
    for (text, span) in table.one_or_more("user", ALLOWED)? {
        let uid = match text.parse() {
            Ok(number) => Some(Uid::from_raw(number)),
            // A host whose user database fails knows nobody.
            Err(_) => User::from_name(text).ok().flatten().map(|user| user.uid),
        };
        let Some(uid) = uid else {
            let problem = format!("user: `{text}` is no user of this host; allowed: {ALLOWED}");
            return Err(table.error_at(span, problem));
        };
        users.push(uid);
    }
    Ok(Some(users))
}
