//! Random choices from a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

/// Source of random choices.
#[derive(Debug)]
pub struct Chance(Pcg64Mcg);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// One of so many numbers, from 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of them; `None`: there is none.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let limit = u64::try_from(of.len()).ok().filter(|length| *length > 0)?;
        of.get(usize::try_from(self.below(limit)).ok()?).cloned()
    }
}
