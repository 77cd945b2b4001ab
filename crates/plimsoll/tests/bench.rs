//! Interruption of `bench --real`. Checks no measured figure.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use common::{Host, ms, wait_until};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A scenario that takes far longer on the machine than the test waits, and is
/// simulated at once.
const LONG: &str = r#"
duration = "10m"
warmup = "500ms"
[machine]
cpus = CPUS
[[group]]
name = "left"
[[group.workload]]
kind = "wake"
every = "100ms"
[[group]]
name = "right"
[[group.workload]]
kind = "wake"
every = "100ms"
"#;

/// Sends SIGINT to the process group of a benchmark, as a terminal does,
/// `after` its groups have started. Returns the run from its report.
fn interrupted_after(after: Duration) -> serde_json::Value {
    let host = Host::shared();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    let text = LONG.replace("CPUS", &common::nr_cpus().to_string());
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let mut command = host.plimsoll(["bench", path, "--real", "--enforcer", "cgroup", "--json"]);
    command.process_group(0);
    let running = host.spawn(command);
    let groups = || {
        host.snapshot()
            .keys()
            .filter(|p| p.to_string_lossy().contains("left"))
            .count()
    };
    wait_until("a group is there", Duration::from_secs(60), || groups() > 0);
    std::thread::sleep(after);
    killpg(Pid::from_raw(running.pid()), Signal::SIGINT).unwrap();
    let finished = running.finish(Duration::from_secs(60));
    assert_eq!(finished.code(), 130, "{finished:?}");
    host.assert_clean();
    let run = finished.json()["runs"][0].clone();
    assert_eq!(run["complete"], false, "{run}");
    assert_eq!(run["model_seconds"], 600.0, "{run}");
    run
}

#[test]
fn interrupt_before_the_measurement_leaves_the_simulated_figures() {
    let run = interrupted_after(Duration::ZERO);
    assert_eq!(run["real_seconds"], serde_json::Value::Null, "{run}");
}

#[test]
fn interrupt_during_the_measurement_leaves_the_figures_until_then() {
    let run = interrupted_after(ms(5_000));
    assert!(run["real_seconds"].as_f64().unwrap() > 0.0, "{run}");
    let figures = run["groups"][1]["figures"].as_array().unwrap();
    let mean = figures.iter().find(|f| f["figure"] == "mean").unwrap();
    assert!(mean["real"].as_f64().unwrap() > 0.0, "{run}");
}
