//! Promises of `run` to the command and to its caller.

use std::fs::{self, File};
use std::process::Command;

use crate::common::{Host, wait_until};
use nix::sys::signal::Signal;

fn sh(script: &str) -> [&str; 5] {
    ["run", "--", "sh", "-c", script]
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let host = Host::new();
    for code in [0, 1, 7, 124, 125, 255] {
        assert_eq!(host.run(sh(&format!("exit {code}"))).code(), code);
    }
    host.assert_clean();
}

#[test]
fn exit_code_is_127_for_a_missing_command_and_126_if_it_cannot_run() {
    let host = Host::new();
    let missing = host.run(["run", "--cap", "20%", "--", "no-such\x1b[31m"]);
    assert_eq!(missing.code(), 127);
    let told = "no-such\\x1b[31m: not found";
    assert!(missing.one_line().contains(told), "{missing:?}");
    let empty = host.run(["run", "--", ""]);
    assert_eq!(empty.code(), 127);
    assert!(empty.one_line().contains("'': not found"), "{empty:?}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data");
    fs::write(&file, "no program").unwrap();
    for path in [folder.path(), &file] {
        let path = path.to_str().unwrap();
        let refused = host.run(["run", "--", path]);
        assert_eq!(refused.code(), 126, "{refused:?}");
        assert!(refused.one_line().contains(path));
    }
    host.assert_clean();
}

#[test]
fn streams_folder_environment_and_arguments_are_the_commands_own() {
    let host = Host::new();
    let script = r#"cat; pwd; env | grep -v -e '^_=' -e '^SHLVL=' | sort; printf '<%s>' "$@"; echo oops >&2"#;
    let words = [
        "sh", "-c", script, "sh", "--cap", "", "a b", "\u{e4}\n", "--",
    ];
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    fs::write(&input, "one\ntwo\0three").unwrap();
    let outcome = |mut command: Command| {
        host.confine(&mut command);
        command
            .current_dir(folder.path())
            .env("LC_SOMETHING", "x y")
            .stdin(File::open(&input).unwrap());
        host.spawn(command).finish().good()
    };
    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]);
    let expected = outcome(plain);
    let knobs = ["run", "--cap", "50%", "--nice", "3", "--"];
    let found = outcome(host.plimsoll(knobs.into_iter().chain(words)));
    assert_eq!(found.stdout, expected.stdout);
    assert_eq!(found.stderr, "oops\n");
    assert!(found.stdout.starts_with("one\ntwo\0three"));
    host.assert_clean();
}

#[test]
fn signals_are_passed_on_once() {
    let host = Host::new();
    let script = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo hup' HUP; \
                  trap 'echo int' INT; trap 'echo term; exit 3' TERM; echo ready; \
                  while :; do sleep 0.02; done";
    let running = host.start(sh(script));
    wait_until("it is ready", || running.stdout().contains("ready"));
    for (signal, word) in [
        (Signal::SIGUSR1, "usr1"),
        (Signal::SIGUSR2, "usr2"),
        (Signal::SIGHUP, "hup"),
        (Signal::SIGINT, "int"),
    ] {
        running.send(signal);
        wait_until(word, || running.stdout().contains(word));
    }
    running.send(Signal::SIGTERM);
    let finished = running.finish();
    assert_eq!(finished.code(), 3);
    assert_eq!(finished.stdout, "ready\nusr1\nusr2\nhup\nint\nterm\n");
    host.assert_clean();
}

#[test]
fn a_signal_that_would_end_a_process_ends_the_command_and_not_run() {
    let host = Host::new();
    let knobs = [
        "--cap 20%",
        "--class batch --headroom 30%",
        "--soft-cap 0%",
        "--cap 30% --per-task",
    ];
    let signals = [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPIPE,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGABRT,
        libc::SIGRTMIN(),
        libc::SIGRTMAX(),
    ];
    for (signal, knobs) in signals.into_iter().zip(knobs.iter().cycle()) {
        let command = sh("echo ready; exec sleep 600");
        let words = command[..1].iter().copied().chain(knobs.split(' '));
        let running = host.start(words.chain(command[1..].iter().copied()));
        wait_until("it is ready", || running.stdout().contains("ready"));
        // SAFETY: takes integers only.
        assert_eq!(unsafe { libc::kill(running.pid(), signal) }, 0);
        let finished = running.finish();
        assert_eq!(finished.code(), 128 + signal, "{signal}: {finished:?}");
        host.assert_clean();
    }
}

