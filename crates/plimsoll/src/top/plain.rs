//! `--once`: one table as text.

use clap::ValueEnum as _;

use super::columns::{Column, tenths};
use super::draw::{headroom_line, stop_ppm};
use super::model::Model;
use super::source::SourceKind;
use crate::error::Result;
use crate::output::{borderless, one_line, print_line};

pub fn print(model: &mut Model) -> Result<()> {
    print_line(&text(model))
}

pub(super) fn text(model: &mut Model) -> String {
    let mut lines = vec![machine(model)];
    if let Some(headroom) = &model.state.headroom {
        let stop = tenths(Some(stop_ppm(headroom)));
        let line = headroom_line(headroom);
        lines.push(format!("{line}; batch work stops at {stop}% of all CPUs"));
    }
    match model.asked {
        Some(SourceKind::Kernel) => lines.push("no daemon: the machine alone".into()),
        Some(SourceKind::Denied) => {
            lines.push("the daemon does not answer this user: the machine alone".into());
        }
        _ => (),
    }
    let problems = model.state.daemon.problems.iter();
    lines.extend(problems.map(|problem| format!("problem: {}", one_line(problem))));
    lines.push(String::new());
    let rows = model.page(usize::MAX);
    if rows.is_empty() {
        lines.push("no groups".into());
        return lines.join("\n");
    }
    let columns = Column::value_variants();
    let mut table = borderless(columns.iter().map(|column| column.title()));
    for (column, of_table) in columns.iter().zip(table.column_iter_mut()) {
        if column.is_number() {
            of_table.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
    for (index, _) in rows {
        let (group, rates) = model.group(index);
        let cells = columns.iter().map(|column| match (column, &group.problem) {
            (Column::Knobs, Some(problem)) => {
                format!(
                    "{} PROBLEM: {}",
                    column.text(group, rates),
                    one_line(problem)
                )
            }
            _ => column.text(group, rates),
        });
        table.add_row(cells);
    }
    lines.push(table.to_string());
    lines.join("\n")
}

fn machine(model: &Model) -> String {
    let nr_cpus = model.state.machine.nr_cpus;
    let plural = if nr_cpus == 1 { "" } else { "s" };
    match &model.rates.machine {
        Some(machine) => format!(
            "{nr_cpus} CPU{plural}: normal {}%, batch {}%, idle {}%",
            tenths(Some(machine.normal_ppm)),
            tenths(Some(machine.batch_ppm)),
            tenths(Some(machine.idle_ppm))
        ),
        None => format!("{nr_cpus} CPU{plural}"),
    }
}
