//! A reader of the output that goes away, as in `plimsoll show | head -1`, is no failure: what was
//! done is done.

use std::process::{Command, Stdio};

use crate::common::{Host, bandwidth_us};

/// The writing end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs a command whose output, and messages where wanted, nobody reads. Returns its exit code and
/// its messages.
fn run_unread(mut command: Command, is_quiet: bool) -> (Option<i32>, String) {
    command.stdout(unread());
    command.stderr(if is_quiet { unread() } else { Stdio::piped() });
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), messages)
}

#[test]
fn commands_succeed_although_nobody_reads_their_output() {
    let mut host = Host::new();
    let group = host.group("foreign");
    let target = format!("/{}", group.path().display());
    let keeps = host.sleeper("keeps", "");
    for words in [
        "help",
        "--version",
        "completions bash",
        "doctor",
        "show",
        "top --once",
        "top --once --json",
        "debug",
        "run --dry-run --cap 10% -- true",
        "run --stats -- true",
        "set TARGET --quota 20ms/100ms",
        "set TARGET --reset",
        "load burn --duration 1ms --threads 1",
        "sim interference --groups 2 --periods 1000",
        "restore",
    ] {
        for is_quiet in [false, true] {
            if words.ends_with("--reset") {
                host.run(["set", &target, "--quota", "20ms/100ms"]).good();
            }
            let all: Vec<&str> = words.split(' ').collect();
            let all = all.iter().map(|word| match *word {
                "TARGET" => &*target,
                word => word,
            });
            let (code, messages) = run_unread(host.plimsoll(all), is_quiet);
            assert_eq!(code, Some(0), "{words}: {messages}");
            assert!(!messages.contains("anic"), "{words}: {messages}");
            if words.contains("--quota") {
                assert_eq!(bandwidth_us(&group).0, 20_000);
            }
        }
    }
    keeps.stop();
    host.assert_clean();
}
