//! Cost of batch work for a service that wakes up often.

use plimsoll_cgroupfs::CpuGroup;

use crate::clock::ended;
use crate::common::nr_cpus;
use crate::figure::SPEC_2;
use crate::scheduler_rig::{Rig, all_cpus, rig};

/// The p99 of a service that needs 70 % of the machine, in microseconds.
fn p99_of_a_busy_service(rig: &Rig, group: &CpuGroup) -> f64 {
    let rate = 0.7 * nr_cpus() as f64 * 1e6 / 300.0;
    let load = format!(
        "service --workers 2 --rate {rate:.0} --service const:300us --warmup 1s \
         --duration 10s --json"
    );
    let report = ended(rig.fair_load(group, all_cpus(), &load)).json();
    report["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn p99_of_a_busy_service_beside_batch_work() {
    let rig = rig();
    let main = rig.group("main");
    let alone = p99_of_a_busy_service(&rig, &main);
    let work = rig.batch_burners("work", "", all_cpus(), 2 * nr_cpus());
    // Its queue does not grow each time, and each guest is another time.
    let beside = p99_of_a_busy_service(&rig, &main);
    let what = "p99 of a service of 70 % of the machine beside batch work, of that alone";
    SPEC_2.figure(what, beside / alone, "times", 0.0..=1.05);
    work.stop();
}
