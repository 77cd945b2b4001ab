//! Groups in the state of their owner.

use plimsoll_daemon::state::{Daemon, Group, State};
use plimsoll_engine::sample::TaskRates;
use serde::Serialize;

use crate::error::Result;
use crate::output;

/// A group with the properties of its owner.
#[derive(Debug, Serialize)]
pub struct Served {
    #[serde(flatten)]
    group: Group,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// Splits a state into its groups and the owner.
pub fn of_state(state: State) -> (Vec<Served>, Daemon) {
    let pid = state.daemon.pid;
    let served = |group| Served {
        group,
        pid: Some(pid),
    };
    let groups = state.groups.into_iter().map(served).collect();
    (groups, state.daemon)
}

/// Description of a group: its problem, else its command, else its group of the file.
fn remark(group: &Group) -> String {
    match (&group.problem, group.subject.is_empty()) {
        (Some(problem), _) => format!("PROBLEM: {problem}"),
        (None, false) => group.subject.clone(),
        (None, true) if group.group != group.name => group.group.clone(),
        (None, true) => "-".into(),
    }
}

impl Served {
    /// Row in the table of all groups.
    pub fn row(&self) -> [String; 6] {
        let group = &self.group;
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

    /// Usage rates of the group's tasks; `None`: they were not requested, or the group has no cap.
    pub fn task_rates(&self) -> Option<&TaskRates> {
        self.group.statistics.as_ref()?.task_rates.as_ref()
    }

    /// Properties as rows of name and value, without the plan.
    fn lines(&self) -> Vec<String> {
        let rows = output::group_rows(&self.group, self.pid).into_iter();
        rows.map(|(name, value)| format!("{name:<12}{value}"))
            .collect()
    }
}

/// Prints groups one after another, each with its plan.
pub fn print(groups: &[Served], as_json: bool) -> Result<()> {
    if as_json {
        return print_json(groups);
    }
    for (index, served) in groups.iter().enumerate() {
        if index > 0 {
            output::print_line("")?;
        }
        output::print_line(&served.lines().join("\n"))?;
        super::print_tasks_below(served.task_rates())?;
        super::print_plan_below(served.group.plan.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

/// Prints JSON: one group as `group`, several as `groups`.
fn print_json(groups: &[Served]) -> Result<()> {
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum Document<'a> {
        Group(&'a Served),
        Groups(&'a [Served]),
    }
    let document = match groups {
        [one] => Document::Group(one),
        several => Document::Groups(several),
    };
    output::print_json("plimsoll.show/2", &document)
}

/// Prints groups after a change.
pub fn print_changed(groups: Vec<Group>, as_json: bool) -> Result<()> {
    let served = |group| Served { group, pid: None };
    let groups: Vec<Served> = groups.into_iter().map(served).collect();
    print(&groups, as_json)
}

#[cfg(test)]
mod tests {
    use plimsoll_daemon::state::Origin;
    use plimsoll_engine::sample::Sample;

    use super::*;

    fn served(group: Group) -> Served {
        let state = State {
            groups: vec![group],
            daemon: Daemon {
                pid: 42,
                ..Daemon::default()
            },
            ..State::default()
        };
        of_state(state).0.remove(0)
    }

    fn tenant() -> Group {
        Group {
            name: "/tenants.slice/a.service".into(),
            group: "tenants".into(),
            cgroup: "/tenants.slice/a.service".into(),
            statistics: Some(Sample {
                usage_usec: 1_500_000,
                processes: 3,
                ..Sample::default()
            }),
            ..Group::default()
        }
    }

    #[test]
    fn row_shows_the_origin_of_the_knobs() {
        let row = served(tenant()).row();
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
        let group = Group {
            problem: Some("it is gone\nand more".into()),
            statistics: None,
            subject: "true".into(),
            origin: Origin::CommandLine,
            ..tenant()
        };
        let row = served(group.clone()).row();
        assert_eq!(row[1..4], ["command-line", "-", "-"]);
        assert_eq!(row[5], "PROBLEM: it is gone and more");
        let lines = served(group).lines();
        assert!(lines.contains(&"PROBLEM     it is gone and more".into()));
        assert!(lines.contains(&"belongs to  tenants".into()));
        assert!(lines[2].ends_with("(owner: pid 42)"));
        assert!(!lines.iter().any(|line| line.contains('\n')));
    }

    #[test]
    fn json_has_the_fields_of_other_groups_and_more() {
        let value = serde_json::to_value(served(tenant())).unwrap();
        for field in [
            "name",
            "cgroup",
            "pid",
            "knobs",
            "plan",
            "enforcer",
            "statistics",
            "origin",
            "group",
        ] {
            assert!(value.get(field).is_some(), "{field}: {value}");
        }
        assert_eq!(value["origin"], "file");
    }
}
