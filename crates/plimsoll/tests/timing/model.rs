//! SPEC 5: the host simulator compared with a kernel, on the same scenario.
//!
//! Utilisation and the share of throttled periods agree within 3 points.
//! Latencies are not compared.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, Host};
use crate::measured::assert_near;

/// Tolerance in percentage points.
const WITHIN: f64 = 3.0;

/// Difference between simulator and machine, in points.
#[derive(Debug)]
struct Difference {
    what: String,
    points: f64,
}

fn file(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Figures of a group by name, of the simulator and of the machine.
struct Figures<'a>(&'a Value);

impl Figures<'_> {
    fn of(&self, name: &str) -> Option<(f64, f64)> {
        let figures = self.0["figures"].as_array().unwrap();
        let figure = figures.iter().find(|figure| figure["figure"] == name)?;
        let of = |key: &str| figure[key].as_f64().unwrap();
        Some((of("model"), of("real")))
    }

    /// Throttled periods, as a share of all periods of the run. Not of the
    /// periods that each counts, because the kernel counts an additional one
    /// after each interval of activity, before it stops its timer.
    fn throttled(&self, seconds: f64) -> Option<(f64, f64)> {
        const PERIODS_PER_SECOND: f64 = 10.0;
        let (model, real) = self.of("throttled periods")?;
        let (periods_model, periods_real) = self.of("periods")?;
        let all = seconds * PERIODS_PER_SECOND;
        Some((model * periods_model / all, real * periods_real / all))
    }
}

fn difference(what: String, (model, real): (f64, f64)) -> Difference {
    Difference {
        what: format!("{what}: model {model:.3}, machine {real:.3}"),
        points: 100.0 * (real - model),
    }
}

/// Runs a file on both. With `saturated`, all CPUs are in use and the groups'
/// shares of the used time are compared, because the kernel itself takes some
/// time.
fn differences(host: &Host, path: &Path, saturated: bool) -> Vec<Difference> {
    let path = path.to_str().unwrap();
    let output = host
        .run(["bench", path, "--real", "--enforcer", "cgroup", "--json"])
        .good();
    let document = output.json();
    let run = &document["runs"][0];
    assert_eq!(run["complete"], true, "{document}");
    let seconds = run["model_seconds"].as_f64().unwrap();
    let groups = run["groups"].as_array().unwrap();
    let used = |group: &Value| Figures(group).of("CPUs used").unwrap();
    let sum = |(model, real): (f64, f64), group| (model + used(group).0, real + used(group).1);
    let all = groups.iter().fold((0.0, 0.0), sum);
    let cpus = common::nr_cpus() as f64;
    let whole = if saturated { all } else { (cpus, cpus) };
    let mut differences = Vec::new();
    for group in groups {
        let name = group["name"].as_str().unwrap();
        let (model, real) = used(group);
        let shares = (model / whole.0, real / whole.1);
        differences.push(difference(format!("{name}: share of CPU"), shares));
        if let Some(throttled) = Figures(group).throttled(seconds) {
            differences.push(difference(format!("{name}: throttled periods"), throttled));
        }
    }
    differences
}

fn assert_agrees(text: &str, saturated: bool, nr_figures: usize) {
    let host = Host::alone();
    let folder = TempDir::new().unwrap();
    let path = file(&folder, text);
    let differences = differences(&host, &path, saturated);
    assert_eq!(differences.len(), nr_figures, "{differences:?}");
    for difference in &differences {
        assert_near(&difference.what, difference.points, 0.0, WITHIN);
    }
    host.assert_clean();
}

/// The 100 bursts of requests start at 100 different times of a period, one
/// millisecond apart. The start of the first period, which the simulator does
/// not know, affects at most one of them.
#[test]
fn quotas_and_bursts_agree_with_the_simulator_within_3_points() {
    assert_agrees(
        r#"
duration = "31300ms"
[[group]]
name = "steady"
workload = [{ kind = "steady", percent = 15 }]
[[group]]
name = "limited"
quota = "40ms/100ms"
workload = [{ kind = "burn", threads = 2 }]
[[group]]
name = "bursty"
quota = "16ms/100ms"
workload = [{ kind = "service", burst-size = 24, burst-every = "313ms", service = "const:1ms" }]
[[group]]
name = "bursting"
quota = "16ms/100ms"
burst = "16ms"
workload = [{ kind = "service", burst-size = 24, burst-every = "313ms", service = "const:1ms" }]
"#,
        false,
        7,
    );
}

#[test]
fn headroom_agrees_with_the_simulator_within_3_points() {
    assert_agrees(
        r#"
duration = "15s"
warmup = "1s"
[[group]]
name = "load"
headroom = "30%"
workload = [{ kind = "steady", percent = 35 }]
[[group]]
name = "batch"
class = "batch"
workload = [{ kind = "burn" }]
"#,
        false,
        2,
    );
}

#[test]
fn caps_agree_with_the_simulator_within_3_points() {
    assert_agrees(
        r#"
duration = "3s"
[[group]]
name = "tree"
cap = "20%"
workload = [{ kind = "burn", threads = 2 }]
[[group]]
name = "storm"
cap = "30%"
workload = [{ kind = "storm", processes = 100000, cpu-each = "2ms" }]
[[group]]
name = "each"
cap = "15%"
per-task = true
workload = [{ kind = "burn", threads = 3 }]
"#,
        false,
        3,
    );
}

#[test]
fn weights_and_batch_class_agree_with_the_simulator_within_3_points() {
    assert_agrees(
        r#"
duration = "3s"
[[group]]
name = "light"
weight = 100
workload = [{ kind = "burn" }]
[[group]]
name = "heavy"
weight = 300
workload = [{ kind = "burn" }]
[[group]]
name = "batch"
class = "batch"
workload = [{ kind = "burn" }]
"#,
        true,
        3,
    );
}
