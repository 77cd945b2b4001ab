//! Strictness of the batch class: batch work runs only in unused time and on its tolerance.

use std::time::Duration;

use crate::common::{Finished, known_defect, nr_cpus};
use crate::rig::{
    MEASURED, Rig, all_cpus, assert_within, has_ext_server, is_within, rates_of, rig,
};

/// Bound of batch work behind fair work, in percent of one CPU: the default tolerance, 1 ms in 100
/// ms, and on each CPU the grain, a slice of 100 us.
fn tolerance_most() -> f64 {
    1.0 + 0.1 * nr_cpus() as f64
}

#[test]
fn batch_spinner_beside_a_fair_spinner_gets_only_its_tolerance() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let work = rig.batch_burners("work", "", 1, 1);
    let batch = rig.host.batch("work");
    let rival = rig.fair_burners(&fair, 1, 1);
    let shares = rates_of(&[&batch, &fair], MEASURED);
    println!("batch {:.3} %, fair {:.2} %", shares[0], shares[1]);
    let what = "batch beside fair, percent of its CPU";
    assert_within(what, shares[0], 0.0..=tolerance_most());
    // Each CPU's ext server has its part of the tolerance.
    let holds = shares[0] >= 0.9;
    if has_ext_server() {
        assert!(holds);
    } else {
        known_defect(
            "issue 17: without an ext server batch work is starved below its tolerance",
            holds,
        );
    }
    rival.kill_hard();
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}

/// The longest gap that a spinner sees on CPU 0, in milliseconds.
fn gap_ms(finished: &Finished) -> f64 {
    finished.json()["longest_gap_us"].as_f64().unwrap() / 1000.0
}

#[test]
fn a_fair_spinner_sees_no_gap_1_ms_longer_than_alone() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let spin = |rig: &Rig| {
        let load = rig.fair_load(&fair, 1, "burn --threads 1 --duration 2s --json");
        gap_ms(&load.finish(Duration::from_secs(20)).good())
    };
    let alone = spin(&rig);
    let work = rig.batch_burners("work", "", 1, 1);
    let beside = spin(&rig);
    println!("longest gap alone {alone:.3} ms");
    assert_within("longest gap beside batch, ms", beside, 0.0..=alone + 1.0);
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn batch_work_gets_only_its_tolerance_when_fair_work_fills_every_cpu() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "", all_cpus(), cpus);
    let batch = rig.host.batch("work");
    // One more than CPUs: each CPU always has one, and the CPU with two changes.
    let rivals = rig.fair_burners(&fair, all_cpus(), cpus + 1);
    let shares = rates_of(&[&batch, &fair], MEASURED);
    println!("batch {:.3} %, fair {:.2} %", shares[0], shares[1]);
    if has_ext_server() {
        known_defect(
            "issue 17: 1.7 % of a CPU instead of 1.2; turns of the ext servers last too long",
            is_within(
                "batch, percent of one CPU",
                shares[0],
                0.0..=tolerance_most(),
            ),
        );
    } else {
        // The load balancer of these kernels counts batch tasks like fair ones, so it may leave
        // all fair ones on one CPU.
        let all = 100.0 * cpus as f64;
        assert_within(
            "fair, percent of one CPU",
            shares[1],
            all - 103.0..=all + 1.0,
        );
    }
    rivals.kill_hard();
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}
