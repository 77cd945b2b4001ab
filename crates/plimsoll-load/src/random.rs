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

    fn draws(seed: u64, stream: Stream) -> Vec<f64> {
        let rng = generator(seed, stream);
        StandardUniform.sample_iter(rng).take(100_000).collect()
    }

    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        // Uniform on 0..1: mean 1/2, variance 1/12.
        let products = a.iter().zip(b).map(|(x, y)| (x - 0.5) * (y - 0.5));
        12.0 * products.sum::<f64>() / a.len() as f64
    }

    #[test]
    fn streams_and_nearby_seeds_are_not_correlated() {
        let base = draws(1, Stream::Gaps);
        assert_eq!(base, draws(1, Stream::Gaps));
        for other in [
            draws(1, Stream::Demands),
            draws(2, Stream::Gaps),
            draws(0, Stream::Gaps),
        ] {
            assert!(correlation(&base, &other).abs() < 0.02);
        }
    }
}
