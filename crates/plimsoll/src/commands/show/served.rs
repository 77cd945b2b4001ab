//! Groups in the state of their owner.

use std::collections::BTreeMap;

use plimsoll_daemon::state::GroupState;
use serde::Serialize;

use crate::error::Result;
use crate::output;

/// A group with its owner's pid, as JSON.
#[derive(Serialize)]
struct Served<'a> {
    #[serde(flatten)]
    group: &'a GroupState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// Description of a group: its problem, else its command, else its group of the file.
fn remark(group: &GroupState) -> String {
    match (&group.problem, group.subject.is_empty()) {
        (Some(problem), _) => format!("PROBLEM: {problem}"),
        (None, false) => group.subject.clone(),
        (None, true) if group.group != group.name => group.group.clone(),
        (None, true) => "-".into(),
    }
}

/// Row of a group in the table of all groups.
pub fn row(group: &GroupState) -> [String; 6] {
    let sample = group.statistics.as_ref();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        group.name.clone(),
        output::origin(group).into(),
        or_dash(sample.map(|sample| sample.processes.to_string())),
        or_dash(sample.map(output::cpu_time)),
        group.knobs.to_string(),
        output::one_line(&remark(group)),
    ]
}

/// Prints groups one after another, each with its plan. `owner`: the owner's pid, if it is to be
/// shown.
pub fn print(groups: &[GroupState], owner: Option<u32>, as_json: bool) -> Result<()> {
    if as_json {
        return print_json(groups, owner);
    }
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            output::print_line("")?;
        }
        output::print_line(&output::group_text(group, owner, None))?;
    }
    Ok(())
}

/// Prints JSON: one group as `group`, several as `groups`.
fn print_json(groups: &[GroupState], pid: Option<u32>) -> Result<()> {
    let served = groups.iter().map(|group| Served { group, pid });
    let served: Vec<_> = served.collect();
    const SCHEMA: &str = "plimsoll.show/2";
    match &*served {
        [one] => output::print_json(SCHEMA, &BTreeMap::from([("group", one)])),
        several => output::print_json(SCHEMA, &BTreeMap::from([("groups", several)])),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_daemon::state::KnobOrigin;
    use plimsoll_engine::sample::Sample;

    use super::*;

    fn tenant() -> GroupState {
        GroupState {
            name: "/tenants.slice/a.service".into(),
            group: "tenants".into(),
            cgroup: "/tenants.slice/a.service".into(),
            statistics: Some(Sample {
                usage_usec: 1_500_000,
                processes: 3,
                ..Sample::default()
            }),
            ..GroupState::default()
        }
    }

    #[test]
    fn row_shows_the_origin_of_the_knobs() {
        let row = row(&tenant());
        let expected = [
            "/tenants.slice/a.service",
            "file",
            "3",
            "1.500 s",
            "none",
            "tenants",
        ];
        assert_eq!(row, expected);
    }

    #[test]
    fn problem_is_shown_first() {
        let group = GroupState {
            problem: Some("it is gone\nand more".into()),
            statistics: None,
            subject: "a\x1b[31m".into(),
            origin: KnobOrigin::CommandLine,
            ..tenant()
        };
        let row = row(&group);
        assert_eq!(row[1..4], ["command-line", "-", "-"]);
        assert_eq!(row[5], "PROBLEM: it is gone and more");
        let text = output::group_text(&group, Some(42), None);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert!(lines.contains(&"PROBLEM     it is gone and more"));
        assert!(lines.contains(&"belongs to  tenants"));
        assert!(lines.contains(&"runs        a\\x1b[31m"));
        assert!(lines[2].ends_with("(owner: pid 42)"));
    }

    #[test]
    fn json_has_the_fields_of_other_groups_and_more() {
        let value = serde_json::to_value(Served {
            group: &tenant(),
            pid: Some(42),
        });
        let value = value.unwrap();
        let fields = "name cgroup pid knobs plan enforcer statistics origin group";
        for field in fields.split(' ') {
            assert!(value.get(field).is_some(), "{field}: {value}");
        }
        assert_eq!(value["origin"], "file");
    }
}
