//! What an operator installs and forgets.

pub mod config;
pub mod matching;
pub mod watch;
