//! Interface of the service to the control socket.

use super::protocol::{Answer, Request};

/// Answers requests.
pub trait Handler: Send + Sync {
    /// Answers a request. Other clients wait meanwhile.
    fn answer(&self, request: Request) -> Answer;

    /// A line was refused, because it is not a request.
    fn unreadable(&self) {}
}
