//! How the daemon is asked: a unix socket, lines of JSON.
//!
//! [`server`] takes requests from anybody and hands them, with the [`peer`]
//! that the kernel vouches for, to a [`server::Handler`]. [`authority`] says
//! who may do what; [`target`] finds out what it has to know of a process.

pub mod authority;
pub mod client;
pub mod connection;
pub mod peer;
pub mod protocol;
pub mod server;
pub mod target;
