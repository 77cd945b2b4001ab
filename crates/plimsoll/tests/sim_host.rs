//! Tests of `sim host` and `bench` through the command line. Need no privileges
//! and change nothing.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use common::folder::Folder;

/// Two groups on two CPUs: requests under a quota with burst, and batch work below them.
const SMALL: &str = r#"
about = "requests beside batch work"
duration = "2s"
warmup = "200ms"
seed = 3

[machine]
cpus = 2

[[group]]
name = "web"
quota = "20ms/100ms"
burst = "10ms"
headroom = "20%"

[[group.workload]]
kind = "service"
rate = 300
service = "exp:1ms"

[[group]]
name = "batch"
class = "batch"

[[group.workload]]
kind = "burn"
"#;

const VARIANTS: &str = r#"
[[variant]]
name = "alone"
without = ["batch"]

[[variant]]
name = "batch"

[[variant]]
name = "fair"
group.batch.class = "normal"
group.web.headroom = "none"
"#;

/// A folder with a scenario.
fn folder_with(text: &str) -> Folder {
    Folder::for_command("").with("s.toml", text)
}

#[test]
fn the_table_has_a_row_for_each_group_and_the_machines_shares() {
    let table = folder_with(SMALL).good("sim host s.toml");
    assert!(table.starts_with("requests beside batch work\n"), "{table}");
    for part in [
        "GROUP",
        "THROTTLED",
        "P99.9",
        "web ",
        "batch ",
        "MACHINE",
        "2 CPUs",
        "2.000 s",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    assert!(table.lines().all(|line| !line.ends_with(' ')), "{table}");
}

#[test]
fn columns_without_figures_are_omitted() {
    let text = SMALL.replace("headroom = \"20%\"", "");
    let text = text
        .replace("quota = \"20ms/100ms\"", "")
        .replace("burst = \"10ms\"", "");
    let table = folder_with(&text).good("sim host s.toml");
    for column in ["THROTTLED", "HEADROOM", "SHORT"] {
        assert!(!table.contains(column), "{column} in\n{table}");
    }
    assert!(table.contains("IDLE") && table.contains("DONE"), "{table}");
}

#[test]
fn the_json_has_the_reports_of_all_variants() {
    let text = format!("{SMALL}{VARIANTS}");
    let json = folder_with(&text).json("sim host s.toml");
    assert_eq!(json["schema"], "plimsoll.sim-host/1");
    assert_eq!(json["file"], "s.toml");
    let runs = json["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .map(|run| run["variant"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["alone", "batch", "fair"]);
    for run in runs {
        assert_eq!((&run["complete"], &run["seed"]), (&true.into(), &3.into()));
        assert_eq!(run["measured_ns"], 2_000_000_000_u64);
        let share = |name: &str| run["machine"][name].as_f64().unwrap();
        let sum = share("normal_ratio") + share("batch_ratio") + share("idle_ratio");
        assert!((sum - 1.0).abs() < 1e-9, "{run}");
        let web = &run["groups"][0];
        assert_eq!(web["name"], "web");
        assert!(
            web["bandwidth"]["nr_periods"].as_u64().unwrap() > 0,
            "{web}"
        );
        let service = &web["workloads"][0];
        assert_eq!(service["workload"], "service");
        assert!(
            service["latency"]["p99_us"].as_f64().unwrap() > 0.0,
            "{service}"
        );
    }
    // The requests of a group do not depend on the other groups.
    let requests: Vec<_> = runs
        .iter()
        .map(|run| &run["groups"][0]["workloads"][0]["requests"])
        .collect();
    assert!(
        requests.windows(2).all(|two| two[0] == two[1]),
        "{requests:?}"
    );
    assert_eq!(runs[0]["groups"].as_array().unwrap().len(), 1);
    assert_eq!(runs[0]["machine"]["batch_ratio"], 0.0);
    assert!(runs[1]["machine"]["batch_ratio"].as_f64().unwrap() > 0.5);
    assert_eq!(runs[2]["machine"]["batch_ratio"], 0.0);
}

#[test]
fn same_seed_gives_the_same_run_and_flags_override_the_file() {
    let folder = folder_with(SMALL);
    let first = folder.good("sim host s.toml --json");
    assert_eq!(first, folder.good("sim host s.toml --json --seed 3"));
    let other = folder.json("sim host s.toml --seed 4 --duration 1s");
    let run = &other["runs"][0];
    assert_eq!(
        (&run["seed"], &run["measured_ns"]),
        (&4.into(), &1_000_000_000_u64.into())
    );
    assert_ne!(first, folder.good("sim host s.toml --json --seed 4"));
}

#[test]
fn one_variant_can_be_run_alone() {
    let folder = folder_with(&format!("{SMALL}{VARIANTS}"));
    let json = folder.json("sim host s.toml --variant fair");
    assert_eq!(json["runs"].as_array().unwrap().len(), 1);
    let refusal = folder.refusal("sim host s.toml --variant unfair");
    let expected = "plimsoll: variant: `unfair` is not in s.toml; allowed: alone, batch, fair";
    assert_eq!(refusal, expected);
}

#[test]
fn a_trace_has_slices_of_each_cpu_that_do_not_overlap() {
    let folder = folder_with(&format!("{SMALL}{VARIANTS}"));
    folder.good("sim host s.toml --trace-out t.json");
    let text = fs::read_to_string(folder.path("t.json")).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    let mut used_us = BTreeMap::new();
    let mut phases = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        *phases.entry(phase.to_owned()).or_insert(0_u64) += 1;
        if phase == "X" {
            let number = |key: &str| event[key].as_f64().unwrap();
            let track = (
                event["pid"].as_u64().unwrap(),
                event["tid"].as_u64().unwrap(),
            );
            let start = number("ts");
            slices
                .entry(track)
                .or_default()
                .push((start, start + number("dur")));
            let group = event["name"].as_str().unwrap().to_owned();
            *used_us.entry((track.0, group)).or_insert(0.0) += number("dur");
        }
    }
    // Three runs with two CPUs each.
    assert_eq!(slices.len(), 6, "{:?}", slices.keys());
    for (track, slices) in &mut slices {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        for two in slices.windows(2) {
            // Microseconds with three decimals; the tolerance is the rounding
            // error.
            assert!(two[0].1 <= two[1].0 + 0.000_5, "{two:?} on {track:?}");
        }
        assert!(slices.last().unwrap().1 <= 2_200_000.001, "within the run");
    }
    // The usage of 20 % of a CPU under the quota is the same in the trace and
    // in the table.
    let web = used_us[&(1, "web".to_owned())];
    assert!((300_000.0..500_000.0).contains(&web), "{web}");
    for phase in ["M", "X", "i", "C"] {
        assert!(phases[phase] > 0, "{phases:?}");
    }
}

#[test]
fn pictures_are_drawn_in_both_formats() {
    let folder = folder_with(&format!("{SMALL}{VARIANTS}"));
    folder.good("sim host s.toml --plot p.svg");
    let svg = fs::read_to_string(folder.path("p.svg")).unwrap();
    for part in ["<svg", "alone", "fair", "p99.9", "idle"] {
        assert!(svg.contains(part), "{part}");
    }
    let refusal = folder.refusal("sim host s.toml --plot p.gif");
    assert!(
        refusal.contains("p.gif") && refusal.contains(".svg or .png"),
        "{refusal}"
    );
    let refusal = folder.refusal("sim host s.toml --plot no/such/p.svg");
    assert!(refusal.contains("no/such/p.svg"), "{refusal}");
}

#[test]
fn files_are_complete_even_if_standard_output_is_closed() {
    let folder = folder_with(SMALL);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for words in [
        "sim host s.toml --trace-out t.json --plot p.svg",
        "sim interference --periods 1000 --plot p.svg",
    ] {
        let output = folder.command(words).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let svg = fs::read_to_string(folder.path("p.svg")).unwrap();
        assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
        fs::remove_file(folder.path("p.svg")).unwrap();
    }
    let trace = fs::read_to_string(folder.path("t.json")).unwrap();
    serde_json::from_str::<Value>(&trace).unwrap();
}

#[test]
fn conflicting_output_files_are_refused() {
    let folder = folder_with(SMALL);
    for words in [
        "sim host s.toml --trace-out ./s.toml",
        "sim host s.toml --trace-out ./p.svg --plot p.svg",
    ] {
        let refusal = folder.refusal(words);
        assert!(refusal.contains("allowed: a file of its own"), "{refusal}");
    }
    assert_eq!(fs::read_to_string(folder.path("s.toml")).unwrap(), SMALL);
    assert!(!folder.path("p.svg").exists());
}

#[test]
fn bad_scenarios_are_refused_in_one_line_with_the_position() {
    for (text, words) in [
        (
            SMALL.replace("rate = 300", "rate = -3"),
            "s.toml:18:8: rate: '-3' is not allowed: a number",
        ),
        (
            SMALL.replace("cpus = 2", "cpus = 0"),
            "s.toml:8:8: cpus: `0` is not allowed; allowed: 1 to",
        ),
        (
            SMALL.replace("rate", "raet"),
            "s.toml:18:1: `raet` is no key of a workload (perhaps `rate`?)",
        ),
        (
            SMALL.replace("exp:1ms", "exp:0s"),
            "s.toml:19:11: service: '0s' is not allowed",
        ),
        (
            format!("{SMALL}{VARIANTS}")
                .replace("\"none\"", "\"20%\"\ngroup.web.tolerance = \"2s/5s\""),
            "s.toml:39:23: tolerance: `2s/5s` has a runtime out of range; allowed: ",
        ),
        (
            format!("{SMALL}{VARIANTS}").replace("[\"batch\"]", "[\"btach\"]"),
            "`btach` is not a group",
        ),
    ] {
        for command in ["sim host s.toml", "bench s.toml", "bench s.toml --real"] {
            let refusal = folder_with(&text).refusal(command);
            assert!(refusal.contains(words), "{command}: {refusal}");
        }
    }
    let folder = folder_with(SMALL);
    assert!(
        folder
            .refusal("sim host other.toml")
            .contains("other.toml: cannot be read: No such")
    );
    assert!(
        folder
            .refusal("sim host s.toml --duration 0s")
            .contains("duration")
    );
    assert!(
        folder
            .refusal("sim host s.toml --duration 5")
            .contains("--duration")
    );
    assert!(
        folder
            .refusal("sim host s.toml --trace-out no/t.json")
            .contains("trace-out")
    );
}

#[test]
fn interrupted_run_prints_the_figures_until_then() {
    // Three hours of this scenario take far longer than the test waits.
    let text = SMALL
        .replace("rate = 300", "rate = 50000")
        .replace("exp:1ms", "exp:5us");
    let text = text
        .replace("quota = \"20ms/100ms\"", "")
        .replace("burst = \"10ms\"", "");
    let folder = folder_with(&text);
    let mut command = folder.command("sim host s.toml --json --duration 3h --trace-out t.json");
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The trace file shows that the run has started.
    let begun = Instant::now();
    while fs::metadata(folder.path("t.json")).map_or(0, |file| file.len()) < 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &json["runs"][0];
    assert_eq!(run["complete"], false);
    let measured_ns = run["measured_ns"].as_u64().unwrap();
    assert!(
        measured_ns > 0 && measured_ns < 3 * 3_600 * 1_000_000_000,
        "{measured_ns}"
    );
    let trace = fs::read_to_string(folder.path("t.json")).unwrap();
    serde_json::from_str::<Value>(&trace).unwrap();
}

#[test]
fn progress_is_shown_if_many_short_variants_take_long() {
    let mut text = SMALL.to_owned();
    // Each takes a moment; all of them take far longer than the test waits.
    for n in 0..2_000 {
        text += &format!(
            "[[variant]]\nname = 'v{n}'\nduration = '{}ms'\n",
            60_000 + n
        );
    }
    let folder = folder_with(&text);
    for command in ["sim host s.toml", "bench s.toml"] {
        let errors = fs::File::create(folder.path("errors")).unwrap();
        let mut child = folder
            .command(command)
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .unwrap();
        let told = || fs::read_to_string(folder.path("errors")).unwrap();
        while !told().contains("simulated (") {
            assert!(child.try_wait().unwrap().is_none(), "{command}: {}", told());
            thread::sleep(Duration::from_millis(5));
        }
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn benchmark_without_real_has_only_simulated_figures() {
    let folder = folder_with(SMALL);
    let json = folder.json("bench s.toml");
    assert_eq!(
        (&json["schema"], &json["real"]),
        (&"plimsoll.bench/1".into(), &false.into())
    );
    let run = &json["runs"][0];
    assert_eq!(
        (&run["complete"], &run["real_seconds"]),
        (&true.into(), &Value::Null)
    );
    let figures = run["groups"][0]["figures"].as_array().unwrap();
    let of = |name: &str| {
        figures
            .iter()
            .find(|figure| figure["figure"] == name)
            .unwrap()
    };
    assert!(of("CPUs used")["model"].as_f64().unwrap() > 0.0);
    assert!(of("throttled periods")["model"].as_f64().unwrap() > 0.0);
    assert_eq!(of("p99")["real"], Value::Null);
    let table = folder.good("bench s.toml");
    assert!(
        table.contains("DIFFERENCE") && table.contains("throttled periods"),
        "{table}"
    );
}

#[test]
fn enforcer_is_refused_without_real() {
    let folder = folder_with(SMALL);
    let refusal = folder.refusal("bench s.toml --enforcer cgroup");
    assert!(
        refusal.contains("--enforcer") && refusal.contains("--real"),
        "{refusal}"
    );
    // The environment variable may be set for other commands and is ignored.
    let mut command = folder.command("bench s.toml");
    let output = command.env("PLIMSOLL_ENFORCER", "cgroup").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn scenario_for_another_number_of_cpus_is_refused() {
    let text = SMALL.replace("cpus = 2", "cpus = 999");
    let refusal = folder_with(&text).refusal("bench s.toml --real");
    let expected = "s.toml:8:8: cpus: `999` does not match this machine; allowed with --real: ";
    assert!(refusal.contains(expected), "{refusal}");
}
