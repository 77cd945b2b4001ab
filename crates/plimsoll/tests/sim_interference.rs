//! Tests of `sim interference` through the command line. Need no privileges and
//! change nothing.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use common::Finished;

/// Prepares the experiment, as a user would run it.
fn sim(words: &str) -> Command {
    let mut command = Command::new(common::binary());
    command
        .args(["sim", "interference"])
        .args(words.split_whitespace())
        .env_remove("PLIMSOLL_ENFORCER")
        .stdin(Stdio::null());
    command
}

fn good(words: &str) -> Finished {
    Finished::from(sim(words).output().unwrap()).good()
}

fn json(words: &str) -> Value {
    good(&format!("{words} --json")).json()
}

const SMALL: &str = "--mean 70% --groups 5 --burst 0%,100%,unlimited --periods 50000";

#[test]
fn the_table_has_a_row_for_each_cell() {
    let table = good(SMALL).stdout;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("exponential"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{table}");
    let bursts: Vec<&str> = rows.iter().map(|row| row[3]).collect();
    assert_eq!(bursts, ["0%", "100%", "unlimited"]);
    assert!(
        rows[0].join(" ").contains("1.0000 ± 0.0000 none seen"),
        "{table}"
    );
    assert!(rows[1].join(" ").contains(" % "), "{table}");
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{table}");
}

#[test]
fn the_json_has_every_figure() {
    let document = json(&format!("{SMALL} --seed 9"));
    assert_eq!(document["schema"], "plimsoll.sim-interference/1");
    assert_eq!(
        (&document["seed"], &document["complete"]),
        (&9.into(), &true.into())
    );
    let cell = &document["cells"][2];
    assert_eq!(cell["burst"], "unlimited");
    assert_eq!(cell["mean"], 0.7);
    for (figure, low, high) in [
        ("wcet", 1.38, 1.48),
        ("missed", 0.21, 0.235),
        ("utilisation", 0.69, 0.71),
    ] {
        let mean = cell[figure]["mean"].as_f64().unwrap();
        assert!((low..high).contains(&mean), "{cell}");
        assert!(cell[figure]["half_width"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let counts = cell["wcet_counts"].as_array().unwrap();
    let counted: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted + cell["longer"].as_u64().unwrap(), 50_000);
}

#[test]
fn published_table_is_compared_with_the_simulation() {
    let document = json("--published --periods 50000");
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 48);
    assert_eq!(cells[0]["published"]["agrees"], true);
    assert_eq!(cells[11]["published"]["agrees"], false);
    assert_eq!(cells[11]["published"]["wcet"], 3.7937);
    let table = good("--published --periods 50000").stdout;
    assert!(table.contains(" cells differ from the source"), "{table}");
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{table}");
}

#[test]
fn groups_may_differ() {
    let words = "--group quota=50%,mean=60%,burst=100% \
                 --group quota=10%,u=80%,burst=unlimited,count=4 --periods 20000";
    let document = json(words);
    let cell = &document["cells"][0];
    assert_eq!((&cell["groups"], &cell["burst"]), (&5.into(), &Value::Null));
    let members = cell["members"].as_array().unwrap();
    assert_eq!(
        (members.len(), &members[4]["burst"]),
        (5, &"unlimited".into())
    );
    // 0.5 · 0.6 + 4 · 0.1 · 0.8 of 0.9.
    assert!((cell["mean"].as_f64().unwrap() - 0.62 / 0.9).abs() < 1e-9);
    // All quotas together are 90 % of the machine, of which this is the share.
    let utilisation = cell["utilisation"]["mean"].as_f64().unwrap();
    assert!((utilisation - 0.62).abs() < 0.015, "{utilisation}");
    let table = good(words).stdout;
    assert!(
        table.contains("QUOTA") && table.contains("mixed"),
        "{table}"
    );
}

#[test]
fn picture_has_a_panel_with_its_scales() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("p.svg");
    let words = "--mean 50%,80% --groups 4 --periods 20000 --plot";
    good(&format!("{words} {}", svg.display()));
    let svg = fs::read_to_string(svg).unwrap();
    for part in [
        "exponential, 4 groups",
        "unlimited",
        "log scale",
        "utilisation",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

#[test]
fn bad_input_is_refused_in_one_line_with_the_allowed_values() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.csv"), "cpu\n0.4\n\n0.3\n").unwrap();
    let refusal = |words: &str| {
        let output = sim(words).current_dir(folder.path()).output().unwrap();
        let finished = Finished::from(output);
        assert_eq!(finished.stdout, "", "{words}");
        finished.refusal().to_owned()
    };
    for (words, start) in [
        ("--samples bad.csv", "bad.csv:3:1: cpu: `` is not a number"),
        ("--distribution empirical", "samples: "),
        ("--mean 0%", "mean: `0%`"),
        ("--mean 100%", "mean: `100%`"),
        ("--burst 100001%", "burst: `100001%`"),
        ("--correlation 1.5", "correlation: `1.5`"),
        ("--correlation -0.1", "correlation: `-0.1`"),
        ("--correlation NaN", "correlation: `NaN`"),
        ("--periods 999", "periods: `999`"),
        ("--periods 1000000000001", "periods: `1000000000001`"),
        ("--distribution pareto:1", "alpha: `1`"),
        ("--distribution lognormal:5.1", "sigma: `5.1`"),
        ("--group quota=0.01%,mean=50%", "quota: `0.01%`"),
        ("--group quota=60%,mean=50%,count=2", "quota: `120%`"),
        ("--group quota=60%", "mean: "),
        ("--plot p.gif", "plot: `p.gif`"),
    ] {
        let refusal = refusal(words);
        let start = format!("plimsoll: {start}");
        assert!(refusal.starts_with(&start), "{words}: {refusal}");
        assert!(refusal.contains("allowed: "), "{refusal}");
    }
    for (words, part) in [
        ("--mean 70", "mean: `70` has no unit"),
        ("--mean -5%", "mean: `-5%` is negative"),
        ("--groups 0", "groups: `0` is out of range; allowed: 1 to"),
        (
            "--groups 1001",
            "groups: `1001` is out of range; allowed: 1 to",
        ),
        ("--group quota=10% --mean 30%", "--mean"),
        ("--published --mean 30%", "--mean"),
    ] {
        let refusal = refusal(words);
        assert!(refusal.contains(part), "{words}: {refusal}");
    }
}

#[test]
fn signal_prints_the_figures_until_then() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut child = sim("--periods 1000000000000 --mean 70% --groups 5 --json")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        // The first progress line shows that the run has started.
        let mut said = String::new();
        let errors = child.stderr.take().unwrap();
        BufReader::new(errors).read_line(&mut said).unwrap();
        assert!(said.contains("3 cells simulated to "), "{said}");
        kill(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["complete"], false);
        let cells = document["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 3);
        for cell in cells {
            let periods = cell["periods"].as_u64().unwrap();
            assert!((1..1_000_000_000_000).contains(&periods), "{cell}");
            assert!(cell["wcet"]["mean"].as_f64().unwrap() >= 1.0, "{cell}");
        }
    }
}
