//! Enforcer and mode of a client's group.

use plimsoll_engine::enforcer::EnforcerKind;
use plimsoll_engine::host::SchedExt;
use plimsoll_engine::knobs::Knobs;

use super::super::Service;
use super::targets::{Refused, one_line};
use crate::config::EnforcerWanted;
use crate::control::protocol::Choice;

impl Service {
    /// Chooses the scheduler of a new group. The configuration file decides for all clients; an
    /// owner without one leaves the choice to them.
    pub(super) fn choose(
        &self,
        knobs: &Knobs,
        choice: Choice,
    ) -> Result<Option<SchedExt>, Refused> {
        if self.file.is_present() {
            self.check_choice(choice)?;
            return Ok(self.enforcement.scheduler());
        }
        let chosen = self.enforcement.choose(knobs, choice.enforcer, choice.mode);
        chosen.map_err(one_line)
    }

    /// Checks the choice for a present group, whose scheduler was chosen when it began.
    pub(super) fn choose_again(
        &self,
        name: &str,
        present: Option<SchedExt>,
        choice: Choice,
    ) -> Result<Option<SchedExt>, Refused> {
        if self.file.is_present() {
            self.check_choice(choice)?;
            return Ok(self.enforcement.scheduler());
        }
        let (is, other, wanted) = match present {
            None => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            Some(_) => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        if choice.enforcer == other {
            return Err(format!(
                "enforcer: `{wanted}` cannot take over group `{name}`, which `{is}` enforces; \
                 allowed: auto, {is} (or end the group and start it again)"
            ));
        }
        let mode = present.map(|scheduler| scheduler.mode).unwrap_or_default();
        match choice.mode.filter(|wanted| *wanted != mode) {
            Some(mode_wanted) => Err(format!(
                "mode: `{mode_wanted}` is not available for group `{name}`; allowed: {mode}"
            )),
            None => Ok(present),
        }
    }

    /// Refuses a choice other than the configuration file's.
    fn check_choice(&self, choice: Choice) -> Result<(), Refused> {
        let (is, other, wanted) = match self.enforcement.enforcer().kind() {
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
        let mode = self.enforcement.mode();
        match choice.mode.filter(|wanted| *wanted != mode) {
            Some(mode_wanted) => Err(format!(
                "mode: `{mode_wanted}` is not the daemon's; allowed: {mode} (or another `mode` in \
                 {file})"
            )),
            None => Ok(()),
        }
    }
}
