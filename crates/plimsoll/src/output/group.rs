//! A group, as text.

use plimsoll_daemon::state::{Group, Origin};

use super::{one_line, statistics_rows};

/// The strongest source of a group's knobs.
pub fn origin(group: &Group) -> &'static str {
    match group.origin {
        Origin::CommandLine => "command-line",
        Origin::File => "file",
    }
}

/// Properties of a group, as names and values, without the plan. `owner`: the owner's pid, if it is
/// to be shown.
pub fn group_rows(group: &Group, owner: Option<u32>) -> Vec<(&'static str, String)> {
    let mut rows = vec![("group", group.name.clone())];
    if group.group != group.name {
        rows.push(("belongs to", group.group.clone()));
    }
    let owner = owner.map_or(String::new(), |pid| format!(" (owner: pid {pid})"));
    rows.push(("origin", format!("{}{owner}", origin(group))));
    if !group.cgroup.is_empty() {
        rows.push(("cgroup", group.cgroup.clone()));
    }
    if !group.subject.is_empty() {
        rows.push(("runs", group.subject.clone()));
    }
    rows.push(("knobs", group.knobs.to_string()));
    if let Some(problem) = &group.problem {
        rows.push(("PROBLEM", problem.clone()));
    }
    if let Some(note) = &group.note {
        rows.push(("note", note.clone()));
    }
    rows.extend(group.statistics.iter().flat_map(statistics_rows));
    let sanitised = rows.into_iter();
    sanitised
        .map(|(name, value)| (name, one_line(&value)))
        .collect()
}
