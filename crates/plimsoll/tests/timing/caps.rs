//! SPEC 4, hard caps: rates of trees and of tasks.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;

use crate::common::{
    Host, binary, known_defect, ms, nr_cpus, rate_percent, task_ns, tasks_below, wait_until,
    wait_until_busy,
};
use crate::measured::{assert_near, assert_within, is_within};

/// The table of SPEC 4 at 9 %, in whole percents where it has those. All tasks run at the same
/// time, each under its own cap.
#[test]
fn a_task_under_a_cap_of_9_percent_achieves_the_rates_of_the_table() {
    let host = Host::alone();
    let rows = [
        ("10ms", 0.0, 19.0),
        ("50ms", 8.5, 11.5),
        ("100ms", 8.5, 10.5),
        ("500ms", 8.7, 9.3),
        ("1s", 8.8, 9.2),
        ("5s", 8.9, 9.1),
        ("10s", 8.9, 9.1),
    ];
    // The longest first: a short one would end before the others are started.
    let running = rows.into_iter().rev().map(|(need, least, most)| {
        let running = host.start_load("--cap 9%", &format!("need {need} --json"));
        (need, least, most, running)
    });
    let running: Vec<_> = running.collect();
    for (need, least, most, running) in running {
        let report = running.finish(Duration::from_secs(400)).good().json();
        let rate = 100.0 * report["rate"].as_f64().unwrap();
        let what = format!("rate of a task that needs {need} under a cap of 9 %");
        assert_within(&what, rate, least, most);
    }
    host.assert_clean();
}

#[test]
fn a_tree_of_four_spinners_gets_its_cap_of_150_percent_within_1_percent() {
    let host = Host::alone();
    assert_eq!(
        nr_cpus(),
        2,
        "more than one CPU, and less than the spinners want"
    );
    let group = host.normal("capped");
    let running = host.start_load(
        "--name capped --cap 150%",
        "burn --threads 4 --duration 60s",
    );
    wait_until_busy(&group);
    let rate = rate_percent(&group, ms(2_000));
    assert_near("rate under a cap of 150 %", rate, 150.0, 1.5);
    running.stop();
    host.assert_clean();
}

/// Runs 1.9 s of CPU time in many processes; returns elapsed time and the CPU time of its group.
fn storm(host: &Host, knobs: &str) -> (f64, f64) {
    let load = "storm --processes 1000 --parallel 8 --cpu-total 1900ms --json";
    let finished = host
        .start_load(&format!("--stats --json {knobs}"), load)
        .finish(Duration::from_secs(120))
        .good();
    let elapsed = finished.json()["elapsed_seconds"].as_f64().unwrap();
    let usage = &finished.stats()["statistics"]["usage_usec"];
    (elapsed, usage.as_f64().unwrap() / 1e6)
}

#[test]
fn a_tree_cap_holds_across_a_storm_of_short_processes_within_3_percent() {
    let host = Host::alone();
    for (cap, share) in [("90%", 0.9), ("10%", 0.1)] {
        let (elapsed, used) = storm(&host, &format!("--cap {cap}"));
        println!("cap {cap}: {used:.3} s of CPU time in {elapsed:.3} s");
        let what =
            format!("elapsed time under a cap of {cap}, percent of what the cap makes of it");
        assert_near(&what, 100.0 * elapsed * share / used, 100.0, 3.0);
    }
    host.assert_clean();
}

#[test]
fn a_storm_under_a_cap_per_task_of_90_percent_takes_at_most_a_tenth_longer() {
    let host = Host::alone();
    let (free, _) = storm(&host, "");
    let (capped, _) = storm(&host, "--cap 90% --per-task");
    let what = "elapsed time under a cap per task of 90 %, of that without";
    known_defect(
        "issue 18: 1.26 to 1.31; each short process is moved to a cgroup of its own",
        is_within(what, capped / free, 0.0, 1.1),
    );
    host.assert_clean();
}

/// The rates of the tasks of a group that use more than a hundredth of a CPU.
fn task_rates(group: &CpuGroup, time: Duration) -> Vec<f64> {
    let sample = || -> Vec<(i32, u64)> {
        let tasks = tasks_below(group).into_iter();
        tasks.filter_map(|tid| Some((tid, task_ns(tid)?))).collect()
    };
    let (start, before) = (Instant::now(), sample());
    thread::sleep(time);
    let elapsed = start.elapsed().as_nanos() as f64;
    let mut rates = Vec::new();
    for (tid, now) in sample() {
        let used = before.iter().find(|(other, _)| *other == tid);
        rates.extend(used.map(|(_, then)| 100.0 * (now - then) as f64 / elapsed));
    }
    rates.retain(|rate| *rate > 1.0);
    rates
}

/// Waits until tasks are each under their cap of 25 %.
fn wait_until_all_spin(group: &CpuGroup, tasks: usize) {
    wait_until("all tasks spin", Duration::from_secs(10), || {
        let rates = task_rates(group, ms(200));
        rates.len() == tasks && rates.iter().all(|rate| *rate > 15.0)
    });
}

fn assert_25_percent_each(group: &CpuGroup, tasks: usize) {
    let rates = task_rates(group, ms(2_000));
    assert_eq!(rates.len(), tasks, "{rates:?}");
    for rate in rates {
        assert_near("rate of a task under a cap of 25 %", rate, 25.0, 0.5);
    }
}

/// Runs a load under `--cap 25% --per-task` and looks at every busy task.
fn expect_25_percent_each(load: &str, tasks: usize, processes: u64) {
    let host = Host::alone();
    let group = host.normal("each");
    let running = host.start_load("--name each --cap 25% --per-task", load);
    wait_until_all_spin(&group, tasks);
    assert_25_percent_each(&group, tasks);
    let statistics = &host.show("each")["statistics"];
    assert_eq!(statistics["processes"].as_u64(), Some(processes));
    let found = statistics["per_task"]["tasks"].as_u64().unwrap();
    assert!(found >= tasks as u64, "{found} tasks found");
    running.stop();
    host.assert_clean();
}

#[test]
fn two_processes_get_25_percent_each_under_a_cap_per_task() {
    expect_25_percent_each("burn --threads 2 --processes --duration 60s", 2, 3);
}

#[test]
fn two_threads_of_one_process_get_25_percent_each_under_a_cap_per_task() {
    expect_25_percent_each("burn --threads 2 --duration 60s", 2, 1);
}

#[test]
fn a_task_that_starts_later_gets_25_percent_under_a_cap_per_task() {
    let host = Host::alone();
    let group = host.normal("later");
    let script = r#""$0" load burn --threads 1 --duration 60s & sleep 1; "$0" load burn --threads 1 --duration 60s & wait"#;
    let words = "run --name later --cap 25% --per-task -- sh -c";
    let binary = binary();
    let words = words.split(' ').chain([script, binary.to_str().unwrap()]);
    let running = host.start(words);
    wait_until_all_spin(&group, 2);
    assert_25_percent_each(&group, 2);
    // Its children are the shell's, which ends at once.
    let processes = group.all_processes().unwrap();
    running.send(Signal::SIGTERM);
    for pid in processes {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    running.finish(Duration::from_secs(10));
    host.assert_clean();
}
