//! Translates knobs into writes to kernel files.
//!
//! ```text
//! Knobs → Plan (which mechanism, what loss) → Action → Enforcer
//! ```
//!
//! Undo is part of apply: before a knob of the system is changed, its old value is in the journal.

pub mod action;
mod bandwidth_slice;
pub mod cgroup;
mod control;
pub mod enforcer;
mod error;
pub mod group_policy;
pub mod host;
mod host_settings;
mod host_tuning;
pub mod journal;
pub mod knobs;
pub mod machine_policy;
pub mod own_groups;
pub mod plan;
pub mod runtime;
pub mod sample;
pub mod tasks;
pub mod text_file;
pub mod undo;

pub use error::{EngineError, Result};
