//! Results, and their JSON form.
//!
//! # JSON
//! `plimsoll demo --json` prints one object: [`DemoOutcome`] beside `schema`.
//! Within `plimsoll.demo/1`, fields are only ever added. Times end in `_us`
//! (microseconds) or `_seconds`; ratios are 1 for the whole.

use std::path::Path;

use plimsoll_cgroupfs::CpuStat;
use plimsoll_engine::host::Capabilities;
use plimsoll_engine::sample::HeadroomSample;
use plimsoll_load::{BurnReport, Latency, SeriesPoint};
use serde::Serialize;

use super::scenario::{LOAD_PERCENT, Scenario};
use crate::expected::{Expected, Mechanism};
use crate::meter::BusyPoint;

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "plimsoll.demo/1";

#[derive(Debug, Clone, Serialize)]
pub struct DemoOutcome {
    pub version: String,
    /// Start time, in seconds since 1970.
    pub started_unix_seconds: u64,
    pub took_seconds: f64,
    /// Whether the demo was interrupted: some phases may be missing, and the last one may be
    /// shorter.
    pub interrupted: bool,
    /// Measured time of each phase, as requested.
    pub phase_seconds: f64,
    pub host: DemoHost,
    /// Description of the steady service.
    pub service: String,
    /// Load and machine of the figures that `plimsoll doctor` expects; `null`: it has none.
    pub expected_at: Option<String>,
    /// Description of the bursty service.
    pub bursty_service: String,
    /// Phases with the steady service: `alone`, then beside burners: `equal`,
    /// `weight`, `batch`, `headroom`.
    pub phases: Vec<PhaseResult>,
    /// Phases with the bursty service: `no-quota`, `quota`, `quota-burst`.
    pub bursts: Vec<PhaseResult>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
    pub report: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct DemoHost {
    /// Release of the kernel.
    pub kernel: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Cgroup interface: `cgroup v1` or `cgroup v2`.
    pub interface: String,
}

impl DemoHost {
    /// Reduces the capabilities to these facts.
    pub fn of(host: &Capabilities) -> Self {
        Self {
            kernel: host.kernel.clone(),
            cpus: host.nr_cpus,
            interface: host.cgroup.to_string(),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct PhaseResult {
    /// Stable name.
    pub key: String,
    pub title: String,
    /// Label of its table row: the neighbours, and the knobs as typed.
    pub label: String,
    /// Knobs of the phase: of the burners, or of the bursty service.
    pub knobs: String,
    /// The exact commands, burners first.
    pub commands: Vec<String>,
    pub measured_seconds: f64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests answered after the deadline or never.
    pub failures: u64,
    /// Time from the intended arrival to the answer.
    pub latency: Latency,
    /// 99th percentile ÷ that of the first phase of the same kind (`alone` or
    /// `no-quota`); `null` if that was not measured.
    pub p99_ratio: Option<f64>,
    /// Ratio that `plimsoll doctor` expects here; `null`: it expects nothing.
    pub expected_p99_ratio: Option<f64>,
    /// Utilisation of the machine: busy time ÷ (CPUs × elapsed).
    pub busy_ratio: f64,
    /// Part of the utilisation by other programs than service and burners.
    pub others_ratio: f64,
    pub burners: Option<Burners>,
    /// The kernel's counters of the service's quota; `null` without a quota.
    pub throttling: Option<CpuStat>,
    /// State of the headroom controller at the end; `null` without a headroom.
    pub headroom: Option<HeadroomSample>,
    /// Latency over time.
    pub series: Vec<SeriesPoint>,
    /// Machine utilisation over time.
    pub busy_series: Vec<BusyPoint>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Burners {
    /// Units of work; a unit is always the same instructions.
    pub units: u64,
    /// Units ÷ the burners' elapsed time.
    pub units_per_second: f64,
    /// Average number of CPUs used.
    pub cpus_used: f64,
    /// Rate ÷ that of the `equal` phase; `null` if that was not measured.
    pub work_ratio: Option<f64>,
}

impl Burners {
    pub fn of(report: &BurnReport) -> Self {
        Self {
            units: report.units,
            units_per_second: report.units_per_second,
            cpus_used: report.cpus_used,
            work_ratio: None,
        }
    }
}

impl DemoOutcome {
    pub fn new(report: &Path, scenario: &Scenario, host: DemoHost, now: u64) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_seconds: now,
            took_seconds: 0.0,
            interrupted: false,
            phase_seconds: scenario.phase.as_secs_f64(),
            host,
            service: scenario.service.clone(),
            expected_at: None,
            bursty_service: scenario.bursts.clone(),
            phases: Vec::new(),
            bursts: Vec::new(),
            notes: scenario.notes.clone(),
            report: report.display().to_string(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.phases.is_empty() && self.bursts.is_empty()
    }

    pub fn phase(&self, key: &str) -> Option<&PhaseResult> {
        self.phases
            .iter()
            .chain(&self.bursts)
            .find(|phase| phase.key == key)
    }

    /// Notes what `plimsoll doctor` expects of the phases. `batch`: the mechanism of the batch class
    /// without further options.
    pub fn expect(&mut self, expected: &Expected, batch: Mechanism) {
        for phase in &mut self.phases {
            let mechanism = match phase.key.as_str() {
                "batch" => batch,
                "batch-no-guard" => Mechanism::NoGuard,
                "batch-sched-ext" => Mechanism::SchedExt,
                _ => continue,
            };
            phase.expected_p99_ratio = expected.factor(mechanism, LOAD_PERCENT);
        }
        self.expected_at = Some(expected.source_near(LOAD_PERCENT));
    }

    /// Computes the figures that compare phases.
    pub fn compare(&mut self) {
        let rate = |burners: &Burners| burners.units_per_second;
        let equal = self
            .phase("equal")
            .and_then(|phase| phase.burners.as_ref().map(rate));
        for (phases, first) in [(&mut self.phases, "alone"), (&mut self.bursts, "no-quota")] {
            let base = phases.iter().find(|phase| phase.key == first);
            let base_us = base
                .map(|phase| phase.latency.p99_us)
                .filter(|us| *us > 0.0);
            for phase in phases {
                phase.p99_ratio = base_us.map(|us| phase.latency.p99_us / us);
                if let (Some(burners), Some(equal)) = (&mut phase.burners, equal)
                    && equal > 0.0
                {
                    burners.work_ratio = Some(burners.units_per_second / equal);
                }
            }
        }
    }
}

/// Microseconds as milliseconds, with three significant digits.
pub fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    let digits = match ms {
        ms if ms < 9.995 => 2,
        ms if ms < 99.95 => 1,
        _ => 0,
    };
    format!("{ms:.digits$} ms")
}

/// A ratio as a whole percentage.
pub fn percent(ratio: f64) -> String {
    format!("{:.0} %", 100.0 * ratio)
}

pub fn times(ratio: f64) -> String {
    let digits = usize::from(ratio < 9.95) + usize::from(ratio < 1.995);
    format!("{ratio:.digits$}×")
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    #[test]
    fn figures_have_their_units() {
        assert_eq!(milliseconds(512.3), "0.51 ms");
        assert_eq!(milliseconds(9_996.0), "10.0 ms");
        assert_eq!(milliseconds(123_456.0), "123 ms");
        assert_eq!(percent(0.996), "100 %");
        assert_eq!(
            (times(1.004), times(7.26), times(31.4)),
            ("1.00×".into(), "7.3×".into(), "31×".into())
        );
    }

    #[test]
    fn phases_are_compared_with_the_first_of_their_kind() {
        let outcome = fixture::outcome();
        let ratio = |key: &str| outcome.phase(key).unwrap().p99_ratio.unwrap();
        assert_eq!((ratio("alone"), ratio("no-quota")), (1.0, 1.0));
        assert!(ratio("equal") > 5.0 && ratio("quota") > 5.0);
        let work = |key: &str| outcome.phase(key).unwrap().burners.unwrap().work_ratio;
        assert_eq!(work("equal"), Some(1.0));
    }

    #[test]
    fn expectations_are_those_of_the_mechanism() {
        let mut outcome = fixture::outcome();
        let expected = Expected::of("6.18.0", 2, None).unwrap();
        for mechanism in [Mechanism::NoGuard, Mechanism::Guard, Mechanism::SchedExt] {
            outcome.expect(&expected, mechanism);
            let of = |key: &str| outcome.phase(key).unwrap().expected_p99_ratio;
            assert_eq!(of("batch"), expected.factor(mechanism, 12));
            assert_eq!((of("alone"), of("headroom")), (None, None));
        }
    }

    #[test]
    fn json_is_flat_and_versioned() {
        let value = serde_json::to_value(fixture::outcome()).unwrap();
        for field in "version host phases bursts notes interrupted".split(' ') {
            assert!(value.get(field).is_some(), "{field}");
        }
        assert_eq!(value["bursts"][1]["throttling"]["nr_throttled"], 26);
        assert!(value["phases"][0]["series"][0]["p99_us"].is_number());
    }
}
