//! `plimsoll daemon`: promises to operators and users.

mod cpus;
mod lifecycle;
mod reload;
pub mod rig;
mod rules;
mod show;
mod slice;
mod tuning;
mod users;
