//! Headroom in the kernel's scheduler, by its own counters.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{ms, nr_cpus};
use crate::rig::{Rig, all_cpus, expect_within, rig, stamped};

/// Shares of the machine over a second, in percent, by the scheduler's counters.
#[derive(Debug, Clone, Copy)]
struct Shares {
    side: f64,
    nonside: f64,
}

impl Shares {
    fn shown(shown: &Value) -> Self {
        let headroom = &shown["statistics"]["headroom"];
        let percent = |name: &str| headroom[name].as_f64().unwrap() / 10_000.0;
        Self {
            side: percent("side_ppm"),
            nonside: percent("nonside_ppm"),
        }
    }

    fn idle(self) -> f64 {
        100.0 - self.side - self.nonside
    }
}

/// The mean of some seconds.
fn shares(rig: &Rig, seconds: usize) -> Shares {
    let mut all = Vec::new();
    while all.len() < seconds {
        thread::sleep(ms(1_100));
        all.push(Shares::shown(&rig.host.show("side")));
    }
    let mean = |of: fn(&Shares) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    Shares {
        side: mean(|shares| shares.side),
        nonside: mean(|shares| shares.nonside),
    }
}

/// The source's table. What the emulated machine itself needs counts as main load; the law says
/// what is left idle then.
#[test]
fn idle_time_is_the_headroom_in_each_row_of_the_table() {
    let Some(mut rig) = rig() else { return };
    let main = rig.host.group("main");
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), nr_cpus());
    let tolerance = 1.0 / nr_cpus() as f64;
    for percent in [0, 20, 30, 40, 50, 60, 70, 80] {
        let load = (percent > 0).then(|| {
            let load = format!("steady --percent {percent} --duration 600s");
            rig.fair_load(&main, all_cpus(), &load)
        });
        thread::sleep(ms(1_200));
        let what = format!("main {percent} %: idle less what the law says");
        expect_within(&what, 0.0, 2.0, || {
            let seen = shares(&rig, 2);
            let room = (70.0 - seen.nonside).max(tolerance);
            let lawful = 100.0 - seen.nonside - room;
            println!(
                "main {percent} %: side {:.1}, other {:.1}, idle {:.1}, by the law {lawful:.1}",
                seen.side,
                seen.nonside,
                seen.idle()
            );
            seen.idle() - lawful
        });
        if let Some(load) = load {
            load.kill_hard();
        }
    }
    rig.assert_never_ejected("side");
    side.stop();
    rig.assert_nothing_left();
}

/// Over the 100 ms that begin 5 ms after the main load has jumped, and 100 ms after it fell.
#[test]
fn side_work_makes_room_within_5_ms_and_comes_back_within_100_ms() {
    let Some(mut rig) = rig() else { return };
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let half = cpus / 2;
    let main = rig.host.group("main");
    let load = rig.fair_burners(&main, (1 << half) - 1, half);
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), cpus);
    let group = rig.host.batch("side");
    let usage = || group.usage_ns().unwrap();
    let over_100_ms = |wait: Duration| {
        thread::sleep(wait);
        let (start, before) = stamped(usage);
        thread::sleep(ms(100));
        let (end, after) = stamped(usage);
        100.0 * (after - before) as f64 / ((end - start).as_nanos() as f64 * cpus as f64)
    };
    let mut seen = Vec::new();
    for _ in 0..8 {
        load.send(Signal::SIGSTOP);
        let free = over_100_ms(ms(100));
        thread::sleep(ms(800));
        load.send(Signal::SIGCONT);
        let jumped = over_100_ms(ms(5));
        thread::sleep(ms(800));
        seen.push((free, jumped));
    }
    println!("side work when the main load has gone, and is there, percent: {seen:.1?}");
    // Of 70 % without main load, 20 % are left beside half of the CPUs. The machine's own work
    // takes a few.
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut all: Vec<f64> = seen.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (free, jumped) = (median(|pair| pair.0), median(|pair| pair.1));
    assert!((60.0..=72.0).contains(&free), "{free:.1} %");
    assert!((10.0..=22.0).contains(&jumped), "{jumped:.1} %");
    load.kill_hard();
    side.stop();
    rig.assert_nothing_left();
}
