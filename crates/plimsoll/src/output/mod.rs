//! What people and programs read: tables and JSON.

pub mod drawing;
mod json;
mod picture;
mod progress;
mod statistics;
mod table;

pub use json::print as print_json;
pub use picture::Picture;
pub use progress::Progress;
pub use statistics::{run_statistics, statistics_rows};
pub use table::{borderless, print_line};

use std::io::Write as _;

use plimsoll_engine::knobs::units::show_percent;
use plimsoll_engine::plan::{Fidelity, Plan, PlanItem};
use serde::Serialize;

use crate::error::Result;

/// Text of others, fit for one line of a terminal.
pub fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Tells people something, in one line on standard error. If that is closed,
/// nobody is left to tell, and the work must go on.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "plimsoll: {}", one_line(text));
}

/// Prints a plan: which mechanism enforces each knob, with what loss.
pub fn plan(plan: &Plan, as_json: bool) -> Result<()> {
    if as_json {
        #[derive(Serialize)]
        struct Document<'a> {
            plan: &'a [PlanItem],
        }
        return json::print("plimsoll.plan/1", &Document { plan: &plan.items });
    }
    if plan.items.is_empty() {
        return print_line("no knobs: the command runs in a group of its own, unlimited");
    }
    let mut table = borderless(["KNOB", "VALUE", "ENFORCED BY", "LOSS"]);
    for item in &plan.items {
        table.add_row([
            item.knob,
            &item.value,
            &item.mechanism,
            &loss(&item.fidelity),
        ]);
    }
    print_line(&table.to_string())
}

/// What is lost, in a few words.
pub fn loss(fidelity: &Fidelity) -> String {
    match fidelity {
        Fidelity::Exact => "none".into(),
        Fidelity::Approximate { loss } => loss.clone(),
        Fidelity::Impossible { reason } => format!("NOT ENFORCED: {reason}"),
    }
}

/// A share with one digit behind the point.
pub fn percent(ppm: u64) -> String {
    show_percent((ppm + 500) / 1000 * 1000)
}
