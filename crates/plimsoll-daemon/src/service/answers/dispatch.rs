//! Dispatch of a request to the method that answers it.

use super::super::Service;
use super::targets::{Refused, one_line};
use crate::control::authority::{self, Facts};
use crate::control::peer::Peer;
use crate::control::protocol::{Answer, Request};

/// Checks the permission for a request without a target.
fn check_operator(peer: &Peer, request: &Request) -> Result<(), Refused> {
    authority::check(peer, request, &Facts::default()).map_err(one_line)
}

impl Service {
    pub(in crate::service) fn answer(&mut self, peer: &Peer, request: Request) -> Answer {
        self.try_answer(peer, request).unwrap_or_else(|refused| {
            self.notices.counters.requests_refused += 1;
            Answer::Refused(refused)
        })
    }

    fn try_answer(&mut self, peer: &Peer, request: Request) -> Result<Answer, Refused> {
        match &request {
            Request::Show { target, details } => self.show(target.as_deref(), *details),
            Request::Tasks { target } => self.show_tasks(target),
            Request::Set(set) => self.set(peer, &request, set),
            Request::Reset { target } => self.reset(peer, &request, target),
            Request::Run(run) => self.begin_run(peer, &request, run),
            Request::End { name, release } => self.end_run(peer, &request, name, *release),
            Request::Burst { enabled } => {
                check_operator(peer, &request)?;
                Ok(self.switch_burst(*enabled))
            }
            Request::Reload => {
                check_operator(peer, &request)?;
                self.answer_reload()
            }
            Request::Debug => {
                check_operator(peer, &request)?;
                Ok(Answer::Text(self.debug_text()))
            }
            Request::Restore => {
                check_operator(peer, &request)?;
                Ok(self.forget_sets())
            }
        }
    }
}