#[test]
fn statistics_go_to_standard_error_and_parse_as_json() {
    let host = Host::new();
    let words = crate::common::run_load(
        "--stats --json --quota 50ms/100ms --burst 10ms --cap 40%",
        "storm --processes 1 --cpu-each 100ms",
    );
    let finished = host.start(words).finish().good();
    assert!(!finished.stdout.contains("plimsoll.run"), "{finished:?}");
    let stats = finished.stats();
    assert_eq!(stats["schema"], "plimsoll.run/1");
    let used = stats["statistics"]["usage_usec"].as_u64().unwrap();
    assert!(used >= 100_000, "{used}");
    for limit in ["quota", "cap"] {
        let periods = stats["statistics"][limit]["nr_periods"].as_u64();
        assert!(periods.unwrap() >= 1, "{limit}: {stats}");
    }
    let plain = host.run(["run", "--stats", "--", "true"]).good();
    assert!(plain.stderr.contains("cpu time"), "{plain:?}");
    assert_eq!(plain.stdout, "");
    host.assert_clean();
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    let host = Host::new();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ran");
    let path = trace.to_str().unwrap();
    let knobs = "run --dry-run --class batch --headroom 30% --quota 20ms/100ms --cap 25%";
    let words = knobs.split(' ').chain(["--", "touch", path]);
    let plan = host.run(words).good();
    for knob in ["class", "headroom", "quota", "cap", "ENFORCED BY"] {
        assert!(plan.stdout.contains(knob), "{}", plan.stdout);
    }
    let document = host.run(["run", "--dry-run", "--json", "--cap", "25%", "--", "true"]);
    let item = &document.good().json()["plan"][0];
    assert_eq!(item["knob"], "cap");
    assert_eq!(item["value"], "25%");
    assert!(!trace.exists());
    host.assert_clean();
}

#[test]
fn best_effort_continues_without_unavailable_knobs_and_reports_them() {
    let host = Host::new();
    let words = |knobs: &str| {
        let line = format!("run --name best {knobs} -- cat /proc/self/cgroup");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let limited = "--class batch --cpu-limit 80%";
    let refused = host.run(words(limited));
    let line = refused.refusal();
    assert!(
        line.contains("cpu-limit") && line.contains("--best-effort"),
        "{line}"
    );
    host.assert_clean();
    let done = host.run(words(&format!("{limited} --best-effort"))).good();
    assert!(
        done.one_line().contains("cpu-limit 80%: not enforced"),
        "{done:?}"
    );
    assert!(done.stdout.contains("plimsoll-batch/best"), "{done:?}");
    // A burst above the quota is cut to it.
    let cut = host
        .run("run --best-effort --stats --quota 10ms/100ms --burst 50ms -- true".split(' '))
        .good();
    assert!(cut.stderr.contains("burst 50ms: not enforced"), "{cut:?}");
    host.assert_clean();
}

#[test]
fn the_command_is_in_its_group_and_limited_from_its_first_instruction() {
    let host = Host::new();
    let base = host.base_path();
    for (knobs, expected) in [
        ("--name g", "plimsoll/g"),
        ("--name g --cap 50%", "plimsoll/g"),
        (
            "--name g --quota 50ms/100ms --cap 30%",
            "plimsoll/g/quota/cap",
        ),
        (
            "--name g --quota 50ms/100ms --cap 80%",
            "plimsoll/g/cap/quota",
        ),
        (
            "--name g --class batch --headroom 30%",
            "plimsoll-batch/g/work",
        ),
        ("--name g --soft-cap 50%", "plimsoll-soft-g"),
    ] {
        let words = format!("run {knobs} -- cat /proc/self/cgroup");
        let finished = host.run(words.split(' ')).good();
        let places: Vec<&str> = finished
            .stdout
            .lines()
            .filter(|line| line.ends_with(&format!("{base}/{expected}")))
            .collect();
        let hierarchies = host.base().folders().len();
        assert_eq!(places.len(), hierarchies, "{knobs}: {}", finished.stdout);
    }
    let (file, quota) = match host.is_v2() {
        true => ("cpu.max", "40000 100000\n"),
        false => ("cpu.cfs_quota_us", "40000\n"),
    };
    let file = host.normal("g").cpu_file(file).display().to_string();
    let words = "run --name g --quota 40ms/100ms -- cat".split(' ');
    let finished = host.run(words.chain([file.as_str()])).good();
    assert_eq!(finished.stdout, quota);
    host.assert_clean();
}
