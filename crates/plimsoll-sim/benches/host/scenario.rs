//! Host of any size: services use half of it, batch work the rest.

use plimsoll_engine::knobs::{Class, Knobs};
use plimsoll_load::{Arrivals, BurnConfig, Demand, ServiceConfig};
use plimsoll_sim::scenario::{Group, Machine, Scenario, Workload};

/// Maximum number of tasks in one group.
pub const GROUP_MAX: u32 = 100;
const DEMAND: std::time::Duration = std::time::Duration::from_micros(500);

/// `tasks` tasks, half of them workers of services and half batch burners, in
/// groups of at most `group_max`, on `cpus` CPUs with up to 16 per cache.
pub fn mixed(cpus: u32, tasks: u32, group_max: u32) -> Scenario {
    let half = (tasks / 2).max(1);
    let groups = half.div_ceil(group_max);
    let each = (half / groups) as usize;
    let rate = 0.5 * f64::from(cpus) / DEMAND.as_secs_f64() / f64::from(groups);
    let service = |index| Group {
        name: format!("service-{index}"),
        knobs: Knobs::default(),
        workloads: vec![Workload::Service(ServiceConfig {
            arrivals: Arrivals::Poisson { rate },
            demand: Demand::Exponential { mean: DEMAND },
            workers: each,
            seed: u64::from(index),
            ..ServiceConfig::default()
        })],
    };
    let batch = |index| Group {
        name: format!("batch-{index}"),
        knobs: Knobs {
            class: Some(Class::Batch),
            ..Knobs::default()
        },
        workloads: vec![Workload::Burn(BurnConfig {
            burners: each,
            ..BurnConfig::default()
        })],
    };
    Scenario {
        about: "Services and batch work".into(),
        machine: Machine {
            cpus_per_llc: cpus.min(16),
            switch_cost_ns: 0,
            ..Machine::of_cpus(cpus)
        },
        groups: (0..groups)
            .map(service)
            .chain((0..groups).map(batch))
            .collect(),
        duration_ns: 3_600_000_000_000,
        warmup_ns: 0,
        seed: 1,
    }
}
