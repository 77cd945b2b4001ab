//! Strictness of the batch class: batch work runs only in unused time and on its tolerance.

use crate::clock::{MEASURED, ended, rate_of};
use crate::common::nr_cpus;
use crate::figure::{ANY, SPEC_2};
use crate::scheduler_rig::{Rig, all_cpus, rig};

/// Bound of batch work behind fair work, in percent of one CPU: the default tolerance, 1 ms in 100
/// ms, and on each CPU the grain, a slice of 100 us.
fn tolerance_most() -> f64 {
    1.0 + 0.1 * nr_cpus() as f64
}

#[test]
fn batch_work_beside_fair_spinners() {
    let cpus = nr_cpus();
    for (what, mask, batch, fair, least) in [
        // Each CPU gives its part of the tolerance.
        ("batch spinner beside a fair one on one CPU", 1, 1, 1, 0.9),
        // One more than CPUs: each CPU always has one, and the CPU with two changes.
        (
            "batch work beside fair work on all CPUs",
            all_cpus(),
            cpus,
            cpus + 1,
            0.0,
        ),
    ] {
        let rig = rig();
        let group = rig.group("fair");
        let work = rig.batch_burners("work", "", mask, batch);
        let rivals = rig.fair_burners(&group, mask, fair);
        let rate = rate_of(&rig.host.batch("work"), MEASURED);
        SPEC_2.figure(what, rate, "% of a CPU", least..=tolerance_most());
        rivals.kill_hard();
        rig.assert_never_ejected();
        work.stop();
    }
}

#[test]
fn longest_gap_of_a_fair_spinner() {
    let rig = rig();
    let fair = rig.group("fair");
    let spin = |rig: &Rig| {
        let load = rig.fair_load(&fair, 1, "burn --threads 1 --duration 2s --json");
        ended(load).json()["longest_gap_us"].as_f64().unwrap() / 1000.0
    };
    let alone = spin(&rig);
    let work = rig.batch_burners("work", "", 1, 1);
    let beside = spin(&rig);
    let what = "longest gap of a fair spinner beside batch work, more than alone";
    SPEC_2.figure(what, beside - alone, "ms", -ANY..=1.0);
    work.stop();
}
