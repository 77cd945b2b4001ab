//! Random numbers: independent streams from one seed.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::SeedableRng;

/// Purpose of a stream. Separate streams, so that a change of one distribution
/// does not change the draws of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Gaps of Poisson arrivals.
    Gaps,
    Demands,
}

/// Generator of `stream` for `seed`.
///
/// Each stream is seeded through a hash, because PCG's own streams, and similar
/// seeds without a hash, yield sequences that are transforms of each other.
pub(crate) fn generator(seed: u64, stream: Stream) -> Pcg64 {
    // A place never changes: it belongs to the meaning of a seed.
    let place = match stream {
        Stream::Gaps => 0,
        Stream::Demands => 2,
    };
    let root = Pcg64::seed_from_u64(seed);
    let mut seeds = StandardUniform.sample_iter(root);
    let own: u64 = seeds.nth(place).unwrap_or(seed);
    Pcg64::seed_from_u64(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_seed_differ() {
        let first = |stream| -> u64 { StandardUniform.sample(&mut generator(1, stream)) };
        assert_ne!(first(Stream::Gaps), first(Stream::Demands));
    }
}
