//! Tests of screens and keys.

use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::Scene;
use crate::common::binary;
use crate::rig::{GROUPS, ScriptedDaemon, need_tmux};

/// Names in the rows of the table.
fn names(screen: &str) -> Vec<String> {
    let rows = screen
        .lines()
        .skip_while(|line| !line.starts_with("  GROUP"));
    let name = |line: &str| {
        line.trim_start_matches('>')
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    rows.skip(1)
        .map_while(name)
        .filter(|name| name != "q")
        .collect()
}

#[test]
fn keys_sort_filter_and_open_details() {
    need_tmux();
    let scene = Scene::new(&[]);
    let terminal = &scene.terminal;
    let sorted = |what: &str, expected: [&str; 3]| {
        terminal.until(what, |screen| names(screen) == expected);
    };
    let web = "….slice/web.service";
    scene.top("--sort group");
    sorted("by group", [web, "encode", "tenant"]);
    terminal.press(&["t"]);
    sorted("by throttling", ["tenant", web, "encode"]);
    terminal.press(&["r"]);
    sorted("reverse the order", [web, "encode", "tenant"]);
    terminal.press(&["r", "<"]);
    sorted("by CPU", ["encode", web, "tenant"]);

    terminal.press(&["Down", "Down", "Up"]);
    terminal.until_shown("> ….slice");
    terminal.press(&["Home", "Enter"]);
    let screen = terminal.until("details", |screen| {
        screen.contains("encode - last") && screen.contains("enforced    nice=10: setpriority")
    });
    assert!(
        screen.contains("task        4711 ffmpeg: rate 79.1%, background"),
        "{screen}"
    );
    assert!(screen.contains("tasks       1 of 5 tasks"), "{screen}");
    assert!(screen.contains("cgroup      /here/encode"), "{screen}");
    assert!(
        screen.contains("from        the configuration file"),
        "{screen}"
    );
    // 80 % of a CPU, for some time.
    let curve = terminal.until("a curve", |screen| {
        let line = screen
            .lines()
            .find(|line| line.starts_with("most "))
            .unwrap_or("");
        line.contains("80.0%") && line.ends_with("███")
    });
    assert!(curve.contains("waiting      320.0%"), "{curve}");
    terminal.press(&["Escape"]);
    terminal.until_shown("GROUP");

    terminal.press(&["/", "W", "e", "b"]);
    terminal.until("the filter", |screen| {
        names(screen) == [web] && screen.contains("filter: Web_")
    });
    terminal.press(&["Enter"]);
    terminal.until_shown("filter: Web (1 shown, Esc clears)");
    terminal.press(&["Escape"]);
    terminal.until("all", |screen| names(screen).len() == 3);
    terminal.press(&["?"]);
    terminal.until_shown("sort by GROUP");
    terminal.press(&["?", "p"]);
    terminal.until_shown(" PAUSED");
}

fn once(runtime: &TempDir, arguments: &[&str]) -> String {
    let mut command = Command::new(binary());
    command
        .args(["top", "--once", "--interval", "300ms"])
        .args(arguments);
    command.env("PLIMSOLL_RUNTIME_DIR", runtime.path());
    command.stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn once_prints_a_table_or_a_document() {
    let runtime = tempfile::tempdir().unwrap();
    let _daemon = ScriptedDaemon::start(runtime.path(), GROUPS.to_vec());
    let text = once(&runtime, &["--sort", "throttled"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "2 CPUs: normal 30.0%, batch 40.0%, idle 30.0%");
    assert!(
        lines[1].ends_with("batch work stops at 70.0% of all CPUs"),
        "{text}"
    );
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(lines[3])[..3], ["GROUP", "CLASS", "CPU%"]);
    assert_eq!(
        words(lines[4]),
        [
            "tenant",
            "normal",
            "0.0",
            "100.0",
            "0.0",
            "0.0",
            "4",
            "quota=200ms/100ms",
            "burst=100ms"
        ]
    );
    assert_eq!(lines.len(), 7, "{text}");

    let document: Value = serde_json::from_str(&once(&runtime, &["--json"])).unwrap();
    assert_eq!(document["schema"], "plimsoll.top/1");
    assert_eq!(document["asked"], "daemon");
    assert!(document["interval_usec"].as_u64().unwrap() >= 300_000);
    let near = |value: &Value, ppm: u64| value.as_u64().unwrap().abs_diff(ppm) < 100;
    let machine = &document["machine"];
    assert_eq!(machine["nr_cpus"], 2);
    for (name, ppm) in [
        ("normal_ppm", 300_000),
        ("batch_ppm", 400_000),
        ("idle_ppm", 300_000),
    ] {
        assert!(near(&machine[name], ppm), "{machine}");
    }
    assert_eq!(document["headroom"]["headroom_ppm"], 300_000);
    let group = &document["groups"][0];
    assert_eq!(
        (&group["name"], &group["class"]),
        (&"encode".into(), &"batch".into())
    );
    assert!(
        near(&group["cpu_ppm"], 800_000) && near(&group["wait_ppm"], 3_200_000),
        "{group}"
    );
    assert_eq!(group["throttled_ppm"], 0);
    assert_eq!(group["processes"], 4);
}
