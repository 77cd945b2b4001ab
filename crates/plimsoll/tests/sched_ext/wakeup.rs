//! Cost of batch work for a service that wakes up often.

use std::time::Duration;

use plimsoll_cgroupfs::CpuGroup;

use crate::common::{known_defect, nr_cpus};
use crate::rig::{Rig, all_cpus, is_within, rig};

const RUNS: usize = 3;

/// The p99 of a service that needs 70 % of the machine, in microseconds.
fn p99_of_a_busy_service(rig: &Rig, group: &CpuGroup) -> f64 {
    let rate = 0.7 * nr_cpus() as f64 * 1e6 / 300.0;
    let load = format!(
        "service --workers 2 --rate {rate:.0} --service const:300us --warmup 1s \
         --duration 10s --json"
    );
    let ended = rig.fair_load(group, all_cpus(), &load);
    let report = ended.finish(Duration::from_secs(90)).good().json();
    report["latency"]["p99_us"].as_f64().unwrap()
}

#[test]
fn p99_of_a_service_of_70_percent_of_the_machine_is_at_most_1_05_times_that_alone() {
    let mut rig = rig();
    let main = rig.host.group("main");
    let alone = p99_of_a_busy_service(&rig, &main);
    let work = rig.batch_burners("work", "", all_cpus(), 2 * nr_cpus());
    // Its queue does not grow each time: each of three has to be as fast.
    let all = [(); RUNS].map(|()| p99_of_a_busy_service(&rig, &main));
    println!("p99 beside batch work, us: {all:.0?}");
    let beside = all.into_iter().fold(0.0, f64::max);
    println!("p99 alone {alone:.0} us, beside batch work {beside:.0} us");
    let what = "p99 beside batch work, of that alone";
    known_defect(
        "issue 17: batch work keeps more than the service leaves, whose queue grows without end",
        is_within(what, beside / alone, 0.0..=1.05),
    );
    work.stop();
    rig.assert_nothing_left();
}
