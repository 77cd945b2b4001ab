//! The limit of each CPU.

use std::thread;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::common::{ms, nr_cpus};
use crate::rig::{MEASURED, all_cpus, assert_within, burners, rates_of_tasks, rig};

#[test]
fn a_cpu_limit_of_50_percent_holds_on_each_cpu() {
    let rig = rig();
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "--cpu-limit 50%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    // Two on each CPU, so that their usage is that of the CPU.
    for (index, tid) in tids.iter().enumerate() {
        let mut set = CpuSet::new();
        set.set(index % cpus).unwrap();
        sched_setaffinity(Pid::from_raw(*tid), &set).unwrap();
    }
    thread::sleep(ms(500));
    let rates = rates_of_tasks(&tids, MEASURED);
    for cpu in 0..cpus {
        let what = format!("of CPU {cpu}, percent");
        assert_within(&what, rates[cpu] + rates[cpu + cpus], 49.5..=50.5);
    }
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn under_a_cpu_limit_unbound_tasks_use_all_cpus_up_to_it() {
    let rig = rig();
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "--cpu-limit 50%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    thread::sleep(ms(500));
    let rates = rates_of_tasks(&tids, MEASURED);
    let each = rates.iter().sum::<f64>() / cpus as f64;
    assert_within("of all CPUs, percent", each, 49.5..=50.5);
    let shown = rig.host.show("work");
    println!("{}", shown["statistics"]["batch"]["cpus"]);
    work.stop();
    rig.assert_nothing_left();
}
