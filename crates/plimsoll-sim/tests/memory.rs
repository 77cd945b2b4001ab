//! What a task of the host simulator takes in memory. Alone in its process:
//! what others allocate would count.

use plimsoll_engine::knobs::Knobs;
use plimsoll_load::{Arrivals, BurnConfig, Demand, ServiceConfig};
use plimsoll_sim::host::Host;
use plimsoll_sim::scenario::{Group, Machine, Scenario, Workload};

/// Pages that the process has in memory, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    let pages = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    pages.map_or(0, |pages: u64| pages * 4096)
}

#[test]
fn a_task_takes_less_than_a_kibibyte() {
    const GROUPS: u32 = 100;
    const TASKS: u32 = 100_000;
    let each = (TASKS / GROUPS) as usize;
    let group = |index| Group {
        name: format!("g{index}"),
        knobs: serde_json::from_str::<Knobs>(match index % 3 {
            0 => r#"{"class": "batch"}"#,
            1 => r#"{"quota": "2cpus", "burst": "100ms"}"#,
            _ => "{}",
        })
        .unwrap(),
        workloads: vec![if index % 2 == 0 {
            Workload::Burn(BurnConfig {
                burners: each,
                ..BurnConfig::default()
            })
        } else {
            Workload::Service(ServiceConfig {
                arrivals: Arrivals::Poisson { rate: 500.0 },
                demand: "exp:500us".parse::<Demand>().unwrap(),
                workers: each,
                ..ServiceConfig::default()
            })
        }],
    };
    let scenario = Scenario {
        about: String::new(),
        machine: Machine::of_cpus(128),
        groups: (0..GROUPS).map(group).collect(),
        duration_ns: 1_000_000_000,
        warmup_ns: 0,
        seed: 1,
    };
    let before = resident_bytes();
    let mut host = Host::new(&scenario).unwrap();
    host.run_until(u64::MAX);
    let each = (resident_bytes() - before) / u64::from(TASKS);
    println!("{each} bytes a task, {} events", host.events());
    assert!(each < 1_024, "{each} bytes a task");
    assert!(each > 64, "measured nothing: {each}");
}
