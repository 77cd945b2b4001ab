//! Random numbers with a seed that can be repeated.

use std::ops::Range;

/// Variable with another seed than the default.
const SEED_VARIABLE: &str = "PLIMSOLL_SEED";
/// Seed of the gate, so that each run makes the same choices.
const SEED: u64 = 1;

/// splitmix64, which is good enough for choosing faults.
pub struct Random(u64);

impl Random {
    /// Uses the seed of the environment, or the default; prints it.
    pub fn of_this_run(what: &str) -> Self {
        let given = std::env::var(SEED_VARIABLE).ok();
        let seed = given.map_or(SEED, |text| text.parse().unwrap());
        println!("{what}: {SEED_VARIABLE}={seed}");
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// Returns true with a probability in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0..all.len() as u64) as usize]
    }
}
