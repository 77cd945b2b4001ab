//! Random machines, knobs and workloads.

use std::time::Duration;

use plimsoll_load::{StormConfig, WakeConfig};
use plimsoll_sim::scenario::{Group, Machine, Scenario, Workload};
use proptest::prelude::*;

use crate::fixture::{MSEC, burn, group, need, service, steady};

/// A machine with a random but valid division into cores and caches.
pub fn machines() -> impl Strategy<Value = Machine> {
    let shapes = prop::sample::select(vec![
        (1, 1, 1),
        (2, 1, 2),
        (2, 2, 2),
        (3, 1, 1),
        (4, 1, 2),
        (4, 2, 4),
        (6, 1, 6),
        (8, 2, 4),
        (8, 1, 1),
        (12, 2, 2),
    ]);
    let contention = prop::sample::select(vec![0, 300_000]);
    let switch = prop::sample::select(vec![0, 2_000]);
    (shapes, contention, switch).prop_map(
        |((cpus, threads_per_core, cpus_per_llc), contention_ppm, switch_cost_ns)| Machine {
            cpus,
            threads_per_core,
            cpus_per_llc,
            contention_ppm,
            switch_cost_ns,
            ..Machine::default()
        },
    )
}

/// One knob, or an empty string.
fn maybe(knob: impl Strategy<Value = String> + 'static) -> BoxedStrategy<String> {
    prop_oneof![2 => Just(String::new()), 1 => knob].boxed()
}

fn quota() -> impl Strategy<Value = String> {
    (10..=120u64, 1..=200u64, 0..=100u64).prop_map(|(period_ms, percent, burst)| {
        let quota_ms = (period_ms * percent / 100).max(1);
        let burst_ms = quota_ms * burst / 100;
        format!(r#""quota": "{quota_ms}ms/{period_ms}ms", "burst": "{burst_ms}ms""#)
    })
}

fn cap() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec!["cap", "soft-cap"]);
    (kind, 1..=300u32, any::<bool>()).prop_map(|(kind, percent, per_task)| {
        let percent = if per_task { percent % 100 + 1 } else { percent };
        format!(r#""{kind}": "{percent}%", "per-task": {per_task}"#)
    })
}

/// Consistent knobs of a group, in the batch class or not.
fn knobs(batch: bool) -> BoxedStrategy<String> {
    let class = if batch { r#""class": "batch""# } else { "" };
    let own = if batch {
        maybe((5..=100u32).prop_map(|percent| format!(r#""cpu-limit": "{percent}%""#)))
    } else {
        maybe(prop_oneof![
            (1..=60u32).prop_map(|percent| format!(r#""headroom": "{percent}%""#)),
            Just(r#""headroom": "1cpus""#.to_owned()),
        ])
    };
    let weight = maybe((1..=400u32).prop_map(|weight| format!(r#""weight": "{weight}""#)));
    let nice = maybe((-5..=5i32).prop_map(|nice| format!(r#""nice": "{nice}""#)));
    let parts = (maybe(quota()), maybe(cap()), own, weight, nice);
    parts
        .prop_map(move |(quota, cap, own, weight, nice)| {
            let parts = [class.to_owned(), quota, cap, own, weight, nice];
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(", ")
        })
        .boxed()
}

fn workloads(duration_ns: u64) -> impl Strategy<Value = Workload> {
    prop_oneof![
        3 => (1..=20usize).prop_map(burn),
        3 => (50..=4_000u32, 1..=12usize, 0..100u64).prop_map(|(rate, workers, seed)| {
            service(f64::from(rate), "exp:700us", workers, seed)
        }),
        1 => (1..=300u64, 1..=4usize).prop_map(|(ms, tasks)| need(ms * MSEC, tasks)),
        1 => (1..=400u32, 1..=6usize).prop_map(|(processes, parallel)| {
            Workload::Storm(StormConfig {
                processes,
                cpu_each: Duration::from_micros(900),
                parallel,
            })
        }),
        1 => (1..=90u32).prop_map(move |percent| steady(f64::from(percent), duration_ns)),
        1 => (1..=20u64).prop_map(move |every_ms| Workload::Wake(WakeConfig {
            every: Duration::from_millis(every_ms),
            duration: Duration::from_nanos(duration_ns),
        })),
    ]
}

fn groups(duration_ns: u64) -> impl Strategy<Value = Group> {
    let works = prop::collection::vec(workloads(duration_ns), 1..=2);
    let knobs = any::<bool>().prop_flat_map(knobs);
    (knobs, works).prop_map(|(knobs, works)| group("g", &knobs, works))
}

/// Any valid scenario of the given duration.
pub fn scenarios(duration_ns: u64) -> impl Strategy<Value = Scenario> {
    let groups = prop::collection::vec(groups(duration_ns), 1..=5);
    (machines(), groups).prop_map(move |(machine, groups)| of(machine, groups, duration_ns))
}

/// A scenario, with unique names given to the groups.
pub fn of(machine: Machine, groups: Vec<Group>, duration_ns: u64) -> Scenario {
    let named = |(group, index): (Group, usize)| Group {
        name: format!("g{index}"),
        ..group
    };
    Scenario {
        about: String::new(),
        machine,
        groups: groups.into_iter().zip(0..).map(named).collect(),
        duration_ns,
        warmup_ns: 0,
        seed: 1,
    }
}

/// Groups of burners, in the batch class or not, some with a per-CPU limit.
pub fn burners() -> impl Strategy<Value = Vec<(Group, u32)>> {
    let knobs = prop::sample::select(vec![
        "",
        r#""weight": "300""#,
        r#""class": "batch""#,
        r#""class": "batch", "cpu-limit": "60%""#,
        r#""class": "batch", "cpu-limit": "25%""#,
    ]);
    let group = (knobs, 1..=12u32)
        .prop_map(|(knobs, count)| (group("burners", knobs, vec![burn(count as usize)]), count));
    prop::collection::vec(group, 1..=3)
}

/// Normal work that wakes and sleeps, and leaves CPUs free for a time.
pub fn intermittent_normal_work(duration_ns: u64) -> impl Strategy<Value = Vec<Group>> {
    let works = prop::collection::vec(workloads(duration_ns), 0..=2);
    works.prop_map(|works| {
        let works = works
            .into_iter()
            .filter(|work| !matches!(work, Workload::Burn(_)));
        works.map(|work| group("others", "", vec![work])).collect()
    })
}
