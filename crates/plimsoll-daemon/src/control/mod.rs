//! How the daemon is asked: a unix socket, lines of JSON.

pub mod protocol;
