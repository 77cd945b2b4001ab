//! Tolerance: time of batch work behind normal work that never sleeps.

use crate::clock::sleep_ms;
use crate::common::{Running, nr_cpus};
use crate::figure::SPEC_3;
use crate::scheduler_rig::{all_cpus, burners, rig};
use crate::switches::{Trace, now_us};

/// SPEC 3: 1 ms in 100 ms, and the grain on each CPU in each period, a slice of 100 us.
fn most_ms() -> f64 {
    1.0 + 0.1 * nr_cpus() as f64
}

/// Prints the time of a batch group behind a spinner on each CPU: in a second on average, and in
/// any 100 ms.
fn measure(tolerance: &str, mean_most: f64, mean_least: f64) {
    let rig = rig();
    let fair = rig.group("fair");
    let cpus = nr_cpus();
    let knobs = format!("--tolerance {tolerance}");
    let work = rig.batch_burners("work", &knobs, all_cpus(), cpus);
    let rivals = (0..cpus).map(|cpu| rig.fair_burners(&fair, 1 << cpu, 1));
    let rivals: Vec<Running> = rivals.collect();
    let tids = burners(&rig.host.batch("work"));
    let trace = Trace::start();
    // Running slices end.
    sleep_ms(2_000);
    let from_us = now_us();
    sleep_ms(10_000);
    let to_us = now_us();
    let seen = trace.stop();
    rivals.into_iter().for_each(Running::kill_hard);
    rig.assert_never_ejected();
    work.stop();
    let ran_us = seen.ran_us(&tids, from_us, to_us) as f64;
    let mean = 1000.0 * ran_us / (to_us - from_us) as f64;
    let what = format!("batch work behind spinners, tolerance {tolerance}, mean in a second");
    SPEC_3.figure(&what, mean, "ms", mean_least..=mean_most);
    let most = seen.most_us(&tids, 100_000, from_us, to_us) as f64 / 1000.0;
    let what = format!("batch work behind spinners, tolerance {tolerance}, most in 100 ms");
    SPEC_3.figure(&what, most, "ms", 0.0..=most_ms());
}

#[test]
fn tolerance_of_1_ms_in_100_ms() {
    // Short slices compensate for long ones, but not exactly.
    measure("1ms/100ms", 10.0 * most_ms(), 9.0);
}

/// A tolerance of 0 leaves batch work only the time that the watchdog requires.
#[test]
fn tolerance_of_0() {
    measure("0", 1.0, 0.001);
}
