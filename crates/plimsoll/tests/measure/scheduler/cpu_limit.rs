//! The limit of each CPU.

use crate::clock::{MEASURED, rates_of_tasks, sleep_ms};
use crate::common::{bind, nr_cpus};
use crate::figure::{SPEC_4, near};
use crate::scheduler_rig::{all_cpus, burners, rig};

#[test]
fn cpu_limit() {
    let rig = rig();
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", "--cpu-limit 50%", all_cpus(), 2 * cpus);
    let tids = burners(&rig.host.batch("work"));
    sleep_ms(500);
    let rates = rates_of_tasks(&tids, MEASURED);
    let each = rates.iter().sum::<f64>() / cpus as f64;
    let what = "unbound tasks under a CPU limit of 50 %";
    SPEC_4.figure(what, each, "% of each CPU", near(50.0, 0.5));
    // Two on each CPU, so that their usage is that of the CPU.
    for (index, tid) in tids.iter().enumerate() {
        bind(*tid, [index % cpus]).unwrap();
    }
    sleep_ms(500);
    let rates = rates_of_tasks(&tids, MEASURED);
    for cpu in 0..cpus {
        let what = format!("tasks on CPU {cpu} under a CPU limit of 50 %");
        let used = rates[cpu] + rates[cpu + cpus];
        SPEC_4.figure(&what, used, "% of it", near(50.0, 0.5));
    }
    work.stop();
}
