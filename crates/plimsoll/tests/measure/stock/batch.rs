//! SPEC 2: the batch class of the stock kernel.

use crate::clock::{MEASURED, ms, rate_of, rates_of};
use crate::common::{Host, nr_cpus, on_one_cpu, wait_until, wait_until_busy};
use crate::figure::{SPEC_2, near};

#[test]
fn tolerance_beside_normal_work() {
    let mut host = Host::new();
    let rival = host.group("service");
    let group = host.batch("work");
    let (_service, _work) = on_one_cpu(|| {
        (
            host.start_load_in(&rival, "burn --threads 1 --duration 80000s"),
            host.start_load(
                "--name work --class batch",
                "burn --threads 2 --duration 80000s",
            ),
        )
    });
    wait_until_busy(&rival);
    wait_until("it is there", || group.exists());
    let what = "batch work beside normal work on one CPU";
    // 1 ms in 100 ms.
    SPEC_2.figure(what, rate_of(&group, ms(3_000)), "% of it", 0.0..=1.0);
}

#[test]
fn unused_time() {
    let mut host = Host::new();
    let main = host.group("main");
    let group = host.batch("work");
    let start = |threads: usize| {
        host.start_load(
            "--name work --class batch",
            &format!("burn --threads {threads} --duration 80000s"),
        )
    };
    let alone = start(1);
    wait_until_busy(&group);
    // The kernel counts a running task at its tick of 4 ms.
    let rate = rate_of(&group, ms(1_000));
    SPEC_2.figure("batch work alone", rate, "% of a CPU", 98.0..=100.5);
    alone.stop();
    let _work = start(2);
    for percent in [30, 40, 50] {
        let load = format!("steady --percent {percent} --duration 80000s");
        let load = host.start_load_in(&main, &load);
        wait_until_busy(&group);
        let rates = rates_of(&[&group, &main], MEASURED);
        load.stop();
        let cpus = nr_cpus() as f64;
        let what = format!("service load of {percent} % beside batch work");
        SPEC_2.figure(
            &what,
            rates[1] / cpus,
            "% of the machine",
            near(f64::from(percent), 1.0),
        );
        let free = 100.0 * rates[0] / (100.0 * cpus - rates[1]);
        let what = format!("batch work beside a service load of {percent} %");
        SPEC_2.figure(&what, free, "% of the free time", 98.0..=100.5);
    }
}
