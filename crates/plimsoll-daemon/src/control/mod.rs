//! The control socket: a Unix stream socket with lines of JSON.
//!
//! | file | subject |
//! | --- | --- |
//! | `protocol.rs` | requests and answers |
//! | `client.rs` | client of a daemon |
//! | `server.rs` | the socket: one thread for all clients |
//! | `connection.rs` | one client: its buffers and deadlines |
//! | `handler.rs` | interface of the service to the server |
//!
//! The socket's mode alone decides who may connect; a connected client may ask for everything.

pub mod client;
pub mod connection;
pub mod handler;
pub mod handles;
pub mod protocol;
pub mod server;
