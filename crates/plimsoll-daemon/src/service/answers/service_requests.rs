//! Requests that concern the whole service.

use std::collections::BTreeSet;

use plimsoll_engine::undo::UndoReport;

use super::super::Service;
use super::Refused;
use crate::config::PROCESS_GROUP;
use crate::control::protocol::{Answer, ReloadReport};

impl Service {
    /// Undoes each `set`, and the groups of a daemon that was killed. A daemon with a configuration
    /// file keeps all.
    pub(super) fn restore(&mut self) -> Answer {
        let mut report = UndoReport::default();
        let foreign = self.table.entries().map(|(name, _)| name.clone());
        let foreign = foreign.filter(|name| name.starts_with('/')).collect();
        if !self.file.is_present() {
            self.forget_sets(foreign, &mut report);
            self.reconcile();
        } else if self.lifetime.is_on_demand() {
            match self.forget_file() {
                Ok(()) => {
                    self.forget_sets(foreign, &mut report);
                    self.adopt_groups();
                }
                Err(problem) => report.problems.push(problem),
            }
        } else {
            let file = self.file.path().display();
            report.notes.push(format!(
                "each `set` stays, because the daemon has a file ({file}); \
                 `plimsoll set TARGET --reset` undoes one"
            ));
        }
        Answer::Restored(report)
    }

    /// Removes all knobs that were `set`, and groups that are desired no more.
    fn forget_sets(&mut self, mut undesired: BTreeSet<String>, report: &mut UndoReport) {
        let commands: Vec<String> = self.requests.commands().map(|it| it.0.clone()).collect();
        for name in commands {
            if name.starts_with(PROCESS_GROUP) {
                self.end_command(&name);
                undesired.insert(name);
            } else if self.requests.put(&name, None) {
                self.request_command(&name);
                report.undone.push(name);
            }
        }
        let overrides = std::mem::take(&mut self.requests.requested.overrides);
        self.save_requests();
        undesired.extend(overrides.into_keys());
        for name in undesired {
            // A command may have the name of a group of the file that was set.
            if self.requests.command(&name).is_none() {
                self.table.set_desired(&name, None);
                let problems = self.take_away(&name).problems;
                let is_undone = problems.is_empty();
                report.problems.extend(problems);
                if !is_undone {
                    continue;
                }
            }
            report.undone.push(name);
        }
        if self.requests.requested.burst_off {
            self.allow_burst(true);
            report.undone.push("burst-enabled".into());
        }
    }

    pub(super) fn answer_reload(&mut self) -> Result<Answer, Refused> {
        if !self.file.is_present() {
            return Err(
                "reload: this owner has no configuration file; `plimsoll daemon` reads one".into(),
            );
        }
        let warnings = self.reload()?;
        Ok(Answer::Reloaded(ReloadReport {
            config: self.file.path().to_owned(),
            rules: self.config().rules.len(),
            groups: self.table.nr_applied(),
            warnings,
        }))
    }

    fn allow_burst(&mut self, enabled: bool) {
        let was_enabled = self.burst_enabled();
        self.requests.requested.burst_off = !enabled;
        self.save_requests();
        if self.burst_enabled() != was_enabled {
            self.table.mark_all_pending();
            self.reconcile();
        }
    }

    pub(super) fn switch_burst(&mut self, enabled: bool) -> Answer {
        self.allow_burst(enabled);
        let file = self.file.path().display();
        let still_off = format!("bursts stay off: {file} says burst-enabled = false");
        Answer::Groups {
            groups: Vec::new(),
            warnings: (enabled && !self.burst_enabled())
                .then_some(still_off)
                .into_iter()
                .collect(),
        }
    }
}
