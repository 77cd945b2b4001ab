//! The service: keeps the kernel's state equal to the desired one, as cgroups come and go.
//!
//! One thread reads events and requests, matches, and reconciles; another, the control loop,
//! never waits for the first. Each subject has a part of its own in `parts/`; the methods of
//! [`Service`] compose them:
//!
//! | file | subject |
//! | --- | --- |
//! | `composition.rs` | [`Service`]: the parts and their handle |
//! | `options.rs` | parameters, and the interface to enforcers |
//! | `start.rs`, `reload.rs` | start; another configuration |
//! | `run.rs` | event loop and end |
//! | `follow_cgroups.rs` | events of cgroups |
//! | `sources.rs` | desired state, merged from file and clients |
//! | `decision.rs` | decision about one group, pure |
//! | `reconcile.rs` | makes the applied state equal the desired one |
//! | `audit.rs` | kernel files that other processes wrote |
//! | `command_groups.rs` | groups of commands across restart and reload |
//! | `answers/` | requests of clients |
//! | `report.rs` | the state that clients and metrics read |
//! | `desired.rs`, `command.rs`, `requested.rs`, `members.rs` | values that the parts share |
//! | `handle.rs` | messages from other threads |

mod answers;
mod audit;
mod command;
mod command_groups;
mod composition;
mod decision;
mod desired;
mod follow_cgroups;
mod handle;
mod members;
mod options;
mod parts;
mod reconcile;
mod reload;
mod report;
mod requested;
mod run;
mod sources;
mod start;

pub use composition::Service;
pub use handle::Handle;
pub use options::{
    Attached, AttachedGuard, Enforcing, Handover, Heartbeat, LINGER, Options, Starter, TakeGuard,
};
pub use parts::forget;
pub use reload::{NotEnforceable, check};
