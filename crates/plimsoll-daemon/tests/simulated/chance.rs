//! Random choices from a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

#[derive(Debug)]
pub struct Chance(Pcg64Mcg);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Returns a number from 0 up to `limit`, without `limit` itself.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    /// Returns `true` once in `times` calls on average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Picks one of several; `None`: there is none.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let limit = u64::try_from(of.len()).ok().filter(|length| *length > 0)?;
        of.get(usize::try_from(self.below(limit)).ok()?).cloned()
    }
}
