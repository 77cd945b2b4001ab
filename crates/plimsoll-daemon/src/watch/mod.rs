//! Noticing what comes and goes, without looking all the time.

mod cgroups;

pub use cgroups::{CgroupChange, CgroupWatch};
