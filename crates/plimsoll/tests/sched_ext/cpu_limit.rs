//! The limit of each CPU.

use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::common::{ms, nr_cpus};
use crate::rig::{all_cpus, burners, expect_all_within, expect_within, rates_of_tasks, rig};

#[test]
fn a_cpu_limit_of_50_percent_holds_on_each_cpu() {
    let Some(rig) = rig() else { return };
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "--cpu-limit 50%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    // Two on each CPU, so that what they use is what is used of it.
    for (index, tid) in tids.iter().enumerate() {
        let mut set = CpuSet::new();
        set.set(index % cpus).unwrap();
        sched_setaffinity(Pid::from_raw(*tid), &set).unwrap();
    }
    thread::sleep(ms(500));
    expect_all_within("of each CPU, percent", &vec![50.0; cpus], 1.0, || {
        let rates = rates_of_tasks(&tids, Duration::from_secs(5));
        (0..cpus)
            .map(|cpu| rates[cpu] + rates[cpu + cpus])
            .collect()
    });
    work.stop();
    rig.assert_nothing_left();
}

#[test]
fn under_a_cpu_limit_unbound_tasks_use_all_cpus_up_to_it() {
    let Some(rig) = rig() else { return };
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "--cpu-limit 50%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    thread::sleep(ms(500));
    expect_within("of all CPUs, percent", 50.0, 1.0, || {
        let rates = rates_of_tasks(&tids, Duration::from_secs(5));
        rates.iter().sum::<f64>() / cpus as f64
    });
    let shown = rig.host.show("work");
    println!("{}", shown["statistics"]["batch"]["cpus"]);
    work.stop();
    rig.assert_nothing_left();
}
