//! The owner of a cgroup tree: configuration, matching, reconcile, control socket, metrics.

pub mod config;
pub mod control;
pub mod log;
pub mod matching;
pub mod metrics;
pub mod service;
#[cfg(test)]
mod skipped;
pub mod state;
#[cfg(test)]
#[allow(dead_code)]
#[path = "../../plimsoll/tests/common/wait.rs"]
mod wait;
pub mod watch;
