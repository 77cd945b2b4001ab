//! Reload: another configuration in the place of the present one.

use std::sync::Arc;

use plimsoll_cgroupfs::Hierarchy;
use plimsoll_engine::EngineError;
use plimsoll_engine::action::Action;
use plimsoll_engine::enforcer::EnforcerKind;
use thiserror::Error;

use super::Service;
use super::desired::Desired;
use super::options::Starter;
use super::parts::{ConfigFile, Planner};
use crate::config::{Config, EnforcerWanted};

/// A part of a configuration that this host cannot enforce.
#[derive(Debug, Error)]
pub enum NotEnforceable {
    #[error(transparent)]
    Enforcer(EngineError),
    #[error("group `{group}`: {source}")]
    Group { group: String, source: EngineError },
}

/// Checks that this host can enforce a configuration, as a reload does. Changes nothing.
///
/// # Errors
/// Names the enforcer, or the first group that a reload would refuse.
pub fn check(
    config: &Config,
    hierarchy: &Arc<Hierarchy>,
    starter: &dyn Starter,
) -> Result<(), NotEnforceable> {
    let (kind, is_scheduled) = match config.enforcer {
        EnforcerWanted::SchedExt => {
            let chosen = starter.choose(config.enforcer);
            chosen.map_err(NotEnforceable::Enforcer)?;
            (EnforcerKind::SchedExt, true)
        }
        EnforcerWanted::Auto | EnforcerWanted::Cgroup => (EnforcerKind::Cgroup, false),
    };
    let planner = Planner::new(hierarchy, kind, is_scheduled);
    config.rules.into_iter().try_for_each(|rule| {
        let desired = Desired::foreign(&rule.name, &rule.name, rule.knobs.clone(), is_scheduled);
        check_group(&planner, &desired)
    })
}

fn check_group(planner: &Planner, desired: &Desired) -> Result<(), NotEnforceable> {
    let checked = planner.check(desired);
    checked.map_err(|source| NotEnforceable::Group {
        group: desired.group.clone(),
        source,
    })
}

impl Service {
    /// Reads the configuration file again, and takes over all of it or nothing. Returns
    /// warnings for people.
    ///
    /// # Errors
    /// A line for people, which is logged as well.
    pub(super) fn reload(&mut self) -> Result<Vec<String>, String> {
        let reloaded = self.try_reload();
        match &reloaded {
            Ok(warnings) => {
                self.notices.counters.reloads += 1;
                let text = format!("{}: reloaded", self.file.path().display());
                self.notices.log.info("configuration", &text);
                for warning in warnings {
                    self.notices.log.warning("configuration", warning);
                }
            }
            Err(problem) => {
                self.notices.counters.reloads_refused += 1;
                let text = format!("{problem}; the previous configuration stays in force");
                self.notices.log.error("configuration", &text);
            }
        }
        reloaded
    }

    /// Has the owner go on without its file. The caller removes the groups of the file, and adopts
    /// the others.
    ///
    /// # Errors
    /// When no enforcer can be started: the owner ends, and leaves all groups.
    pub(super) fn forget_file(&mut self) -> Result<(), String> {
        self.install(None)
            .inspect_err(|_| self.lifetime.end(true))?;
        self.file = ConfigFile::none();
        self.note_file();
        Ok(())
    }

    fn try_reload(&mut self) -> Result<Vec<String>, String> {
        let config = self.file.read_again().map_err(|error| error.to_string())?;
        let present = self.config();
        let same_enforcer = config.enforcer == present.enforcer;
        if same_enforcer {
            self.check_rules(&config)?;
            let set = self.set_machine(config.bandwidth_slice, true);
            set.map_err(|error| format!("{}: {error}", self.file.path().display()))?;
        } else {
            let changed = self.change_enforcer(&config);
            if changed.is_err() && !self.lifetime.is_ending() {
                self.adopt_groups();
            }
            changed?;
        }
        let mut warnings = Vec::new();
        if config.metrics != self.config().metrics {
            warnings.push("metrics.listen: another address takes a restart of the daemon".into());
        }
        self.audit_all();
        let had_burst = self.burst_enabled();
        self.file.replace(config);
        self.request_all_cgroups();
        // A reload is an explicit change: it ends the respect for what others have set.
        self.table.end_respect();
        self.table.retry_all();
        if self.burst_enabled() != had_burst {
            self.table.mark_all_pending();
        }
        if same_enforcer {
            self.reconcile();
        } else {
            self.adopt_groups();
        }
        Ok(warnings)
    }

    /// Checks that this host can enforce all groups of a configuration.
    fn check_rules(&self, config: &Config) -> Result<(), String> {
        let file = self.file.path().display();
        for rule in &config.rules {
            let is_new = self.file.rule(&rule.name).is_none();
            if is_new && self.requests.command(&rule.name).is_some() {
                return Err(format!(
                    "{file}: group `{}`: a command has a group of that name now; choose another, \
                     or end the command first",
                    rule.name
                ));
            }
            let desired = self.desired_of_rule(&rule.name, rule);
            check_group(&self.enforcement.planner, &desired)
                .map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(())
    }

    /// Puts another enforcer in the place of the present one. Groups stay limited in between.
    fn change_enforcer(&mut self, config: &Config) -> Result<(), String> {
        let changed = self
            .install(Some(config.enforcer))
            .and_then(|()| self.check_rules(config));
        if changed.is_err()
            && let Err(error) = self.install(Some(self.config().enforcer))
        {
            // Limits stay, and follow nothing. The service manager starts the daemon again.
            self.notices
                .log
                .error("enforcer", &format!("{error}; ending"));
            self.lifetime.end(true);
            return Err(error);
        }
        changed
    }

    fn install(&mut self, wanted: Option<EnforcerWanted>) -> Result<(), String> {
        // The next enforcer has it set again.
        let tuning = self.fair.tuning.put_back(&self.enforcement);
        self.notices.log_undo(&tuning, "for another enforcer");
        self.enforcement.undo(Action::LeaveAll);
        self.table.forget_applied();
        let left_behind = self.enforcement.replace(wanted);
        let left_behind = left_behind.map_err(|error| error.to_string())?;
        self.notices.log_undo(&left_behind, "for another enforcer");
        self.request_commands();
        Ok(())
    }

    /// Applies all groups, which the enforcer adopts, and undoes the changes that no group needs.
    pub(super) fn adopt_groups(&mut self) {
        self.reconcile();
        let left = self.finish_adoption();
        self.notices
            .log_undo(&left, "for no group needs it any more");
    }
}
