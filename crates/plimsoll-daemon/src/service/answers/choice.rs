//! Enforcer of a client's group.

use plimsoll_engine::enforcer::EnforcerKind;

use super::super::Service;
use super::{Refused, one_line};
use crate::config::EnforcerWanted;
use crate::control::protocol::Choice;

impl Service {
    /// Chooses whether the scheduler enforces a new group. The configuration file decides for all
    /// clients; an owner without one leaves the choice to them.
    pub(super) fn choose(&self, choice: Choice) -> Result<bool, Refused> {
        if self.file.is_present() {
            self.check_choice(choice)?;
            return Ok(self.enforcement.planner.is_scheduled());
        }
        self.enforcement
            .starter
            .choose(choice.enforcer)
            .map_err(one_line)
    }

    /// Checks the choice for a present group, whose enforcer was chosen when it began.
    pub(super) fn choose_again(
        &self,
        name: &str,
        present: bool,
        choice: Choice,
    ) -> Result<bool, Refused> {
        if self.file.is_present() {
            self.check_choice(choice)?;
            return Ok(self.enforcement.planner.is_scheduled());
        }
        let (is, other, wanted) = match present {
            false => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            true => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        if choice.enforcer == other {
            return Err(format!(
                "enforcer: `{wanted}` cannot take over group `{name}`, which `{is}` enforces; \
                 allowed: auto, {is} (or end the group and start it again)"
            ));
        }
        Ok(present)
    }

    /// Refuses a choice other than the configuration file's.
    fn check_choice(&self, choice: Choice) -> Result<(), Refused> {
        let (is, other, wanted) = match self.enforcement.planner.kind() {
            EnforcerKind::Cgroup => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            EnforcerKind::SchedExt => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        let file = self.file.path().display();
        if choice.enforcer == other {
            return Err(format!(
                "enforcer: `{wanted}` is not the daemon's; allowed: auto, {is} \
                 (or another `enforcer` in {file})"
            ));
        }
        Ok(())
    }
}
