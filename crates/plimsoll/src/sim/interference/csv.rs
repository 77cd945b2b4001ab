//! The cells as CSV, one line each.

use super::outcome::{Cell, Outcome};

const HEADER: &str = "distribution,shape,groups,mean,burst,correlation,periods,complete,\
                      wcet,wcet_half_width,missed,missed_half_width,\
                      utilisation,utilisation_half_width,wcet_max";

/// Formats a value; a missing one is empty. No field contains a comma or a quotation mark.
fn optional(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(cell: &Cell) -> String {
    let report = &cell.report;
    let mut fields = vec![
        cell.distribution.to_owned(),
        optional(cell.shape),
        cell.groups.to_string(),
        cell.mean.to_string(),
        optional(cell.burst.as_ref()),
        cell.correlation.to_string(),
        report.periods.to_string(),
        report.complete.to_string(),
    ];
    for estimate in [report.wcet, report.missed, report.utilisation] {
        fields.push(estimate.mean.to_string());
        fields.push(optional(estimate.half_width));
    }
    fields.push(report.wcet_max.to_string());
    fields.join(",")
}

/// The whole text, without a final newline.
pub fn text(outcome: &Outcome) -> String {
    let lines = outcome.cells.iter().map(line);
    std::iter::once(HEADER.to_owned())
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}
