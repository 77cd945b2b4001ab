//! Fixed data for tests.

use std::path::Path;
use std::time::Duration;

use plimsoll_cgroupfs::{CpuStat, Version};
use plimsoll_engine::host::Capabilities;
use plimsoll_load::{Latency, SeriesPoint};

use super::outcome::{Burners, DemoHost, DemoOutcome, PhaseResult};
use super::scenario::{Phase, Scenario, Support};
use crate::expected::Expected;
use crate::meter::BusyPoint;

pub fn host() -> Capabilities {
    Capabilities {
        cgroup: Version::V2,
        has_idle: true,
        has_burst: true,
        is_top: true,
        nr_cpus: 2,
        kernel: "6.18.0-<test>".into(),
        has_sched_ext: false,
        may_have_guard: true,
        may_tune_host: true,
        is_lazy: None,
    }
}

fn result(phase: &Phase, p99_us: f64, busy_ratio: f64) -> PhaseResult {
    let point = |index: u32| SeriesPoint {
        at_seconds: f64::from(index) * 0.25,
        count: 220,
        failures: 0,
        p50_us: 510.0,
        p99_us: p99_us * (1.0 + 0.1 * f64::from(index % 3)),
        max_us: 2.0 * p99_us,
    };
    let busy = |index: u32| BusyPoint {
        at_seconds: 0.05 + f64::from(index) * 0.1,
        busy_ratio,
    };
    PhaseResult {
        key: phase.key.into(),
        title: phase.title.into(),
        label: phase.label(),
        knobs: phase.knobs(),
        commands: vec![phase.service.command()],
        measured_seconds: 8.0,
        requests: 7_040,
        failures: u64::from(p99_us > 10_000.0) * 71,
        latency: Latency {
            p50_us: 510.0,
            p99_us,
            p999_us: 1.5 * p99_us,
            ..Latency::default()
        },
        p99_ratio: None,
        expected_p99_ratio: None,
        busy_ratio,
        others_ratio: 0.01,
        burners: phase.burners.as_ref().map(|_| Burners {
            units: 1_000_000,
            units_per_second: 125_000.0 * busy_ratio,
            cpus_used: 1.5,
            work_ratio: None,
        }),
        throttling: phase.knobs().contains("--quota").then_some(CpuStat {
            nr_periods: 54,
            nr_throttled: 26,
            ..CpuStat::default()
        }),
        headroom: None,
        series: (0..32).map(point).collect(),
        busy_series: (0..80).map(busy).collect(),
    }
}

pub fn outcome() -> DemoOutcome {
    let support = Support {
        no_guard: Some("this host has none".into()),
        ..Support::default()
    };
    let scenario = Scenario::new(Duration::from_secs(8), 2, &host(), &support);
    let report = Path::new("demo.html");
    let mut outcome = DemoOutcome::new(report, &scenario, DemoHost::of(&host()), 1_772_323_200);
    let figures = [
        (800.0, 0.23),
        (9_000.0, 1.0),
        (1_900.0, 1.0),
        (830.0, 1.0),
        (805.0, 0.7),
        (12_000.0, 0.05),
        (98_000.0, 0.05),
        (12_500.0, 0.05),
    ];
    let results = scenario.phases.iter().zip(figures);
    let mut all: Vec<_> = results
        .map(|(phase, (p99, busy))| result(phase, p99, busy))
        .collect();
    outcome.bursts = all.split_off(5);
    outcome.phases = all;
    outcome.compare();
    let expected = Expected::of("6.18.0", 2, None).unwrap();
    outcome.expect(&expected, support.batch);
    outcome
}
