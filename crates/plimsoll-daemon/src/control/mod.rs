//! The control socket: a Unix stream socket with lines of JSON.
//!
//! | file | subject |
//! | --- | --- |
//! | `protocol.rs` | requests and answers |
//! | `client.rs` | client of a daemon |
//! | `server.rs` | the socket: one thread for all clients |
//! | `connection.rs` | one client: its buffers and deadlines |
//! | `clock.rs` | clock of the deadlines |
//! | `handler.rs` | interface of the service to the server |
//! | `peer.rs` | credentials of a client, as the kernel reports them |
//! | `authority.rs` | permissions of users |
//! | `target.rs` | facts about a process, for a decision on permission |

pub mod authority;
pub mod client;
pub mod clock;
pub mod connection;
pub mod handler;
pub mod peer;
pub mod protocol;
pub mod server;
pub mod target;
