//! The control socket, with a handler of the tests' own.

#![allow(clippy::unwrap_used)]

mod ends;
mod faults;
mod fuzz;
mod rig;
mod server;
