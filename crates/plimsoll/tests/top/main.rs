//! `top`, looked at through the screen of a terminal.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod rig;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Host, binary, is_alive, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rig::{Doing, GROUPS, SOON, ScriptedDaemon, Terminal, is_skipped};
use serde_json::Value;
use tempfile::TempDir;

/// The bar of the scripted daemon: 30 % normal, 40 % batch, the line at 70 %.
fn bar(width: usize) -> String {
    let part = |sign: &str, columns: usize| sign.repeat(columns);
    let (normal, both) = (width * 3 / 10, width * 7 / 10);
    part("█", normal) + &part("▒", both - normal) + "┃" + &part("·", width - both - 1)
}

/// A scripted daemon, and a terminal whose Plimsoll finds it.
struct Scene {
    terminal: Terminal,
    daemon: Option<ScriptedDaemon>,
    runtime: TempDir,
}

impl Scene {
    fn new(variables: &[(&str, &str)]) -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let daemon = ScriptedDaemon::start(runtime.path(), GROUPS.to_vec());
        let terminal = Terminal::new(variables, |command| {
            command.env("PLIMSOLL_RUNTIME_DIR", runtime.path());
        });
        Self {
            terminal,
            daemon: Some(daemon),
            runtime,
        }
    }

    /// Starts top and waits until there are rates.
    fn top(&self, arguments: &str) -> String {
        let line = format!("plimsoll top --interval 200ms {arguments}");
        self.terminal.type_line(&line);
        self.terminal.until("rates", |screen| {
            screen.contains("plimsoll top - ") && screen.contains("80.0")
        })
    }

    /// Whether the shell has its terminal back as it was.
    fn assert_given_back(&self, status: &str) {
        let terminal = &self.terminal;
        terminal.until("the screen of the shell", |screen| {
            screen.contains("before-top") && !screen.contains("plimsoll top - ")
        });
        terminal.type_line("echo status=$?");
        terminal.until_shown(&format!("status={status}"));
        terminal.type_line("stty -a");
        let screen = terminal.until_shown(" icanon");
        let words: Vec<&str> = screen.split_whitespace().collect();
        for mode in ["icanon", "isig", "echo", "opost", "icrnl"] {
            assert!(words.contains(&mode), "{mode}:\n{screen}");
        }
    }
}

/// The rows of the table: the first words.
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
fn the_machine_with_its_headroom_line_and_the_groups() {
    if is_skipped() {
        return;
    }
    let scene = Scene::new(&[]);
    let screen = scene.top("");
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[0], "plimsoll top - 3 groups, 2 CPUs, daemon up 3h12m");
    assert_eq!(lines[1], bar(80), "{screen}");
    assert_eq!(
        lines[2],
        "█ normal 30.0%  ▒ batch 40.0%  · idle 30.0%  ┃ side work stops at 70.0%"
    );
    assert_eq!(
        lines[3],
        "headroom 30%: side work 40.0% of 40.0% allowed; short by 0.000 s so far"
    );
    assert_eq!(
        lines[4],
        "  GROUP               CLASS    CPU%▾   THR%  BURST%   WAIT%   PROCS KNOBS"
    );
    assert_eq!(
        lines[5],
        "> encode              batch     80.0    0.0     0.0   320.0       4 nice=10"
    );
    assert_eq!(
        lines[6],
        "  ….slice/web.service normal    60.0    0.0     0.0     0.0       4 headroom=30%"
    );
    let foot = lines.iter().rev().find(|line| !line.is_empty()).unwrap();
    assert_eq!(
        *foot,
        "q quit  ? keys  Enter details  < > sort  r reverse  / filter  p pause"
    );
}

