//! The host's tuning: set while a group asks for it and the fair class runs batch work.

use plimsoll_engine::undo::UndoReport;

use super::{Enforcement, Notices};

/// Subject of the problems of the tuning, in `show` and in the log.
const ABOUT: &str = "host-tuning";

#[derive(Default)]
pub(in crate::service) struct TuningSwitch {
    /// Whether this owner has changed the setting; `None`: no group asks for it.
    is_changed: Option<bool>,
}

impl TuningSwitch {
    /// Has the host tuned if that is wanted, and only then. A failure is a problem for the operator
    /// and not fatal: batch work is limited without the tuning, too.
    pub fn follow(&mut self, is_wanted: bool, enforcement: &Enforcement, notices: &mut Notices) {
        if is_wanted == self.is_changed.is_some() {
            return;
        }
        if !is_wanted {
            notices.note_problem(ABOUT, None);
            let report = self.put_back(enforcement);
            notices.log_undo(&report, "for no group asks for another");
            return;
        }
        let set = enforcement.enforcer().stock().tune_host();
        match set {
            Ok(is_changed) => self.is_changed = Some(is_changed),
            Err(error) => {
                self.is_changed = Some(false);
                notices.note_problem(ABOUT, Some(error.to_string()));
            }
        }
        if self.is_changed == Some(true) {
            notices.log.info(ABOUT, "lazy preemption is full now");
        }
    }

    /// Puts the setting back, whatever is asked for: also one that could not be put back before.
    pub fn put_back(&mut self, enforcement: &Enforcement) -> UndoReport {
        self.is_changed = None;
        enforcement.enforcer().stock().put_tuning_back()
    }

    /// Returns whether this owner has made preemption full; `None`: no group asks for it.
    pub fn state(&self) -> Option<bool> {
        self.is_changed
    }
}
