//! A group, as text.

use plimsoll_daemon::state::{GroupState, KnobOrigin};
use plimsoll_engine::sample::TaskRates;

use super::statistics::{statistics_rows, task_table};
use super::{facts, fitted, one_line, plan_table};

/// The strongest source of a group's knobs.
pub fn origin(group: &GroupState) -> &'static str {
    match group.origin {
        KnobOrigin::CommandLine => "command-line",
        KnobOrigin::File => "file",
    }
}

/// Usage rates of a group's tasks; `None`: they were not requested, or the group has no cap.
pub fn task_rates(group: &GroupState) -> Option<&TaskRates> {
    group.statistics.as_ref()?.task_rates.as_ref()
}

/// Properties, tasks and plan of a group. `owner`: the owner's pid, if it is to be shown. `width`:
/// that of the screen; `None`: no line is wrapped.
pub fn group_text(group: &GroupState, owner: Option<u32>, width: Option<u16>) -> String {
    let mut parts = vec![fitted(facts(group_rows(group, owner)), width)];
    parts.extend(task_rates(group).map(|rates| task_table(rates, width)));
    let plan = group.plan.as_deref().unwrap_or_default();
    if !plan.is_empty() {
        parts.push(fitted(plan_table(plan, "VALUE"), width));
    }
    parts.join("\n\n")
}

fn group_rows(group: &GroupState, owner: Option<u32>) -> Vec<(&'static str, String)> {
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