#[test]
fn keys_sort_filter_and_open_details() {
    if is_skipped() {
        return;
    }
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
    sorted("the other way round", [web, "encode", "tenant"]);
    terminal.press(&["r", "<"]);
    sorted("by CPU", ["encode", web, "tenant"]);

    terminal.press(&["Down", "Down", "Up"]);
    terminal.until_shown("> ….slice");
    terminal.press(&["Home", "Enter"]);
    let screen = terminal.until("details", |screen| {
        screen.contains("encode - last") && screen.contains("enforced    nice=10: setpriority")
    });
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

#[test]
fn quitting_gives_the_screen_and_the_shell_back() {
    if is_skipped() {
        return;
    }
    let scene = Scene::new(&[]);
    let terminal = &scene.terminal;
    terminal.type_line("echo before-top");
    for (key, status) in [("q", "0"), ("C-c", "0")] {
        scene.top("");
        assert!(!terminal.screen().contains("before-top"));
        terminal.press(&[key]);
        scene.assert_given_back(status);
        terminal.type_line("clear; echo before-top");
    }
}

#[test]
fn a_signal_gives_the_screen_back_and_ends_top() {
    if is_skipped() {
        return;
    }
    let scene = Scene::new(&[]);
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        scene
            .terminal
            .type_line("clear; ulimit -c 0; echo before-top");
        scene.top("");
        kill(Pid::from_raw(scene.terminal.child()), signal).unwrap();
        scene.assert_given_back(&(128 + signal as i32).to_string());
    }
}

#[test]
fn stopping_gives_the_screen_back_until_it_goes_on() {
    if is_skipped() {
        return;
    }
    let scene = Scene::new(&[]);
    let terminal = &scene.terminal;
    terminal.type_line("echo before-top");
    scene.top("");
    terminal.press(&["C-z"]);
    terminal.until("the screen of the shell", |screen| {
        screen.contains("before-top") && !screen.contains("plimsoll top - ")
    });
    terminal.type_line("stty -a");
    terminal.until_shown(" icanon");
    terminal.type_line("fg");
    terminal.until("top again", |screen| screen.contains(&bar(80)));
    terminal.press(&["q"]);
    scene.assert_given_back("0");
}

/// CPU time of a process and its waited-for children, in ticks of 10 ms.
fn cpu_ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_closed_terminal_ends_top_with_and_without_a_signal() {
    if is_skipped() {
        return;
    }
    // In a session of its own it gets no signal when the terminal goes. It would
    // notice when it draws the next time, but that is not due for a minute.
    for prefix in ["", "setsid -w "] {
        let scene = Scene::new(&[]);
        let line = format!("{prefix}plimsoll top --interval 60s");
        scene.terminal.type_line(&line);
        scene.terminal.until_shown("plimsoll top - 3 groups");
        let mut pid = scene.terminal.child();
        if !prefix.is_empty() {
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(children).unwrap();
            pid = children
                .split_whitespace()
                .next()
                .map_or(pid, |child| child.parse().unwrap());
        }
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(name, "plimsoll\n");
        scene.terminal.close();
        wait_until("it has ended", SOON, || !is_alive(pid));
    }
}

#[test]
fn any_size_from_40_by_10_on_will_do() {
    if is_skipped() {
        return;
    }
    let scene = Scene::new(&[]);
    let terminal = &scene.terminal;
    scene.top("");
    terminal.resize(40, 10);
    let screen = terminal.until_shown(&format!("\n{}\n", bar(40)));
    assert!(
        screen.contains("█ 30.0% ▒ 40.0% · 30.0% ┃ 70.0%"),
        "{screen}"
    );
    assert!(
        screen.contains("> encode           batch     80.0    0.0"),
        "{screen}"
    );
    terminal.resize(39, 10);
    terminal.until("what it needs", |screen| screen.trim() == "needs 40 x 10");
    terminal.resize(120, 40);
    terminal.until_shown(&bar(120));
}

#[test]
fn a_daemon_that_goes_away_is_waited_for() {
    if is_skipped() {
        return;
    }
    let mut scene = Scene::new(&[]);
    scene.top("");
    drop(scene.daemon.take());
    let screen = scene.terminal.until_shown("no answer; trying again");
    assert!(
        screen.contains(&bar(80)),
        "what was seen last stays:\n{screen}"
    );
    scene.daemon = Some(ScriptedDaemon::start(
        scene.runtime.path(),
        GROUPS[..2].to_vec(),
    ));
    scene.terminal.until("the daemon is back", |screen| {
        screen.contains("2 groups") && !screen.contains("no answer")
    });
}

