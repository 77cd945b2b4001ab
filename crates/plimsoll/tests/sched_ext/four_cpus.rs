//! Tests that need four CPUs: `crates/plimsoll/tests/in-vm --cpus 4 --filter four_cpus::
//! sched_ext`.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::switches::{Trace, now_us};
use crate::common::{ms, nr_cpus};
use crate::rig::{MEASURED, Rig, all_cpus, assert_within, burners, rates_of, rates_of_tasks, rig};

#[test]
fn batch_work_gets_the_rest_within_2_points_with_headroom_1cpus() {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 3, "this takes three CPUs");
    let main = rig.host.group("main");
    let side = rig.batch_burners("side", "--headroom 1cpus", all_cpus(), cpus);
    let group = rig.host.batch("side");
    for busy in 0..cpus {
        let load = (busy > 0).then(|| rig.fair_burners(&main, (1 << busy) - 1, busy));
        thread::sleep(ms(500));
        let used = rates_of(&[&group], MEASURED)[0] / cpus as f64;
        let free = 100.0 * (cpus - 1 - busy) as f64 / cpus as f64;
        // Its tolerance is 1 % of one CPU.
        let lawful = free.max(1.0 / cpus as f64);
        let what = format!("{busy} CPUs taken: batch work, percent of the machine");
        let least = (lawful - 2.0).max(0.9 / cpus as f64);
        assert_within(&what, used, least..=lawful + 2.0);
        if let Some(load) = load {
            load.kill_hard();
        }
    }
    let debug = rig.debug();
    println!("{}", debug["machine"]);
    side.stop();
    rig.assert_nothing_left();
}

/// Time to find an idle CPU, in microseconds; less than the millisecond of SPEC 3.
const WINDOW_US: u64 = 500;

/// Service load on none and on all CPUs but one, alternating every 50 ms.
#[test]
fn intermittent_service_load_finds_an_idle_cpu() {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 3, "this takes three CPUs");
    let main = rig.host.group("main");
    let load = rig.fair_burners(&main, (1 << (cpus - 1)) - 1, cpus - 1);
    // Otherwise batch work could not start.
    load.send(Signal::SIGSTOP);
    let side = rig.batch_burners("side", "--headroom 1cpus --tolerance 0", all_cpus(), cpus);
    let tids = burners(&rig.host.batch("side"));
    let trace = Trace::start();
    thread::sleep(ms(100));
    let (begun_us, mut jumps_us) = (now_us(), Vec::new());
    for _ in 0..20 {
        load.send(Signal::SIGSTOP);
        thread::sleep(ms(50));
        jumps_us.push(now_us());
        load.send(Signal::SIGCONT);
        thread::sleep(ms(50));
    }
    let end_us = now_us();
    let seen = trace.stop();
    println!("{}", rig.debug()["machine"]);
    let all_us = seen.ran_us(&tids, begun_us, end_us);
    assert!(
        all_us > 500_000,
        "batch work ran {all_us} us while main was off"
    );
    // Batch work yields within a millisecond. (The service's threads may share a CPU for a while,
    // which leaves a CPU for it.)
    let late_us = |from_us: u64| {
        let ran_us = |tids: &[i32]| seen.ran_us(tids, from_us, from_us + WINDOW_US);
        ran_us(&tids).min(WINDOW_US.saturating_sub(ran_us(&[0])))
    };
    let windows = |jump_us: &u64| (jump_us + 1_000..jump_us + 50_000).step_by(WINDOW_US as usize);
    let main_on: Vec<u64> = jumps_us.iter().flat_map(windows).collect();
    let late = main_on.iter().map(|from_us| late_us(*from_us)).sum::<u64>() as f64;
    let what = "batch work while less than a CPU is idle, percent of one";
    let share = 100.0 * late / (main_on.len() as u64 * WINDOW_US) as f64;
    assert_within(what, share, 0.0..=1.0);
    load.kill_hard();
    side.stop();
    rig.assert_nothing_left();
}

/// The scheduler's own measurement of times in which too few CPUs were idle although batch work
/// ran.
#[derive(Debug, Clone)]
struct Shortages {
    usec: u64,
    /// By length: under 2, 4, 8 … µs.
    counts: Vec<u64>,
    takeovers: u64,
}

