//! Report of a run of requests, and the JSON form of all reports.
//!
//! # JSON
//! Every report is one object: [`Document`], which has `schema` and `command`
//! beside the report's own fields. Within `plimsoll.load/2`, fields are only
//! ever added. Times end in `_us` (microseconds) or `_seconds`, rates in
//! `_per_second`.

use serde::{Deserialize, Serialize};

use crate::units::micros;

/// Name and version of the JSON form.
const SCHEMA: &str = "plimsoll.load/2";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document<T> {
    /// Always `plimsoll.load/2`.
    pub schema: String,
    /// Name of the workload: `service`, `burn`, `storm` or `steady`; or
    /// `burn-progress`.
    pub command: String,
    /// The report; its fields are flattened into the object.
    #[serde(flatten)]
    pub report: T,
}

impl<T> Document<T> {
    pub fn new(command: &str, report: T) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            command: command.to_owned(),
            report,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// At its planned end.
    Complete,
    /// Earlier, by a call or a signal; the report covers the time until then.
    Stopped,
}

/// Latencies of a run, in microseconds; all 0 without requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub mean_us: f64,
}

impl Latency {
    /// Quantiles, maximum and mean of times in ns.
    #[must_use]
    pub fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        // The smallest time that is not exceeded by a share `q` of all.
        let quantile = |q: f64| {
            let rank = (q * ns.len() as f64).ceil() as usize;
            micros(ns.get(rank.saturating_sub(1)).copied().unwrap_or(0))
        };
        let sum: f64 = ns.iter().map(|ns| micros(*ns)).sum();
        Self {
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: quantile(1.0),
            mean_us: sum / ns.len().max(1) as f64,
        }
    }
}

/// Report of a run of requests. All figures exclude the requests of the
/// warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    /// Time measured: the duration asked for, or less if the run was stopped.
    pub measured_seconds: f64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were answered after the deadline, with an error, or not
    /// at all.
    pub failures: u64,
    /// Latency from the intended arrival to the answer. For requests without
    /// an answer: the time until they were given up, a lower bound.
    pub latency: Latency,
    pub ending: Ending,
    /// Latency over time; empty unless an interval was set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesPoint>,
}

/// An interval of a time series. A request belongs to the interval of its
/// intended arrival.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Start of the interval, in seconds after the end of the warm-up.
    pub at_seconds: f64,
    pub count: u64,
    pub failures: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_flat_and_versioned() {
        let document = Document::new("storm", Latency::default());
        let text = serde_json::to_string(&document).unwrap();
        let start = r#"{"schema":"plimsoll.load/2","command":"storm","p50_us":0.0,"#;
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn quantile_is_a_time_that_was_measured() {
        let of = |count: u64| Latency::of((1..=count).rev().map(|n| n * 1_000).collect());
        let quantiles = |of: Latency| [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us];
        let thousand = of(1_000);
        assert_eq!(quantiles(thousand), [500.0, 900.0, 990.0, 999.0, 1_000.0]);
        assert!((thousand.mean_us - 500.5).abs() < 1e-9);
        assert_eq!(quantiles(of(1)), [1.0; 5]);
        assert_eq!(of(0), Latency::default());
    }
}
