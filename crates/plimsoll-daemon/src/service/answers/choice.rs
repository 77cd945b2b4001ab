//! Enforcer of a client's group.

use super::super::Service;
use super::super::parts::Enforcement;
use super::{Refused, one_line};
use crate::config::EnforcerWanted;
use crate::control::protocol::Choice;

impl Service {
    /// Chooses whether the scheduler enforces a group. The configuration file decides for all
    /// clients; an owner without one leaves the choice to the client that begins the group.
    /// `present`: the name of a group that has begun, and its choice.
    pub(super) fn choose(
        &self,
        present: Option<(&str, bool)>,
        choice: Choice,
    ) -> Result<bool, Refused> {
        let Enforcement {
            planner, starter, ..
        } = &self.enforcement;
        let is_scheduled = match present {
            _ if self.file.is_present() => planner.is_scheduled(),
            Some((_, is_scheduled)) => is_scheduled,
            None => return starter.choose(choice.enforcer).map_err(one_line),
        };
        let (is, other, wanted) = match is_scheduled {
            false => ("cgroup", EnforcerWanted::SchedExt, "sched-ext"),
            true => ("sched-ext", EnforcerWanted::Cgroup, "cgroup"),
        };
        if choice.enforcer != other {
            return Ok(is_scheduled);
        }
        let file = self.file.path().display();
        Err(match present.filter(|_| !self.file.is_present()) {
            Some((name, _)) => format!(
                "enforcer: `{wanted}` cannot take over group `{name}`, which `{is}` enforces; \
                 allowed: auto, {is} (or end the group and start it again)"
            ),
            None => format!(
                "enforcer: `{wanted}` is not the daemon's; allowed: auto, {is} \
                 (or another `enforcer` in {file})"
            ),
        })
    }
}
