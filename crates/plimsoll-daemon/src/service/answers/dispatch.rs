//! Dispatch of a request to the method that answers it.

use super::super::Service;
use super::targets::Refused;
use crate::control::protocol::{Answer, Request};

impl Service {
    pub(in crate::service) fn answer(&mut self, request: &Request) -> Answer {
        self.try_answer(request).unwrap_or_else(|refused| {
            self.notices.counters.requests_refused += 1;
            Answer::Refused(refused)
        })
    }

    fn try_answer(&mut self, request: &Request) -> Result<Answer, Refused> {
        match request {
            Request::Show { target, details } => self.show(target.as_deref(), *details),
            Request::Tasks { target } => self.show_tasks(target),
            Request::Set(set) => self.set(set),
            Request::Reset { target } => self.reset(target),
            Request::Run(run) => self.begin_run(run),
            Request::End { name, release } => self.end_run(name, *release),
            Request::Burst { enabled } => Ok(self.switch_burst(*enabled)),
            Request::Reload => self.answer_reload(),
            Request::Debug => Ok(Answer::Text(self.debug_text())),
            Request::Restore => Ok(self.forget_sets()),
        }
    }
}
