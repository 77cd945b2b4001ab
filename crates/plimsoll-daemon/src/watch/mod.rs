//! Noticing what comes and goes, without looking all the time.
//!
//! | file | subject |
//! | --- | --- |
//! | `cgroups.rs` | cgroups, by inotify |
//! | `processes.rs` | processes, by whichever of the next two the host has |
//! | `connector.rs` | the kernel's process events |
//! | `scan.rs` | the list of processes, looked at again and again |

mod cgroups;
mod connector;
mod processes;
mod scan;

pub use cgroups::{CgroupChange, CgroupWatch};
pub use processes::{ProcessChanges, ProcessWatch};
