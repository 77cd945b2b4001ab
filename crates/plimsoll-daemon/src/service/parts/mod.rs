//! Parts of the service: each owns the state of one subject, and reaches no other part.
//!
//! | file | subject |
//! | --- | --- |
//! | `config_file.rs` | the configuration in force, and where it was read |
//! | `enforcement.rs` | enforcer, planner and control loop, replaced together |
//! | `guard.rs` | the guard of the fair class, while batch work is in it |
//! | `planner.rs` | plans of groups for this host |
//! | `control_loop.rs` | the loop of the control thread, and what it shares with the service |
//! | `notices.rs` | log, open problems and counters |
//! | `external_changes.rs` | kernel files that other processes wrote |
//! | `group_table.rs` | groups: desired and applied state, retries, demand |
//! | `requests.rs` | requests of clients, kept across restarts |
//! | `tuning.rs` | the tuning of the host for the fair class |
//! | `usage.rs` | CPU time of the machine and of batch groups |
//! | `lifetime.rs` | start, last use and end |

mod config_file;
mod control_loop;
mod enforcement;
mod external_changes;
mod group_table;
mod guard;
mod lifetime;
mod notices;
mod planner;
mod requests;
mod tuning;
mod usage;

pub(super) use config_file::ConfigFile;
pub(super) use enforcement::Enforcement;
pub(super) use external_changes::ExternalChanges;
pub(super) use group_table::{GroupEntry, GroupTable};
pub(super) use guard::GuardSwitch;
pub(super) use lifetime::Lifetime;
pub(super) use notices::Notices;
pub(super) use planner::Planner;
pub(super) use requests::ClientRequests;
pub use requests::forget;
pub(super) use tuning::TuningSwitch;
pub(super) use usage::UsageMeter;
