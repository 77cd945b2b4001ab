//! Settings by other programs of cgroups that are no groups of Plimsoll.

use plimsoll_cgroupfs::{CpuGroup, CpuMax};

use crate::clock::{MEASURED, rates_of, sleep_ms};
use crate::common::Running;
use crate::figure::{SPEC_2, about, near};
use crate::scheduler_rig::{Rig, all_cpus, rig};

fn with_burners(rig: &Rig, loads: &[(&CpuGroup, usize)]) -> Vec<Running> {
    let start =
        |(group, burners): &(&CpuGroup, usize)| rig.fair_burners(group, all_cpus(), *burners);
    loads.iter().map(start).collect()
}

#[test]
fn weights_on_three_levels() {
    let rig = rig();
    let keeper = rig.batch_sleeper("keeper");
    let top = rig.group("top");
    top.enable_children().unwrap();
    let (light, heavy) = (rig.group("top/light"), rig.group("top/heavy"));
    light.enable_children().unwrap();
    let inner = [1, 2].map(|number| rig.group(&format!("top/light/{number}")));
    let beside = rig.group("beside");
    heavy.write_weight(300).unwrap();
    inner[1].write_weight(200).unwrap();
    let loads = [(&inner[0], 2), (&inner[1], 2), (&heavy, 3), (&beside, 5)];
    let running = with_burners(&rig, &loads);
    sleep_ms(300);
    let rates = rates_of(
        &[&top, &beside, &light, &heavy, &inner[0], &inner[1]],
        2 * MEASURED,
    );
    for (what, pair, ratio) in [
        ("cpu.weight 100 : 100 at the top", [0, 1], 1.0),
        ("cpu.weight 300 : 100 in one of them", [3, 2], 3.0),
        ("cpu.weight 200 : 100 in the lighter of these", [5, 4], 2.0),
    ] {
        SPEC_2.figure(
            what,
            rates[pair[0]] / rates[pair[1]],
            ": 1",
            about(ratio, 3.0),
        );
    }
    running.into_iter().for_each(Running::kill_hard);
    keeper.stop();
    rig.assert_nothing_left();
}

#[test]
fn cpu_max_of_a_container() {
    let rig = rig();
    let keeper = rig.batch_sleeper("keeper");
    let pod = rig.group("pod");
    pod.enable_children().unwrap();
    let (container, beside) = (rig.group("pod/container"), rig.group("beside"));
    let max = CpuMax {
        quota_usec: Some(20_000),
        period_usec: 100_000,
        burst_usec: 0,
    };
    pod.write_cpu_max(&max).unwrap();
    let running = with_burners(&rig, &[(&container, 4), (&beside, 4)]);
    sleep_ms(300);
    let rate = rates_of(&[&pod], 2 * MEASURED)[0];
    SPEC_2.figure(
        "cpu.max 20 % around a container",
        rate,
        "%",
        near(20.0, 0.5),
    );
    running.into_iter().for_each(Running::kill_hard);
    keeper.stop();
    rig.assert_nothing_left();
}
