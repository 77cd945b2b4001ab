//! Quantiles of times.

use plimsoll_load::Latency;

/// Quantiles, maximum and mean of times in ns; all 0 without any.
pub fn latency(mut ns: Vec<u64>) -> Latency {
    ns.sort_unstable();
    let us = |ns: u64| ns as f64 / 1e3;
    // The smallest time that is not exceeded by a share `q` of all.
    let quantile = |q: f64| {
        let rank = (q * ns.len() as f64).ceil() as usize;
        us(ns.get(rank.saturating_sub(1)).copied().unwrap_or(0))
    };
    let sum: f64 = ns.iter().map(|ns| us(*ns)).sum();
    Latency {
        p50_us: quantile(0.5),
        p90_us: quantile(0.9),
        p99_us: quantile(0.99),
        p999_us: quantile(0.999),
        max_us: quantile(1.0),
        mean_us: sum / ns.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_a_time_that_was_measured() {
        let of = |count: u64| latency((1..=count).rev().map(|n| n * 1_000).collect());
        let thousand = of(1_000);
        let quantiles = |of: Latency| [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us];
        assert_eq!(quantiles(thousand), [500.0, 900.0, 990.0, 999.0, 1_000.0]);
        assert!((thousand.mean_us - 500.5).abs() < 1e-9);
        assert_eq!(quantiles(of(1)), [1.0; 5]);
        assert_eq!(of(0), Latency::default());
    }
}