impl Shortages {
    fn now(rig: &Rig) -> Self {
        let machine = &rig.debug()["machine"];
        let counts = machine["nr_shortages"].as_array().unwrap();
        Self {
            usec: machine["shortage_usec"].as_u64().unwrap(),
            counts: counts.iter().map(|n| n.as_u64().unwrap()).collect(),
            takeovers: machine["nr_takeovers"].as_u64().unwrap(),
        }
    }

    fn since(&self, before: &Self) -> Self {
        let pairs = self.counts.iter().zip(&before.counts);
        Self {
            usec: self.usec - before.usec,
            counts: pairs.map(|(now, then)| now - then).collect(),
            takeovers: self.takeovers - before.takeovers,
        }
    }

    /// Quantile of their lengths, in µs.
    fn shorter_than_us(&self, share: f64) -> u64 {
        let wanted = share * self.counts.iter().sum::<u64>() as f64;
        let mut seen = 0;
        let length = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= wanted
        });
        2 << length.unwrap_or(self.counts.len() - 1)
    }
}

/// A normal task takes the idle CPU a hundred times a second, for 3 ms.
#[test]
fn batch_work_yields_when_a_normal_task_takes_the_idle_cpu() {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 3, "this takes three CPUs");
    let main = rig.host.group("main");
    let knobs = "--headroom 1cpus --tolerance 0";
    let side = rig.batch_burners("side", knobs, all_cpus(), cpus);
    let load = "service --rate 100 --service const:3ms --workers 1 --duration 600s";
    let service = rig.fair_load(&main, all_cpus(), load);
    thread::sleep(ms(1500));
    let before = Shortages::now(&rig);
    thread::sleep(Duration::from_secs(4));
    let seen = Shortages::now(&rig).since(&before);
    println!(
        "{} takeovers; under 2, 4, 8 … us: {:?}",
        seen.takeovers, seen.counts
    );
    assert!(seen.takeovers > 100, "{seen:?}");
    assert!(seen.counts.iter().sum::<u64>() > 100, "{seen:?}");
    println!(
        "{:.0} us for each takeover",
        seen.usec as f64 / seen.takeovers as f64
    );
    let p99 = seen.shorter_than_us(0.99) as f64;
    assert_within(
        "99 % of the shortages are shorter than, us",
        p99,
        0.0..=1024.0,
    );
    service.kill_hard();
    side.stop();
    rig.assert_nothing_left();
}

#[test]
fn runtimes_of_64_tasks_are_within_5_percent() {
    let rig = rig();
    let tasks = 64;
    let work = rig.batch_burners("work", "", all_cpus(), tasks);
    let tids = burners(&rig.host.batch("work"));
    thread::sleep(ms(1000));
    let rates = rates_of_tasks(&tids, Duration::from_secs(10));
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    println!("{tasks} tasks: {least:.3} to {most:.3} % of a CPU, mean {mean:.3}");
    let apart = 100.0 * (most - least) / mean;
    assert_within(
        "most less least of all tasks, percent of the mean",
        apart,
        0.0..=5.0,
    );
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn batch_work_gets_all_unused_cpus() {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let fair = rig.host.group("fair");
    // Normal load on half of the CPUs, as many batch tasks as CPUs: they go to the others.
    let half = cpus / 2;
    let work = rig.batch_burners("work", "", all_cpus(), cpus);
    let rivals = rig.fair_burners(&fair, (1 << half) - 1, half);
    let batch = rig.host.batch("work");
    let shares = rates_of(&[&batch, &fair], MEASURED);
    println!("batch {:.2} %, fair {:.2} %", shares[0], shares[1]);
    let used = shares[0] / (cpus - half) as f64;
    // More than 100 by the tolerance that it has beside fair work, which strictness.rs bounds.
    assert_within("batch, percent of the free CPUs", used, 98.0..=101.0);
    rivals.kill_hard();
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn a_quota_is_kept_within_1_percent_on_four_cpus() {
    crate::bandwidth::expect_quota_on_all_cpus();
}
