//! Output for people and programs: tables and JSON.

pub mod drawing;
mod json;
mod picture;
mod progress;
mod statistics;
mod table;

pub use json::print as print_json;
pub use picture::Picture;
pub use progress::Progress;
pub use statistics::{cpu_time, run_statistics, statistics_rows, task_rows, task_table};
#[cfg(feature = "sched-ext")]
pub use table::print_while_read;
pub use table::{borderless, print_bytes, print_line};

use std::io::Write as _;

use plimsoll_cgroupfs::name::printable;
use plimsoll_engine::knobs::units::show_percent;
use plimsoll_engine::plan::Fidelity;
use serde::Serialize;

use crate::error::Result;

const PLAN_HEADER: [&str; 4] = ["KNOB", "VALUE", "ENFORCED BY", "LOSS"];
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

/// Table of a plan that came as JSON. `None`: the plan has no items.
pub fn plan_table(plan: &serde_json::Value) -> Option<String> {
    let items = plan.as_array().filter(|items| !items.is_empty())?;
    let text = |item: &serde_json::Value, key: &str| {
        let value = item.get(key).and_then(serde_json::Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let mut table = borderless(PLAN_HEADER);
    for item in items {
        let loss = match text(item, "fidelity").as_str() {
            "exact" => "none".to_owned(),
            "approximate" => text(item, "loss"),
            _ => format!("NOT ENFORCED: {}", text(item, "reason")),
        };
        table.add_row([
            text(item, "knob"),
            text(item, "value"),
            text(item, "mechanism"),
            loss,
        ]);
    }
    Some(table.to_string())
}

/// Prints a plan that was received as JSON.
pub fn print_plan(plan: &serde_json::Value, as_json: bool) -> Result<()> {
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            plan: &'a serde_json::Value,
        }
        return json::print("plimsoll.plan/1", &Document { plan });
    }
    print_line(plan_table(plan).as_deref().unwrap_or(NO_KNOBS))
}

/// The loss in a few words.
pub fn loss(fidelity: &Fidelity) -> String {
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