#[test]
fn without_colours_and_without_utf_8_it_does_without() {
    if is_skipped() {
        return;
    }
    let is_coloured = |screen: &str| {
        let codes = screen.split("\u{1b}[").skip(1);
        let numbers = codes.flat_map(|code| code.split('m').next().unwrap_or("").split(';'));
        numbers
            .filter_map(|number| number.parse::<u32>().ok())
            .any(|number| matches!(number, 30..=38 | 40..=48 | 90..=107))
    };
    let coloured = Scene::new(&[]);
    coloured.top("");
    let screen = coloured.terminal.colours();
    assert!(is_coloured(&screen), "{screen:?}");
    let plain = Scene::new(&[("NO_COLOR", "1"), ("LANG", "C")]);
    let screen = plain.top("");
    assert!(
        !is_coloured(&plain.terminal.colours()),
        "{:?}",
        plain.terminal.colours()
    );
    assert!(screen.is_ascii(), "{screen}");
    let bar = bar(80)
        .replace('█', "#")
        .replace('▒', "=")
        .replace('┃', "|")
        .replace('·', ".");
    assert!(screen.contains(&bar), "{screen}");
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
        lines[1].ends_with("side work stops at 70.0% of all CPUs"),
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

#[test]
fn a_thousand_groups_cost_little() {
    if is_skipped() {
        return;
    }
    let names: Vec<&'static str> = (0..1_000)
        .map(|number| &*Box::leak(format!("/tenants.slice/tenant-{number:04}").into_boxed_str()))
        .collect();
    let groups = names.iter().map(|name| Doing { name, ..GROUPS[1] });
    let mut scene = Scene::new(&[]);
    drop(scene.daemon.take());
    scene.daemon = Some(ScriptedDaemon::start(
        scene.runtime.path(),
        groups.collect(),
    ));
    scene.terminal.type_line("plimsoll top --interval 1s");
    scene.terminal.until_shown("80.0");
    let pid = scene.terminal.child();
    let before = cpu_ticks(pid);
    let time = Duration::from_secs(5);
    thread::sleep(time);
    let ticks = cpu_ticks(pid) - before;
    println!("top with 1,000 groups: {ticks} ticks of 10 ms in {time:?}");
    // Without optimisation the JSON of a state alone takes 60 ms.
    let most = if cfg!(debug_assertions) { 150 } else { 50 };
    assert!(ticks <= most, "{ticks} ticks of 10 ms in {time:?}");
    scene.terminal.press(&["g", "End"]);
    scene.terminal.until_shown("tenant-0999");
}

#[test]
fn without_a_daemon_it_shows_the_runs() {
    if is_skipped() {
        return;
    }
    let host = Host::shared();
    let run = host.start_load(
        "--class batch --cap 40% --name crunch",
        "burn --threads 1 --duration 300s",
    );
    wait_until("it runs", SOON, || {
        host.run(["show"]).stdout.contains("crunch")
    });
    let terminal = Terminal::new(&[], |command| host.confine(command));
    terminal.type_line("plimsoll top --interval 1s");
    terminal.until("its rate", |screen| {
        let row = screen
            .lines()
            .find(|line| line.starts_with("> crunch"))
            .unwrap_or("");
        let mut words = row.split_whitespace().skip(3);
        let rate = words.next().and_then(|word| word.parse::<f64>().ok());
        screen.contains("1 group, ")
            && screen.contains("no daemon")
            && row.contains("cap=40%")
            && rate.is_some_and(|rate| (25.0..45.0).contains(&rate))
    });
    terminal.press(&["Enter"]);
    let screen = terminal.until("its plan", |screen| {
        screen.contains("from        the command line") && screen.contains("enforced    cap=40%")
    });
    assert!(screen.contains("runs        "), "{screen}");
    terminal.press(&["q"]);
    run.stop();
    terminal.type_line("plimsoll top --once");
    terminal.until_shown("no groups");
}
