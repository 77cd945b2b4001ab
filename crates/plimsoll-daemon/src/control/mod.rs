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
//!
//! Whoever may connect may ask for everything: the socket's mode alone decides who that is.

pub mod client;
pub mod clock;
pub mod connection;
pub mod handler;
pub mod protocol;
pub mod server;
