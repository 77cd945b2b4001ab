//! Cost of an event of the host simulator, by CPUs and by tasks, and compared
//! with a naive implementation.
//!
//! `cargo bench -p plimsoll-sim --bench host`; throughput is in events.

mod plain;
mod scenario;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_sim::host::Host;
use plimsoll_sim::scenario::Scenario;

use plain::Plain;
use scenario::{GROUP_MAX, mixed};

/// Approximate number of events in one measurement.
const EVENTS: u64 = 200_000;

/// Virtual time that `EVENTS` events take, and the exact number of events in
/// it.
fn length(scenario: &Scenario) -> (u64, u64) {
    const PROBE_NS: u64 = 20_000_000;
    let mut host = Host::new(scenario).expect("the scenario can be run");
    host.run_until(PROBE_NS);
    let until_ns = PROBE_NS * EVENTS / host.events().max(1);
    let mut host = Host::new(scenario).expect("the scenario can be run");
    host.run_until(until_ns);
    (until_ns, host.events())
}

fn host(criterion: &mut Criterion, group: &str, name: BenchmarkId, scenario: &Scenario) {
    let (until_ns, events) = length(scenario);
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(events));
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || Host::new(scenario).expect("the scenario can be run"),
            |mut host| {
                host.run_until(black_box(until_ns));
                host
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn by_cpus(criterion: &mut Criterion) {
    for cpus in [2, 8, 32, 128, 1_024] {
        let scenario = mixed(cpus, 40 * cpus, GROUP_MAX);
        host(
            criterion,
            "host, 40 tasks a CPU",
            BenchmarkId::new("cpus", cpus),
            &scenario,
        );
    }
}

fn by_tasks(criterion: &mut Criterion) {
    for tasks in [10, 100, 1_000, 10_000, 100_000] {
        let scenario = mixed(8, tasks, GROUP_MAX);
        host(
            criterion,
            "host, 8 CPUs",
            BenchmarkId::new("tasks", tasks),
            &scenario,
        );
    }
}

/// Compared per virtual time, not per event, because the two count events
/// differently.
fn compared_with_plain(criterion: &mut Criterion) {
    for cpus in [2, 16, 128] {
        let scenario = mixed(cpus, 40 * cpus, GROUP_MAX);
        let (until_ns, _) = length(&scenario);
        let until_ns = until_ns / 20;
        let mut group = criterion.benchmark_group(format!("{cpus} CPUs, µs of virtual time"));
        group.throughput(Throughput::Elements(until_ns / 1_000));
        group.bench_function("host", |bencher| {
            bencher.iter(|| {
                let mut host = Host::new(&scenario).expect("the scenario can be run");
                host.run_until(until_ns);
                host.events()
            });
        });
        group.bench_function("plain", |bencher| {
            bencher.iter(|| {
                let mut plain = Plain::new(&scenario);
                plain.run_until(until_ns);
                plain.busy_ns()
            });
        });
        group.finish();
    }
}

criterion_group!(benches, by_cpus, by_tasks, compared_with_plain);
criterion_main!(benches);
