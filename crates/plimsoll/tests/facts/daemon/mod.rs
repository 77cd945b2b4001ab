//! `plimsoll daemon`: promises to operators and users.

mod cpus;
mod damage;
mod following;
mod foreign;
mod headroom;
mod lifecycle;
mod reload;
mod restore;
pub mod rig;
mod rules;
mod run;
mod set;
mod show;
mod slice;
mod tuning;
mod users;
