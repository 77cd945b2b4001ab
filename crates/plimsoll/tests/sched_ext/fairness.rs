//! How batch work shares what there is.

use std::thread;
use std::time::Duration;

use plimsoll_engine::tasks;

use crate::common::{ms, nr_cpus};
use crate::rig::{all_cpus, burners, expect_within, rates_of, rates_of_tasks, rig};

const MEASURED: Duration = Duration::from_secs(6);

#[test]
fn two_tasks_at_nice_0_and_5_share_3_05_to_1() {
    let Some(rig) = rig() else { return };
    let work = rig.batch_burners("work", "", 1, 2);
    let tids = burners(&rig.host.batch("work"));
    tasks::set_nice(tids[1], 5).unwrap();
    thread::sleep(ms(300));
    // The kernel's weights are 1024 and 335.
    expect_within("nice 0 : nice 5", 3.05, 0.03 * 3.05, || {
        let rates = rates_of_tasks(&tids, MEASURED);
        println!("{rates:.2?} % of a CPU");
        rates[0] / rates[1]
    });
    work.stop();
    rig.assert_nothing_left();
}

/// Groups of weights 100 and 300, with so many burners each, on the same CPUs.
fn weights_divide_what_there_is(cpus: u64, light_burners: usize, heavy_burners: usize) {
    let Some(rig) = rig() else { return };
    let light = rig.batch_burners("light", "--weight 100", cpus, light_burners);
    let heavy = rig.batch_burners("heavy", "--weight 300", cpus, heavy_burners);
    let groups = [rig.host.batch("light"), rig.host.batch("heavy")];
    thread::sleep(ms(300));
    expect_within("weight 300 : weight 100", 3.0, 0.03 * 3.0, || {
        let rates = rates_of(&[&groups[0], &groups[1]], MEASURED);
        println!("{rates:.2?} % of a CPU");
        rates[1] / rates[0]
    });
    heavy.stop();
    light.stop();
    rig.assert_nothing_left();
}

#[test]
fn groups_share_a_cpu_by_weight() {
    weights_divide_what_there_is(1, 3, 1);
}

#[test]
fn groups_share_all_cpus_by_weight() {
    weights_divide_what_there_is(all_cpus(), nr_cpus(), nr_cpus());
}
