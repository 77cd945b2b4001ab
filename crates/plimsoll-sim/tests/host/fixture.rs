//! Builders of scenarios, and assertions.

use std::time::Duration;

use plimsoll_engine::knobs::Knobs;
use plimsoll_load::{Arrivals, BurnConfig, Demand, NeedConfig, ServiceConfig, SteadyConfig};
use plimsoll_sim::host::{GroupReport, Host, HostReport, Observer, Span, WorkloadReport};
use plimsoll_sim::scenario::{Group, Machine, Scenario, Workload};

pub const MSEC: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;

/// A machine without a switch cost.
pub fn machine(cpus: u32) -> Machine {
    Machine {
        switch_cost_ns: 0,
        ..Machine::of_cpus(cpus)
    }
}

/// A group; knobs as in a file, in JSON without the braces: `"class": "batch"`.
pub fn group(name: &str, knobs: &str, workloads: Vec<Workload>) -> Group {
    Group {
        name: name.into(),
        knobs: serde_json::from_str::<Knobs>(&format!("{{{knobs}}}")).unwrap(),
        workloads,
    }
}

pub fn scenario(cpus: u32, duration_ns: u64, groups: Vec<Group>) -> Scenario {
    Scenario {
        about: String::new(),
        machine: machine(cpus),
        groups,
        duration_ns,
        warmup_ns: 0,
        seed: 1,
    }
}

pub fn burn(burners: usize) -> Workload {
    Workload::Burn(BurnConfig {
        burners,
        ..BurnConfig::default()
    })
}

pub fn need(cpu_ns: u64, tasks: usize) -> Workload {
    let cpu = Duration::from_nanos(cpu_ns);
    Workload::Need(NeedConfig { cpu, tasks })
}

/// Poisson arrivals.
pub fn service(rate: f64, demand: &str, workers: usize, seed: u64) -> Workload {
    Workload::Service(ServiceConfig {
        arrivals: Arrivals::Poisson { rate },
        demand: demand.parse::<Demand>().unwrap(),
        workers,
        seed,
        ..ServiceConfig::default()
    })
}

pub fn steady(percent: f64, duration_ns: u64) -> Workload {
    Workload::Steady(SteadyConfig {
        percent,
        duration: Duration::from_nanos(duration_ns),
        ..SteadyConfig::default()
    })
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario) -> HostReport {
    let mut host = Host::new(scenario).unwrap();
    host.run_until(u64::MAX);
    host.report()
}

pub fn of<'a>(report: &'a HostReport, name: &str) -> &'a GroupReport {
    report.groups.iter().find(|g| g.name == name).unwrap()
}

/// Mean and 99th percentile in µs, and number of answers of a service.
pub fn latency(group: &GroupReport) -> (f64, f64, u64) {
    match &group.workloads[0] {
        WorkloadReport::Service {
            latency, answered, ..
        } => (latency.mean_us, latency.p99_us, *answered),
        other => panic!("not a service: {other:?}"),
    }
}

#[track_caller]
pub fn assert_near(what: &str, is: f64, should: f64, within: f64) {
    assert!(
        (is - should).abs() <= within,
        "{what}: {is}, expected {should} ± {within}"
    );
}

/// Observer that collects all spans, by end time.
#[derive(Default)]
pub struct Spans(pub Vec<Span>);

impl Observer for Spans {
    fn ran(&mut self, span: &Span) {
        self.0.push(*span);
    }
}
