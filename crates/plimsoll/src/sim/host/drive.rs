//! Runs a simulation to its end, or until it is interrupted.

use std::time::{Duration, Instant};

use plimsoll_load::Stop;
use plimsoll_sim::host::{Host, HostReport, Observer};
use plimsoll_sim::scenario::Scenario;

use crate::error::Result;

/// Virtual time of the first step.
const STRETCH_FIRST_NS: u64 = 1_000_000;
/// Approximate duration of a step, which bounds the delay of a signal.
const STRETCH_WALL: Duration = Duration::from_millis(20);

/// Progress of a run.
#[derive(Debug, Clone, Copy)]
pub struct SoFar {
    now_ns: u64,
    end_ns: u64,
    events: u64,
    took: Duration,
}

impl SoFar {
    /// The progress as a line of text.
    pub fn line(&self, name: Option<&str>) -> String {
        let name = name.map_or_else(String::new, |name| format!("{name}: "));
        let share = 100.0 * self.now_ns as f64 / self.end_ns.max(1) as f64;
        let rate = self.events as f64 / self.took.as_secs_f64().max(1e-9) / 1e6;
        format!(
            "{name}{:.1} of {:.1} s simulated ({share:.0} %), {rate:.1} million events a second",
            self.now_ns as f64 / 1e9,
            self.end_ns as f64 / 1e9,
        )
    }
}

/// Runs a scenario. `tell` is called some fifty times a second.
pub fn to_the_end<O: Observer>(
    scenario: &Scenario,
    observer: O,
    stop: &Stop,
    tell: &mut dyn FnMut(&SoFar),
) -> Result<(HostReport, O)> {
    let mut host = Host::with_observer(scenario, observer)?;
    let started = Instant::now();
    let mut stretch_ns = STRETCH_FIRST_NS;
    while !host.is_over() && !stop.is_set() {
        let before = Instant::now();
        host.run_until(host.now_ns().saturating_add(stretch_ns).min(host.end_ns()));
        if before.elapsed() < STRETCH_WALL / 2 {
            stretch_ns = stretch_ns.saturating_mul(2);
        } else if before.elapsed() > STRETCH_WALL {
            stretch_ns = (stretch_ns / 2).max(1);
        }
        tell(&SoFar {
            now_ns: host.now_ns(),
            end_ns: host.end_ns(),
            events: host.events(),
            took: started.elapsed(),
        });
    }
    Ok((host.report(), host.into_observer()))
}
