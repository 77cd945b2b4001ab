//! The CPUs of a guest.

use std::fmt;
use std::str::FromStr;

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

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "1" => Ok(Self::ONE),
            "2" => Ok(Self::TWO),
            "4" => Ok(Self::FOUR),
            _ => Err(format!(
                "no machine of '{word}' CPUs; allowed: 1, 2, 4 (4 have two last-level caches)"
            )),
        }
    }
}
