//! Settings by other programs of cgroups that are no groups of Plimsoll.

use plimsoll_cgroupfs::CpuGroup;

use crate::clock::{MEASURED, rates_of, sleep_ms};
use crate::common::{Running, max, nr_cpus};
use crate::figure::{ANY, SPEC_2, about, near};
use crate::lab::lab_load;
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
}

#[test]
fn cpu_max_of_a_container() {
    let rig = rig();
    let keeper = rig.batch_sleeper("keeper");
    let pod = rig.group("pod");
    pod.enable_children().unwrap();
    let (container, beside) = (rig.group("pod/container"), rig.group("beside"));
    pod.write_cpu_max(&max("20ms/100ms")).unwrap();
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
}

/// A cgroup, in each of whose child cgroups a task sleeps most of the time, beside a spinner of the
/// same weight on the same CPU.
#[test]
fn child_cgroups_that_sleep_by_turns() {
    let rig = rig();
    let parent = rig.group("parent");
    parent.enable_children().unwrap();
    let beside = rig.group("beside");
    let mut running = vec![rig.fair_burners(&beside, 2, 1)];
    for number in 0..16 {
        let child = rig.group(&format!("parent/{number}"));
        let load = lab_load("need 600s --piece 2ms --rest 25ms");
        let words = ["taskset", "2"].map(str::to_owned).into_iter().chain(load);
        running.push(rig.host.start_in(&child, words));
    }
    let beyond = || {
        sleep_ms(300);
        let rates = rates_of(&[&parent, &beside], 2 * MEASURED);
        rates[0] / (rates[0] + rates[1]) - 0.5
    };
    let fair = beyond();
    let keeper = rig.batch_sleeper("keeper");
    SPEC_2.figure(
        "what sleepers in 16 child cgroups get beyond their share, of that under the fair class",
        beyond() / fair,
        "times",
        0.0..=1.0,
    );
    keeper.stop();
    running.into_iter().for_each(Running::kill_hard);
}

/// A light cgroup, a heavy one beside it that `cpu.max` throttles, and a third one outside of the
/// cgroup around these.
#[test]
fn light_cgroup_beside_a_heavy_one_that_is_throttled() {
    for (where_, cpus, nr_cpus) in [("one CPU", 2, 1), ("all CPUs", all_cpus(), nr_cpus())] {
        let rig = rig();
        let parent = rig.group("parent");
        parent.enable_children().unwrap();
        let groups = ["parent/heavy", "parent/light", "beside"].map(|name| rig.group(name));
        groups[0].write_weight(1000).unwrap();
        let quota = format!("{}ms/50ms", 10 * nr_cpus);
        groups[0].write_cpu_max(&max(&quota)).unwrap();
        let start = |group| rig.fair_burners(group, cpus, nr_cpus);
        let running: Vec<_> = groups.iter().map(start).collect();
        let of_its_share = || {
            sleep_ms(300);
            let rates = rates_of(&groups.each_ref(), 2 * MEASURED);
            // Half of all is that of the cgroup around both.
            100.0 * rates[1] / (rates.iter().sum::<f64>() / 2.0 - rates[0])
        };
        let what = format!("a light cgroup beside a heavy, throttled one, on {where_}");
        let fair = of_its_share();
        SPEC_2.figure(
            &format!("{what}, under the fair class"),
            fair,
            "% of its share",
            0.0..=ANY,
        );
        let keeper = rig.batch_sleeper("keeper");
        SPEC_2.figure(&what, of_its_share(), "% of its share", near(100.0, 3.0));
        keeper.stop();
        running.into_iter().for_each(Running::kill_hard);
    }
}

/// Cgroups in the number of a full host; in every tenth a task spins.
#[test]
fn five_thousand_cgroups() {
    let rig = rig();
    let mut spinning = Vec::new();
    for parent in 0..50 {
        let name = format!("slice-{parent}");
        rig.group(&name).enable_children().unwrap();
        let children = (0..100).map(|child| rig.group(&format!("{name}/{child}")));
        spinning.extend(children.step_by(10));
    }
    let spin = |group: &CpuGroup| {
        rig.host
            .start_in(group, ["sh", "-c", "while :; do :; done"])
    };
    let running: Vec<Running> = spinning.iter().map(spin).collect();
    let keeper = rig.batch_sleeper("keeper");
    sleep_ms(2_000);
    let all: Vec<&CpuGroup> = spinning.iter().collect();
    let rates = rates_of(&all, 10 * MEASURED);
    let share = rates.iter().sum::<f64>() / rates.len() as f64;
    let of_share = |rate: f64| 100.0 * rate / share;
    let (least, most) = rates
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), rate| {
            (least.min(*rate), most.max(*rate))
        });
    for (which, rate) in [("least", least), ("most", most)] {
        let what = format!("share of one of 500 cgroups that run, of 5,000, {which}");
        SPEC_2.figure(&what, of_share(rate), "% of the mean", near(100.0, 5.0));
    }
    let used = rates.iter().sum::<f64>() / nr_cpus() as f64;
    let what = "500 cgroups that run, of 5,000, together";
    SPEC_2.figure(what, used, "% of the machine", 95.0..=100.5);
    keeper.stop();
    running.into_iter().for_each(Running::kill_hard);
}
