//! The CPUs of a guest.

use crate::named::named;

/// Numbers of CPUs and of last-level caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpus {
    pub count: u32,
    pub llcs: u32,
}

impl Cpus {
    pub const ONE: Self = Self { count: 1, llcs: 1 };
    pub const TWO: Self = Self { count: 2, llcs: 1 };
    pub const FOUR: Self = Self { count: 4, llcs: 2 };
}

const NAMES: [(Cpus, &str); 3] = [(Cpus::ONE, "1"), (Cpus::TWO, "2"), (Cpus::FOUR, "4")];
named!(Cpus, "number of CPUs", NAMES);
