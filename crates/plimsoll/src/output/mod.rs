//! Output for people and programs: tables and JSON.

pub mod drawing;
mod file;
mod group;
mod json;
mod progress;
mod statistics;
mod table;

pub use file::ResultFile;
pub use group::{group_text, origin, task_rates};
pub use json::print as print_json;
pub use progress::Progress;
pub use statistics::{cpu_time, run_statistics, statistics_rows};
pub use table::print_while_read;
pub use table::{borderless, facts, fitted, print_bytes, print_line};

use std::io::Write as _;

use comfy_table::Table;
use plimsoll_cgroupfs::name::printable;
use plimsoll_engine::knobs::units::show_percent;
use plimsoll_engine::plan::{Fidelity, PlanItem};
use serde_json::json;

use crate::error::Result;

/// Text of a plan without items.
const NO_KNOBS: &str = "no knobs: the command runs in a group of its own, unlimited";

/// Sanitises foreign text for one line of a terminal.
pub fn one_line(text: &str) -> String {
    // No name of a cgroup has a line break.
    printable(&text.replace('\n', " "))
}

/// Prints a message on standard error, in one line. Failures are ignored: work
/// continues even if standard error is closed.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "plimsoll: {}", one_line(text));
}

/// Table of a plan; `values` is the header of the values.
pub fn plan_table(plan: &[PlanItem], values: &str) -> Table {
    let mut table = borderless(["KNOB", values, "ENFORCED BY", "LOSS"]);
    for item in plan {
        table.add_row([
            item.knob.name(),
            &item.value,
            &item.mechanism,
            &loss(&item.fidelity),
        ]);
    }
    table
}

/// Prints a plan.
pub fn print_plan(plan: &[PlanItem], as_json: bool) -> Result<()> {
    if as_json {
        return json::print("plimsoll.plan/1", &json!({ "plan": plan }));
    }
    match plan {
        [] => print_line(NO_KNOBS),
        plan => print_line(&plan_table(plan, "VALUE").to_string()),
    }
}

/// The loss in a few words.
fn loss(fidelity: &Fidelity) -> String {
    match fidelity {
        Fidelity::Exact => "none".into(),
        Fidelity::Approximate { loss } => loss.clone(),
        Fidelity::Impossible { reason } => format!("NOT ENFORCED: {reason}"),
    }
}

/// A share in percent, with one decimal.
pub fn percent(ppm: u64) -> String {
    show_percent((ppm + 500) / 1000 * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_break_becomes_a_space() {
        let text = "two\nlines\tof\u{85}a\u{202e}name";
        assert_eq!(one_line(text), r"two lines\x09of\x85a\u{202e}name");
    }
}
