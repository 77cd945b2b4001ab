//! Quotas, hard and soft caps, of a tree and of each task.

use crate::clock::{MEASURED, ms, rate_of, rates_of, rates_of_spinning_tasks, sleep_ms};
use crate::common::{has_processes, nr_cpus, wait_until};
use crate::figure::{SPEC_1, SPEC_4, about, near};
use crate::scheduler_rig::{all_cpus, binary_word, rig};
use crate::stock::caps::{TABLE, table};

/// Measures a quota of 60 % of each CPU.
pub fn quota_on_all_cpus() {
    let rig = rig();
    let cpus = nr_cpus();
    let quota_ms = 60 * cpus;
    let knobs = format!("--quota {quota_ms}ms/100ms");
    let work = rig.batch_burners("work", &knobs, all_cpus(), cpus);
    sleep_ms(500);
    // It runs in the first part of each period only: a window may have one of these more.
    let rate = rate_of(&rig.host.batch("work"), 10 * MEASURED);
    let what = format!("quota {quota_ms} ms per 100 ms on {cpus} CPUs");
    SPEC_1.figure(&what, rate, "% of a CPU", about(quota_ms as f64, 1.0));
    work.stop();
}

#[test]
fn quota() {
    quota_on_all_cpus();
}

#[test]
fn quota_of_1_ms_in_100_ms() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 1ms/100ms", all_cpus(), 1);
    sleep_ms(2_000);
    let rate = rate_of(&rig.host.batch("work"), ms(1_000));
    let what = "quota 1 ms per 100 ms, over a second";
    SPEC_1.figure(what, rate, "% of a CPU", about(1.0, 10.0));
    work.stop();
}

/// The table without the task that needs 10 s, and so two minutes, during which nothing is left to
/// measure.
#[test]
fn cap_table() {
    let rig = rig();
    let knobs = "--enforcer sched-ext --class batch";
    table(rig.host, knobs, &TABLE[..6]);
}

#[test]
fn tree_cap_across_a_storm_of_short_processes() {
    let rig = rig();
    // The cost of starting processes is unknown here, so the measured usage counts.
    let load = "storm --processes 1000 --parallel 8 --cpu-total 5s";
    let work = rig.batch("work", "--cap 50%", &["sleep", "80000"]);
    let group = rig.host.batch("work");
    wait_until("it is there", || has_processes(&group));
    let mut storm = rig.fair_load(&group, all_cpus(), load);
    sleep_ms(800);
    let rate = rate_of(&group, MEASURED);
    assert!(storm.is_running(), "the storm is over too soon");
    let what = "a storm of short processes under a cap of 50 %";
    SPEC_4.figure(what, rate, "% of a CPU", about(50.0, 3.0));
    storm.kill_hard();
    rig.end("work", work);
}

#[test]
fn cap_per_task() {
    let rig = rig();
    let script = r#""$0" load storm --processes 2 --parallel 2 --cpu-each 60s &
        exec "$0" load burn --threads 2 --duration 80000s"#;
    let knobs = "--cap 20% --per-task";
    let work = rig.batch("work", knobs, &["sh", "-c", script, &binary_word()]);
    let group = rig.host.batch("work");
    let [least, most] = rates_of_spinning_tasks(&group, 4);
    for (what, rate) in [("least", least), ("most", most)] {
        let what = format!("tasks under a cap per task of 20 %, {what}");
        SPEC_4.figure(&what, rate, "% of a CPU", about(20.0, 2.0));
    }
    rig.end("work", work);
}

#[test]
fn soft_cap() {
    let rig = rig();
    let greedy = rig.batch_burners("greedy", "--soft-cap 10%", 1, 1);
    let (soft, plain) = (rig.host.batch("greedy"), rig.host.batch("plain"));
    wait_until("its rate is above its cap", || {
        rig.host.show("greedy")["statistics"]["soft_cap"]["background"] == true
    });
    let what = "a group alone over its soft cap of 10 %";
    SPEC_4.figure(what, rate_of(&soft, MEASURED), "% of a CPU", 98.0..=100.5);
    let modest = rig.batch_burners("plain", "", 1, 1);
    // It gets nothing until its rate, with a half-life of a second, has decayed to its cap.
    sleep_ms(4_000);
    let rates = rates_of(&[&soft, &plain], ms(4_000));
    let what = "a group over its soft cap of 10 % beside another";
    SPEC_4.figure(what, rates[0], "% of a CPU", near(10.0, 1.0));
    modest.stop();
    greedy.stop();
}

#[test]
fn soft_cap_of_0() {
    let rig = rig();
    let last = rig.batch_burners("last", "--soft-cap 0%", 1, 2);
    let first = rig.batch_burners("first", "", 1, 1);
    sleep_ms(300);
    let rate = rate_of(&rig.host.batch("last"), MEASURED);
    let what = "a group with a soft cap of 0 % beside another";
    SPEC_4.figure(what, rate, "% of a CPU", 0.0..=0.2);
    first.stop();
    last.stop();
}

#[test]
fn usage_rates_of_tasks() {
    let rig = rig();
    let work = rig.batch_burners("work", "--cap 60%", all_cpus(), 3);
    sleep_ms(8_000);
    let show = ["show", "work", "--tasks", "--json"];
    let seen = rig.host.run(show).good().json()["group"]["statistics"]["task_rates"].clone();
    let tasks = seen["tasks"].as_array().unwrap();
    let ppm = tasks.iter().map(|task| task["rate_ppm"].as_f64().unwrap());
    let what = "usage rates of all tasks under a cap of 60 %";
    let rate = ppm.sum::<f64>() / 1e4;
    SPEC_4.figure(what, rate, "% of a CPU", about(60.0, 3.0));
    work.stop();
}
