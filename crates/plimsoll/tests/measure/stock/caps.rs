//! SPEC 4, hard caps: rates of trees and of tasks.

use crate::clock::{MEASURED, ended, rate_of, rates_of_spinning_tasks};
use crate::common::{Host, binary, wait_until_busy};
use crate::figure::{SPEC_4, near};
use crate::lab::lab_load;

/// The table of SPEC 4 at 9 %, in whole percents where it has those.
pub const TABLE: [(&str, f64, f64); 7] = [
    ("10ms", 0.0, 19.0),
    ("50ms", 8.5, 11.5),
    ("100ms", 8.5, 10.5),
    ("500ms", 8.7, 9.3),
    ("1s", 8.8, 9.2),
    ("5s", 8.9, 9.1),
    ("10s", 8.9, 9.1),
];

/// Measures rows of the table at the same time, each task under a cap of its own.
pub fn table(host: &Host, knobs: &str, rows: &[(&str, f64, f64)]) {
    // The longest first: a short one would end before the others are started.
    let running = rows.iter().rev().map(|(need, least, most)| {
        let run = format!("run {knobs} --cap 9% --");
        let words = run.split_whitespace().map(str::to_owned);
        let running = host.start(words.chain(lab_load(&format!("need {need}"))));
        (need, *least..=*most, running)
    });
    let running: Vec<_> = running.collect();
    for (need, bounds, running) in running.into_iter().rev() {
        let rate = 100.0 * ended(running).json()["rate"].as_f64().unwrap();
        let what = format!("a task that needs {need} under a cap of 9 %");
        SPEC_4.figure(&what, rate, "% of a CPU", bounds);
    }
}

#[test]
fn cap_table() {
    table(&Host::new(), "", &TABLE);
}

#[test]
fn tree_cap_of_four_spinners() {
    let host = Host::new();
    let group = host.normal("capped");
    let words = "--name capped --cap 150%";
    let _running = host.start_load(words, "burn --threads 4 --duration 80000s");
    wait_until_busy(&group);
    let rate = rate_of(&group, MEASURED);
    let what = "four spinners under a cap of 150 %";
    SPEC_4.figure(what, rate, "% of a CPU", near(150.0, 1.5));
}

/// Runs 1.9 s of CPU time in many processes; returns elapsed time and the CPU time of its group.
fn storm(host: &Host, knobs: &str) -> (f64, f64) {
    let load = "storm --processes 1000 --parallel 8 --cpu-total 1900ms --json";
    let finished = ended(host.start_load(&format!("--stats --json {knobs}"), load));
    let elapsed = finished.json()["elapsed_seconds"].as_f64().unwrap();
    let usage = &finished.stats()["statistics"]["usage_usec"];
    (elapsed, usage.as_f64().unwrap() / 1e6)
}

#[test]
fn caps_across_a_storm_of_short_processes() {
    let host = Host::new();
    for cap in [90, 10] {
        let (elapsed, used) = storm(&host, &format!("--cap {cap}%"));
        let what = format!("time of a storm under a cap of {cap} %, of what the cap makes of it");
        let share = elapsed * f64::from(cap) / used;
        SPEC_4.figure(&what, share, "%", near(100.0, 3.0));
    }
    let (free, _) = storm(&host, "");
    let (capped, _) = storm(&host, "--cap 90% --per-task");
    let what = "time of a storm under a cap per task of 90 %, of that without";
    SPEC_4.figure(what, capped / free, "times", 0.0..=1.1);
}

/// Two threads, and two processes that start later.
#[test]
fn cap_per_task() {
    let host = Host::new();
    let group = host.normal("each");
    let script = r#""$0" load burn --threads 2 --duration 80000s & sleep 1
        exec "$0" load storm --processes 2 --parallel 2 --cpu-each 60s"#;
    let words = "run --name each --cap 25% --per-task -- sh -c";
    let binary = binary();
    let words = words.split(' ').chain([script, binary.to_str().unwrap()]);
    let _running = host.start(words);
    let [least, most] = rates_of_spinning_tasks(&group, 4);
    for (what, rate) in [("least", least), ("most", most)] {
        let what = format!("tasks under a cap per task of 25 %, {what}");
        SPEC_4.figure(&what, rate, "% of a CPU", near(25.0, 0.5));
    }
}
