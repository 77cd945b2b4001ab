//! Headroom in the kernel's scheduler, by its own counters.

use std::thread;

use serde_json::Value;

use crate::common::reaction::{SCHED_EXT, is_prompt};
use crate::common::{ms, nr_cpus};
use crate::rig::{Rig, all_cpus, assert_within, rig};

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

    fn now(rig: &Rig) -> Self {
        Self::shown(&rig.host.show("side"))
    }

    fn idle(self) -> f64 {
        100.0 - self.side - self.nonside
    }
}

/// The table of SPEC 3, each row within 2 points of idle time.
#[test]
fn idle_time_is_the_headroom_in_each_row_of_the_table() {
    let mut rig = rig();
    let main = rig.host.group("main");
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), nr_cpus());
    let tolerance = 1.0 / nr_cpus() as f64;
    // The first seconds of the counters have the work of loading the scheduler.
    thread::sleep(ms(2_000));
    for percent in [0, 20, 30, 40, 50, 60, 70, 80] {
        let load = (percent > 0).then(|| {
            let load = format!("steady --percent {percent} --duration 600s");
            rig.fair_load(&main, all_cpus(), &load)
        });
        // The counters are those of the last second.
        thread::sleep(ms(2_200));
        let seen = Shares::now(&rig);
        println!("main {percent} %: {seen:.2?}");
        // The rest is normal work, including timers and kernel threads.
        let lawful = 100.0 - seen.nonside - (70.0 - seen.nonside).max(tolerance);
        let what = format!("main {percent} %: idle");
        assert_within(&what, seen.idle(), lawful - 2.0..=lawful + 2.0);
        if let Some(load) = load {
            load.kill_hard();
        }
    }
    rig.assert_never_ejected("side");
    side.stop();
    rig.assert_nothing_left();
}

#[test]
fn batch_work_yields_within_5_ms_and_resumes_within_100_ms() {
    let mut rig = rig();
    let cpus = nr_cpus();
    assert!(cpus >= 2, "this takes two CPUs");
    let half = cpus / 2;
    let main = rig.host.group("main");
    let load = rig.fair_burners(&main, (1 << half) - 1, half);
    let side = rig.batch_burners("side", "--headroom 30%", all_cpus(), cpus);
    assert_eq!(
        is_prompt(SCHED_EXT, &load, &main, &rig.host.batch("side")),
        [true; 2]
    );
    load.kill_hard();
    side.stop();
    rig.assert_nothing_left();
}
