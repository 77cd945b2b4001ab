//! Fairness among batch work.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll_engine::tasks;
use serde_json::Value;

use crate::common::{known_defect, ms, nr_cpus, wait_until};
use crate::rig::{
    MEASURED, SHORT, about, all_cpus, assert_within, binary_word, burners, is_within, rates_of,
    rates_of_tasks, rig,
};

#[test]
fn two_tasks_at_nice_0_and_5_share_3_05_to_1() {
    let rig = rig();
    let work = rig.batch_burners("work", "", 1, 2);
    let tids = burners(&rig.host.batch("work"));
    tasks::set_nice(tids[1], 5).unwrap();
    thread::sleep(ms(300));
    // The kernel's weights are 1024 and 335.
    let rates = rates_of_tasks(&tids, MEASURED);
    println!("{rates:.2?} % of a CPU");
    assert_within("nice 0 : nice 5", rates[0] / rates[1], about(3.05, 3.0));
    work.stop();
    rig.assert_nothing_left();
}

/// Groups of weights 100 and 300, with a number of burners each, on the same CPUs.
fn weights_divide_what_there_is(cpus: u64, light_burners: usize, heavy_burners: usize) {
    let rig = rig();
    let light = rig.batch_burners("light", "--weight 100", cpus, light_burners);
    let heavy = rig.batch_burners("heavy", "--weight 300", cpus, heavy_burners);
    let groups = [rig.host.batch("light"), rig.host.batch("heavy")];
    thread::sleep(ms(300));
    let rates = rates_of(&[&groups[0], &groups[1]], MEASURED);
    println!("{rates:.2?} % of a CPU");
    let what = "weight 300 : weight 100";
    assert_within(what, rates[1] / rates[0], about(3.0, 3.0));
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

/// One task on CPU 0; on CPU 1 two burners, and a sleeper of the same group that wakes up every
/// 9 ms.
///
/// SPEC 2: a task is served within a slice for each of the tasks on its CPU, and one slice, of
/// 4 ms each.
#[test]
fn a_bound_sleeper_beside_spinners_is_served_independent_of_other_cpus() {
    const MOST_MS: f64 = 16.0;
    const ENDED_WITHIN: Duration = Duration::from_secs(8);
    let rig = rig();
    let script = r#"taskset 1 "$0" load burn --threads 1 --duration 600s &
        exec taskset 2 "$0" load burn --threads 2 --duration 600s"#;
    let work = rig.batch("work", "", &["sh", "-c", script, &binary_word()]);
    let group = rig.host.batch("work");
    wait_until("all are there", SHORT, || burners(&group).len() == 3);
    let mut sleeper = rig.fair_load(&group, 2, "wake --every 9ms --duration 4s --json");
    let start = Instant::now();
    while sleeper.is_running() && start.elapsed() < ENDED_WITHIN {
        thread::sleep(ms(50));
    }
    let holds = !sleeper.is_running() && {
        let report: Value = serde_json::from_str(&sleeper.stdout()).unwrap();
        let longest = report["latency"]["max_us"].as_f64().unwrap() / 1000.0;
        let what = "longest wait beside two spinners, ms";
        is_within(what, longest, 0.0..=MOST_MS)
    };
    known_defect(
        "issue 17: a task on another CPU moves the floor of virtual time, 3.5 s instead of 16 ms",
        holds,
    );
    rig.end("work", work);
    sleeper.kill_hard();
    rig.assert_nothing_left();
}
