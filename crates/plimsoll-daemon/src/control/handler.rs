//! Interface of the service to the control socket.

use std::os::fd::OwnedFd;
use std::time::Instant;

use super::protocol::{Answer, Request};

pub trait Handler: Send + Sync {
    /// Answers a request, which may have come with the handle of its process or cgroup. Other
    /// clients wait meanwhile.
    fn answer(&self, request: Request, handle: Option<OwnedFd>) -> Answer;

    /// Notes that a line was refused because it is not a request.
    fn unreadable(&self) {}

    /// Reads the clock of the clients' deadlines.
    fn now(&self) -> Instant {
        Instant::now()
    }
}
