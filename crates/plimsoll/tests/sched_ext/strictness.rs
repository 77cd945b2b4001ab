//! Batch work runs where nobody else wants to, and on its tolerance.

use std::time::Duration;

use crate::common::{Finished, native_or_vm, nr_cpus};
use crate::rig::{all_cpus, expect_within, has_ext_server, rates_of, rig};

const MEASURED: Duration = Duration::from_secs(5);
/// The default tolerance, 1 ms in 100 ms of all CPUs together, in percent of one.
const TOLERANCE: f64 = 1.0;

#[test]
fn beside_a_fair_spinner_a_batch_spinner_gets_its_tolerance_and_no_more() {
    let Some(mut rig) = rig() else { return };
    let fair = rig.host.group("fair");
    let work = rig.batch_burners("work", "", 1, 1);
    let batch = rig.host.batch("work");
    let rival = rig.fair_burners(&fair, 1, 1);
    // Each CPU's ext server has its part of the tolerance; what it cannot end in time must not
    // come to more than all of it, and the grain of what is let pass. In the emulated machine a
    // turn of 100 us ends half a millisecond late, and the first seconds are spent on finding
    // that out. Kernels without a server give nothing.
    let (least, most) = if has_ext_server() {
        (0.05, native_or_vm(1.25, 1.5) * TOLERANCE)
    } else {
        (0.0, 0.02)
    };
    let (middle, half) = ((least + most) / 2.0, (most - least) / 2.0);
    expect_within(
        "batch beside fair, percent of its CPU",
        middle,
        half,
        || {
            let shares = rates_of(&[&batch, &fair], MEASURED);
            println!("batch {:.3} %, fair {:.2} %", shares[0], shares[1]);
            shares[0]
        },
    );
    rival.kill_hard();
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}

/// The longest gap that a spinner sees in 3 s on CPU 0, in milliseconds.
fn gap_ms(finished: &Finished) -> f64 {
    finished.json()["longest_gap_us"].as_f64().unwrap() / 1000.0
}

#[test]
fn a_fair_spinner_sees_no_gap_5_ms_longer_than_alone() {
    let Some(mut rig) = rig() else { return };
    let fair = rig.host.group("fair");
    let alone = |rig: &crate::rig::Rig| {
        let load = rig.fair_load(&fair, 1, "burn --threads 1 --duration 3s --json");
        gap_ms(&load.finish(Duration::from_secs(20)).good())
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        let without = alone(&rig);
        let work = rig.batch_burners("work", "", 1, 1);
        let with = alone(&rig);
        rig.assert_never_ejected("work");
        work.stop();
        seen.push((without, with));
        // The emulated machine's own gaps are of that size.
        if with <= without + 5.0 {
            break;
        }
    }
    println!("longest gaps alone and beside batch, ms: {seen:.2?}");
    assert!(seen.iter().any(|(without, with)| *with <= without + 5.0));
    rig.assert_nothing_left();
}

#[test]
fn where_fair_work_fills_every_cpu_batch_gets_its_tolerance_and_no_more() {
    let Some(mut rig) = rig() else { return };
    let fair = rig.host.group("fair");
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "", all_cpus(), cpus);
    let batch = rig.host.batch("work");
    // One more than CPUs: while the fair class balances them, each CPU has always one, but
    // which has two changes.
    let rivals = rig.fair_burners(&fair, all_cpus(), cpus + 1);
    let measure = || {
        let shares = rates_of(&[&batch, &fair], MEASURED);
        println!("batch {:.3} %, fair {:.2} %", shares[0], shares[1]);
        shares
    };
    if has_ext_server() {
        let half = native_or_vm(0.63, 0.75) * TOLERANCE;
        expect_within("batch, percent of one CPU", half, half, || measure()[0]);
    } else {
        // The load balancer of these kernels counts batch tasks as if they were fair ones. So it
        // may leave all of the fair ones at one CPU, for which there are as many at the other.
        let fair_least = 100.0 * (cpus - 1) as f64 - 3.0;
        let shares = measure();
        assert!(shares[1] >= fair_least, "{shares:.2?}");
    }
    rivals.kill_hard();
    rig.assert_never_ejected("work");
    work.stop();
    rig.assert_nothing_left();
}
