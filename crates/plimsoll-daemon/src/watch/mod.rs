//! Watches of cgroups and processes, by events of the kernel where it has them.
//!
//! | file | subject |
//! | --- | --- |
//! | `cgroups.rs` | cgroups, by inotify |
//! | `processes.rs` | processes, by the first of the next two that the host has |
//! | `connector.rs` | the kernel's process events |
//! | `scan.rs` | the list of processes, read periodically |

mod cgroups;
mod connector;
mod processes;
mod scan;

pub use cgroups::{CgroupChange, CgroupWatch};
pub use processes::{ProcessChanges, ProcessWatch};
