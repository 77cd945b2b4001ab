//! Hard caps: of a whole tree, and of each task.

#![allow(clippy::unwrap_used)]

mod common;

use std::thread;
use std::time::{Duration, Instant};

use common::{
    Host, expect_within, ms, native_or_vm, rate_percent, task_ns, tasks_below, wait_until,
    wait_until_busy,
};
use plimsoll_engine::cgroup::CpuGroup;

const MEASURED: Duration = Duration::from_secs(5);

/// The rate of `burn --threads THREADS` under a tree cap.
fn rate_under(host: &Host, cap: &str, threads: usize) -> f64 {
    let group = host.normal("capped");
    let running = host.start_load(
        &format!("--name capped --cap {cap}"),
        &format!("burn --threads {threads} --duration 60s"),
    );
    wait_until_busy(&group);
    let rate = rate_percent(&group, MEASURED);
    running.stop();
    rate
}

#[test]
fn a_tree_cap_holds_one_spinner_to_20_percent() {
    let host = Host::alone();
    expect_within("cap 20%", 20.0, native_or_vm(0.5, 1.0), || {
        rate_under(&host, "20%", 1)
    });
    host.assert_clean();
}

#[test]
fn a_tree_cap_holds_four_spinners_to_150_percent_of_two_cpus() {
    let host = Host::alone();
    assert!(common::nr_cpus() >= 2, "this takes two CPUs");
    expect_within("cap 150%", 150.0, native_or_vm(3.0, 6.0), || {
        rate_under(&host, "150%", 4)
    });
    host.assert_clean();
}

/// Runs a storm; returns elapsed time and the CPU time of its group.
fn storm(host: &Host, knobs: &str, processes: u32, cpu_total: Duration) -> (f64, f64) {
    let load = format!(
        "storm --processes {processes} --parallel 8 --cpu-total {}us --json",
        cpu_total.as_micros()
    );
    let knobs = format!("--stats --json {knobs}");
    let finished = host
        .start_load(&knobs, &load)
        .finish(Duration::from_secs(120))
        .good();
    let elapsed = finished.json()["elapsed_seconds"].as_f64().unwrap();
    let stats = finished.stats();
    let used = stats["statistics"]["usage_usec"].as_f64().unwrap() / 1e6;
    (elapsed, used)
}

#[test]
fn a_tree_cap_holds_across_a_storm_of_short_processes() {
    let host = Host::alone();
    let (processes, wanted) = native_or_vm((2_000, 1.9), (60, 1.0));
    // What the program itself takes to start is not the storm's, and what
    // starting and ending the processes costs on this machine is.
    // The first start also reads the program from the disk.
    let starts = (0..3).map(|_| storm(&host, "", 1, Duration::from_micros(1)).1);
    let startup = starts.fold(f64::INFINITY, f64::min);
    let probe = Duration::from_secs_f64(wanted / 2.0);
    let (_, used) = storm(&host, "", processes, probe);
    let used = used - startup;
    let work = Duration::from_secs_f64((probe.as_secs_f64() + wanted - used).max(0.1));
    for (cap, share) in [("90%", 0.9), ("10%", 0.1)] {
        let what = format!("elapsed time under {cap}, in percent of CPU time / {share}");
        expect_within(&what, 100.0, native_or_vm(5.0, 10.0), || {
            let (elapsed, used) = storm(&host, &format!("--cap {cap}"), processes, work);
            let used = used - startup;
            println!("{processes} processes, cap {cap}: {used:.3} s of CPU in {elapsed:.3} s");
            100.0 * elapsed * share / used
        });
    }
    host.assert_clean();
}

/// The rates of the tasks of a group that use more than a hundredth of a CPU.
fn task_rates(group: &CpuGroup, time: Duration) -> Vec<f64> {
    let start = Instant::now();
    let sample = || -> Vec<(i32, u64)> {
        let tasks = tasks_below(group);
        tasks
            .into_iter()
            .filter_map(|tid| Some((tid, task_ns(tid)?)))
            .collect()
    };
    let before = sample();
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

/// Waits until the start of the program is over and only its work is left.
fn wait_until_all_spin(group: &CpuGroup, tasks: usize) {
    wait_until("all tasks spin", Duration::from_secs(10), || {
        let rates = task_rates(group, ms(300));
        rates.len() == tasks && rates.iter().all(|rate| *rate > 15.0)
    });
}

/// Runs a load under `--cap 25% --per-task` and checks every busy task.
fn expect_25_percent_each(load: &str, tasks: usize, processes: u64) {
    let host = Host::alone();
    let group = host.normal("each");
    let running = host.start_load("--name each --cap 25% --per-task", load);
    wait_until_all_spin(&group, tasks);
    let mut rates = Vec::new();
    let what = format!("{tasks} tasks of `{load}`, the one furthest from its cap");
    expect_within(&what, 25.0, native_or_vm(1.0, 2.0), || {
        rates = task_rates(&group, Duration::from_secs(3));
        assert_eq!(rates.len(), tasks, "{rates:?}");
        let distance = |rate: &f64| (rate - 25.0).abs();
        rates.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        rates[rates.len() - 1]
    });
    println!("rates: {rates:.2?}");
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
fn a_cap_per_task_finds_tasks_that_start_later() {
    let host = Host::alone();
    let group = host.normal("later");
    let binary = common::binary();
    let script = r#""$0" load burn --threads 1 --duration 60s & sleep 1; "$0" load burn --threads 1 --duration 60s & wait"#;
    let mut words = [
        "run",
        "--name",
        "later",
        "--cap",
        "25%",
        "--per-task",
        "--",
        "sh",
        "-c",
    ]
    .map(Into::into)
    .to_vec();
    words.extend([script.into(), binary.into_os_string()]);
    let running = host.start(words);
    wait_until_all_spin(&group, 2);
    expect_within("the second burner", 25.0, native_or_vm(1.0, 2.0), || {
        let rates = task_rates(&group, Duration::from_secs(2));
        // Tasks are moved to groups of their own while they are listed, and one may be missed.
        if rates.len() != 2 {
            println!("{} of 2 tasks were seen", rates.len());
            return 0.0;
        }
        let distance = |rate: &f64| (rate - 25.0).abs();
        if distance(&rates[0]) > distance(&rates[1]) {
            rates[0]
        } else {
            rates[1]
        }
    });
    // Its children are the shell's, which ends at once.
    let processes = group.all_processes().unwrap();
    running.send(nix::sys::signal::Signal::SIGTERM);
    for pid in processes {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
    running.finish(Duration::from_secs(10));
    host.assert_clean();
}
