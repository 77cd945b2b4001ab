//! Dispatch of a request to the method that answers it.

use std::os::fd::BorrowedFd;

use super::super::Service;
use super::Refused;
use crate::control::protocol::{Answer, Request};

impl Service {
    pub(in crate::service) fn answer(
        &mut self,
        request: &Request,
        handle: Option<BorrowedFd<'_>>,
    ) -> Answer {
        self.try_answer(request, handle).unwrap_or_else(|refused| {
            self.notices.counters.requests_refused += 1;
            Answer::Refused(refused)
        })
    }

    fn try_answer(
        &mut self,
        request: &Request,
        handle: Option<BorrowedFd<'_>>,
    ) -> Result<Answer, Refused> {
        match request {
            Request::Show { target, details } => self.show(target.as_deref(), handle, *details),
            Request::Tasks { target } => self.show_tasks(target, handle),
            Request::Set(set) => self.set(set, handle),
            Request::Reset { target } => self.reset(target, handle),
            Request::Run(run) => self.begin_run(run, handle),
            Request::End { name, release } => self.end_run(name, *release),
            Request::Burst { enabled } => Ok(self.switch_burst(*enabled)),
            Request::Reload => self.answer_reload(),
            Request::Debug => Ok(Answer::Text(self.debug_text())),
            Request::Restore => Ok(self.restore()),
        }
    }
}
