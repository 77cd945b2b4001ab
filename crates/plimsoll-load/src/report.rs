//! Report of a run of requests, and the JSON form of all reports.
//!
//! # JSON
//! Every report is one object: [`Document`], which has `schema` and `command`
//! beside the report's own fields. Within `plimsoll.load/2`, fields are only
//! ever added. Times end in `_us` (microseconds) or `_seconds`, rates in
//! `_per_second`.

use serde::{Deserialize, Serialize};

use crate::measure::Totals;
pub use crate::series::SeriesPoint;
use crate::units::{micros, ratio};

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
    /// Quantiles of the histogram; maximum and mean are exact.
    pub(crate) fn of(totals: &Totals) -> Self {
        let max_ns = totals.latency_max_ns;
        // Buckets report their upper bound, which may lie just above the
        // maximum.
        let quantile = |q| micros(totals.latency.value_at_quantile(q).min(max_ns));
        Self {
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: micros(max_ns),
            mean_us: ratio(totals.latency_sum_ns as f64 / 1e3, totals.requests() as f64),
        }
    }
}

/// Report of a run of requests. All figures exclude the requests of the
/// warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceReport {
    pub seed: u64,
    /// Description of the arrival process.
    pub arrivals: String,
    /// Distribution of the CPU demand, as on the command line.
    pub service: String,
    pub workers: usize,
    pub warmup_seconds: f64,
    /// Time measured: the duration asked for, or less if the run was stopped.
    pub measured_seconds: f64,
    /// Answers later than this count as failures.
    pub deadline_us: f64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that were answered, including late ones.
    pub answered: u64,
    /// Requests that were answered after the deadline.
    pub late: u64,
    /// Requests without an answer at the end of the grace. Their latency in the
    /// histogram is the time until they were given up, a lower bound.
    pub unfinished: u64,
    /// `late` + `unfinished`.
    pub failures: u64,
    /// Requests without failure ÷ requests; 1 without requests.
    pub success_ratio: f64,
    pub rate_asked_per_second: f64,
    /// Requests that arrived ÷ measured time.
    pub rate_arrived_per_second: f64,
    /// Requests answered before the end of the run (not in the grace) ÷ measured time.
    pub rate_achieved_per_second: f64,
    /// Latency from the intended arrival to the answer.
    pub latency: Latency,
    /// Delay of the generator, 99th percentile. Part of the latency above.
    pub generator_lag_p99_us: f64,
    pub generator_lag_max_us: f64,
    /// CPU time that the workers used for these requests.
    pub cpu_seconds: f64,
    /// CPU time that these requests asked for.
    pub cpu_asked_seconds: f64,
    pub ending: Ending,
    /// Latency over time; empty unless an interval was set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesPoint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ServiceReport {
        ServiceReport {
            seed: 7,
            arrivals: "poisson 300/s".into(),
            service: "const:300us".into(),
            workers: 2,
            warmup_seconds: 0.5,
            measured_seconds: 1.0,
            deadline_us: 50_000.0,
            requests: 300,
            answered: 299,
            late: 1,
            unfinished: 1,
            failures: 2,
            success_ratio: 0.9933,
            rate_asked_per_second: 300.0,
            rate_arrived_per_second: 300.0,
            rate_achieved_per_second: 299.0,
            latency: Latency {
                p99_us: 1_234.5,
                ..Latency::default()
            },
            generator_lag_p99_us: 1.0,
            generator_lag_max_us: 2.0,
            cpu_seconds: 0.09,
            cpu_asked_seconds: 0.09,
            ending: Ending::Stopped,
            series: vec![SeriesPoint {
                at_seconds: 0.25,
                count: 3,
                failures: 0,
                p50_us: 1.0,
                p99_us: 2.0,
                max_us: 3.0,
            }],
        }
    }

    #[test]
    fn json_is_flat_versioned_and_reads_back() {
        let document = Document::new("service", report());
        let text = serde_json::to_string(&document).unwrap();
        for part in [
            r#""schema":"plimsoll.load/2""#,
            r#""command":"service""#,
            r#""workers":2"#,
            r#""ending":"stopped""#,
            r#""p99_us":1234.5"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let back: Document<ServiceReport> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document);
    }
}
