//! Fairness among batch work.

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks;
use serde_json::Value;

use crate::clock::{MEASURED, ended, rates_of, rates_of_tasks, sleep_ms};
use crate::common::{Running, nr_cpus, wait_until};
use crate::figure::{ANY, SPEC_2, about};
use crate::lab::lab_load;
use crate::scheduler_rig::{Rig, all_cpus, binary_word, burners, rig};

#[test]
fn nice_0_to_nice_5() {
    let rig = rig();
    let work = rig.batch_burners("work", "", 1, 2);
    let tids = burners(&rig.host.batch("work"));
    tasks::set_nice(tids[1], 5).unwrap();
    sleep_ms(300);
    // The kernel's weights are 1024 and 335.
    let rates = rates_of_tasks(&tids, MEASURED);
    SPEC_2.figure(
        "nice 0 : nice 5",
        rates[0] / rates[1],
        ": 1",
        about(3.05, 3.0),
    );
    work.stop();
}

#[test]
fn weight_300_to_weight_100() {
    for (where_, cpus, light, heavy) in [
        ("three tasks to one on one CPU", 1, 3, 1),
        ("on all CPUs", all_cpus(), nr_cpus(), nr_cpus()),
    ] {
        let rig = rig();
        let light = rig.batch_burners("light", "--weight 100", cpus, light);
        let heavy = rig.batch_burners("heavy", "--weight 300", cpus, heavy);
        let groups = [rig.host.batch("light"), rig.host.batch("heavy")];
        sleep_ms(300);
        let rates = rates_of(&groups.each_ref(), MEASURED);
        let what = format!("weight 300 : weight 100, {where_}");
        SPEC_2.figure(&what, rates[1] / rates[0], ": 1", about(3.0, 3.0));
        heavy.stop();
        light.stop();
    }
}

/// Runs a load of the lab on CPU 1, in a group. Returns its figures.
fn bound(rig: &Rig, group: &CpuGroup, load: &str) -> Value {
    let words = ["taskset", "2"].map(str::to_owned).into_iter();
    ended(rig.host.start_in(group, words.chain(lab_load(load)))).json()
}

/// One task on CPU 0; on CPU 1 two burners, and a sleeper of the same group.
///
/// SPEC 2: a task is served within a slice for each of the tasks on its CPU, and one slice, of
/// 4 ms each.
#[test]
fn wait_of_a_bound_sleeper_beside_spinners() {
    let rig = rig();
    let script = r#"taskset 1 "$0" load burn --threads 1 --duration 80000s &
        exec taskset 2 "$0" load burn --threads 2 --duration 80000s"#;
    let work = rig.batch("work", "", &["sh", "-c", script, &binary_word()]);
    let group = rig.host.batch("work");
    wait_until("all are there", || burners(&group).len() == 3);
    let report = bound(&rig, &group, "wake --every 9ms --duration 4s");
    let longest = report["latency"]["max_us"].as_f64().unwrap() / 1000.0;
    let what = "longest wait of a batch task beside two spinners on its CPU";
    SPEC_2.figure(what, longest, "ms", 0.0..=16.0);
    rig.end("work", work);
}

/// Normal work: short processes as a build has them, one more at a time than there are CPUs.
#[test]
fn time_of_a_build() {
    let rig = rig();
    let group = rig.group("build");
    let parallel = nr_cpus() + 1;
    let load = format!("storm --processes 400 --cpu-each 5ms --parallel {parallel} --json");
    let seconds = || {
        let report = ended(rig.fair_load(&group, all_cpus(), &load)).json();
        report["elapsed_seconds"].as_f64().unwrap()
    };
    let fair = seconds();
    let keeper = rig.batch_sleeper("keeper");
    let what = "time of 400 short processes, of that under the fair class";
    SPEC_2.figure(what, seconds() / fair, "times", 0.0..=1.02);
    keeper.stop();
}

/// Normal work with the tasks of [`wait_of_a_bound_sleeper_beside_spinners`]: the sleeper wants a
/// millisecond, and rests for nine.
#[test]
fn share_of_a_bound_sleeper_beside_spinners() {
    let rig = rig();
    let group = rig.group("work");
    let spinners = [(1, 1), (2, 2)].map(|(cpus, n)| rig.fair_burners(&group, cpus, n));
    let load = "need 500ms --piece 1ms --rest 9ms";
    let rate = || bound(&rig, &group, load)["rate"].as_f64().unwrap();
    let fair = rate();
    let other = rig.batch_burners("other", "", 1, 1);
    let what = "what a sleeper beside two spinners on its CPU gets, of that under the fair class";
    SPEC_2.figure(what, rate() / fair, "times", 0.9..=ANY);
    other.stop();
    spinners.into_iter().for_each(Running::kill_hard);
}
