//! Notices to the operator: log lines, open problems and counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_engine::undo::UndoReport;

use crate::log::Log;
use crate::state::Counters;

pub(in crate::service) struct Notices {
    pub log: Arc<Log>,
    pub counters: Counters,
    /// Conditions that an operator has to look at, by subject.
    problems: BTreeMap<&'static str, String>,
}

impl Notices {
    pub fn new(log: Arc<Log>) -> Self {
        Self {
            log,
            counters: Counters::default(),
            problems: BTreeMap::new(),
        }
    }

    /// Opens or closes a problem, and logs it once.
    pub fn note_problem(&mut self, about: &'static str, problem: Option<String>) {
        match problem {
            None => {
                if self.problems.remove(about).is_some() {
                    self.log
                        .info(about, &format!("{about}: as it should be again"));
                }
            }
            Some(problem) => {
                if self.problems.get(about) != Some(&problem) {
                    self.log.warning(about, &problem);
                    self.problems.insert(about, problem);
                }
            }
        }
    }

    pub fn problems(&self) -> Vec<String> {
        self.problems.values().cloned().collect()
    }

    /// Logs an undo. `reason` reads on after "put back".
    pub fn log_undo(&self, report: &UndoReport, reason: &str) {
        for undone in &report.undone {
            self.log
                .info("undo", &format!("{undone}: put back {reason}"));
        }
        self.log_undo_problems(report);
    }

    pub fn log_undo_problems(&self, report: &UndoReport) {
        for note in &report.notes {
            self.log.info("undo", note);
        }
        for problem in &report.problems {
            self.log.warning("undo", problem);
        }
    }
}
