//! Interface of the service to the control socket.

use super::peer::Peer;
use super::protocol::{Answer, Request};

/// Answers requests.
pub trait Handler: Send + Sync {
    /// Answers a request, after a check that the peer may ask it. Other clients wait meanwhile.
    fn answer(&self, peer: &Peer, request: Request) -> Answer;

    /// A line of a peer was refused, because it is not a request.
    fn unreadable(&self, _peer: &Peer) {}
}
