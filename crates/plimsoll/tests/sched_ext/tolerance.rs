//! Tolerance: time of batch work behind normal work that never sleeps.

use std::thread;
use std::time::Duration;

use crate::common::switches::{Trace, now_us};
use crate::common::{Running, known_defect, nr_cpus};
use crate::rig::{Rig, all_cpus, assert_within, burners, has_ext_server, is_within, rig};

const MEASURED_S: u64 = 10;
/// SPEC 3: 1 ms in 100 ms.
const RUNTIME_MS: f64 = 1.0;
const PERIOD_MS: u64 = 100;
/// Periods in a second.
const PERIODS: f64 = 10.0;

/// Time of a batch group, in milliseconds.
struct Got {
    /// In a second, on average.
    mean: f64,
    /// In any period that begins with a slice of its own.
    most: f64,
}

fn got(rig: &mut Rig, knobs: &str) -> Got {
    let fair = rig.host.group("fair");
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", knobs, all_cpus(), cpus);
    let rivals: Vec<_> = (0..cpus)
        .map(|cpu| rig.fair_burners(&fair, 1 << cpu, 1))
        .collect();
    let tids = burners(&rig.host.batch("work"));
    let trace = Trace::start();
    // The supervisor sets the servers within 50 ms; running slices end.
    thread::sleep(Duration::from_secs(2));
    let from_us = now_us();
    thread::sleep(Duration::from_secs(MEASURED_S));
    let to_us = now_us();
    let seen = trace.stop();
    rivals.into_iter().for_each(Running::kill_hard);
    rig.assert_never_ejected("work");
    println!("{}", rig.host.show("work")["statistics"]["scheduler"]);
    work.stop();
    rig.assert_nothing_left();
    let ran_us = seen.ran_us(&tids, from_us, to_us) as f64;
    let most_us = seen.most_us(&tids, PERIOD_MS * 1000, from_us, to_us) as f64;
    Got {
        mean: 1000.0 * ran_us / (to_us - from_us) as f64,
        most: most_us / 1000.0,
    }
}

/// SPEC 3 allows the grain on each CPU in each period, which is a slice of 100 us.
fn most_ms() -> f64 {
    RUNTIME_MS + 0.1 * nr_cpus() as f64
}

#[test]
fn batch_work_gets_only_a_tolerance_of_1_ms_in_100_ms() {
    let mut rig = rig();
    let Got { mean, most } = got(&mut rig, "--tolerance 1ms/100ms");
    let limit = most_ms() * PERIODS;
    assert_within("mean, ms in a second", mean, 0.0..=limit);
    // Short slices compensate for long ones, but not exactly.
    let is_given = mean >= 0.9 * RUNTIME_MS * PERIODS;
    let holds = is_within("most, ms in any 100 ms", most, 0.0..=most_ms());
    if has_ext_server() {
        assert!(is_given);
        known_defect("issue 17: turns of the ext servers last too long", holds);
    } else {
        known_defect(
            "issue 17: without an ext server batch work is starved below its tolerance",
            is_given,
        );
    }
}

/// Only enough for the watchdog: `got` asserts that it never expires.
#[test]
fn a_tolerance_of_0_gives_next_to_nothing_and_the_scheduler_is_never_ejected() {
    let mut rig = rig();
    let Got { mean, most } = got(&mut rig, "--tolerance 0");
    println!("most, ms in any 100 ms: {most:.3}");
    // Without a server the fair-class fallback applies, which gives an idle cgroup 3 of 1,027
    // parts.
    let limit = if has_ext_server() { 1.0 } else { 5.0 };
    assert_within("mean, ms in a second", mean, 0.0..=limit);
    // Without a server the fallback comes after 10 s, which a test of handover asserts.
    assert!(mean > 0.0 || !has_ext_server(), "nothing in {MEASURED_S} s");
}
