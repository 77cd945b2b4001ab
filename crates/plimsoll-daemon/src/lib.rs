//! What an operator installs and forgets.

pub mod config;
pub mod control;
pub mod matching;
pub mod state;
pub mod watch;
