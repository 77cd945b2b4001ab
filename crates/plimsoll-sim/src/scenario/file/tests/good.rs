//! Parsing of valid files.

use std::time::Duration;

use plimsoll_engine::knobs::{Class, Headroom};
use plimsoll_load::{Arrivals, Demand};

use super::*;

#[test]
fn every_key_is_read() {
    let file = good(ALL);
    assert_eq!((file.about.as_str(), file.runs.len()), ("everything", 1));
    let scenario = &file.runs[0].scenario;
    let machine = scenario.machine;
    assert_eq!(
        (machine.cpus, machine.threads_per_core, machine.cpus_per_llc),
        (8, 2, 4)
    );
    assert_eq!(
        (
            machine.contention_ppm,
            machine.sibling_speed_ppm,
            machine.switch_cost_ns
        ),
        (300_000, 555_000, 3_000)
    );
    assert!(!machine.burst_enabled);
    assert_eq!(machine.bandwidth_slice_ns, 2_000_000);
    assert_eq!(
        (scenario.duration_ns, scenario.warmup_ns, scenario.seed),
        (10_000_000_000, 1_000_000_000, 7)
    );
    let [web, batch, tenants] = scenario.groups.as_slice() else {
        panic!("{scenario:?}")
    };
    assert_eq!(web.knobs.headroom, Some(Headroom::Share(300_000)));
    assert_eq!(batch.knobs.class, Some(Class::Batch));
    assert_eq!(batch.knobs.nice.map(|n| n.nice), Some(10));
    assert_eq!(
        tenants.knobs.burst.map(|burst| burst.burst_ns),
        Some(400_000_000)
    );
    let kinds: Vec<_> = scenario
        .groups
        .iter()
        .flat_map(|group| group.workloads.iter().map(Workload::name))
        .collect();
    let expected = [
        "service", "service", "burn", "storm", "need", "steady", "wake",
    ];
    assert_eq!(kinds, expected);
    check_workloads(web, batch, tenants);
}

fn check_workloads(web: &Group, batch: &Group, tenants: &Group) {
    let [Workload::Service(poisson), Workload::Service(bursts)] = web.workloads.as_slice() else {
        panic!("{web:?}")
    };
    assert_eq!(poisson.arrivals, Arrivals::Poisson { rate: 300.0 });
    let mean = Duration::from_millis(1);
    assert_eq!(poisson.demand, Demand::Exponential { mean });
    assert_eq!((poisson.seed, poisson.workers), (7, 8));
    assert_eq!(poisson.deadline, Duration::from_millis(20));
    assert_eq!(poisson.warmup, Duration::from_secs(1));
    assert_eq!(bursts.workers, 3);
    assert_eq!(bursts.seed, workload_seed(7, 1));
    let [Workload::Burn(burn), Workload::Storm(storm)] = batch.workloads.as_slice() else {
        panic!("{batch:?}")
    };
    assert_eq!((burn.burners, burn.processes), (8, true));
    assert_eq!(burn.duration, Duration::from_secs(11));
    assert_eq!(storm.cpu_each, Duration::from_millis(10));
    let [
        Workload::Need(need),
        Workload::Steady(steady),
        Workload::Wake(_),
    ] = tenants.workloads.as_slice()
    else {
        panic!("{tenants:?}")
    };
    assert_eq!((need.cpu, need.tasks), (Duration::from_millis(500), 2));
    assert_eq!((steady.percent, steady.steps.len()), (12.5, 2));
}

#[test]
fn defaults_are_those_of_the_command_line() {
    let file =
        good("duration = '1s'\n[[group]]\nname = 'a'\n[[group.workload]]\nkind = 'service'\n");
    let scenario = &file.runs[0].scenario;
    assert_eq!((scenario.seed, scenario.warmup_ns), (1, 500_000_000));
    assert_eq!(
        scenario.machine.cpus as usize,
        plimsoll_load::available_cpus()
    );
    let expected = plimsoll_load::ServiceConfig {
        duration: Duration::from_secs(1),
        ..plimsoll_load::ServiceConfig::default()
    };
    assert_eq!(scenario.groups[0].workloads, [Workload::Service(expected)]);
}

#[test]
fn overrides_replace_the_values_of_the_file() {
    let overrides = Overrides {
        seed: Some(99),
        duration: Some(Duration::from_secs(20)),
    };
    let file = ScenarioFile::parse("s.toml", ALL, Path::new(""), overrides).unwrap();
    let scenario = &file.runs[0].scenario;
    assert_eq!((scenario.seed, scenario.duration_ns), (99, 20_000_000_000));
    let Workload::Service(service) = &scenario.groups[0].workloads[0] else {
        panic!("{scenario:?}")
    };
    assert_eq!(service.seed, 99);
}

#[test]
fn draws_of_a_group_do_not_depend_on_other_groups() {
    let text = VARIANTS.replace("without = [\"batch\"]", "without = [\"web\"]");
    let file = good(&text);
    let seed = |group: &Group| match group.workloads.last() {
        Some(Workload::Service(config)) => config.seed,
        other => panic!("{other:?}"),
    };
    let (alone, both) = (&file.runs[0].scenario, &file.runs[1].scenario);
    assert_eq!(seed(&alone.groups[0]), seed(&both.groups[1]));
    assert_ne!(seed(&both.groups[0]), seed(&both.groups[1]));
}
