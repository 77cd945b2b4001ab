//! The process of the command of `run`: it has the settings of the caller's process, and ends
//! quietly with `run`.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::owner_process::change_everything;
use crate::common::{Finished, Host, command_of, wait_until};

/// Prints the settings of its own process.
const SHOW: [&str; 5] = [
    "grep",
    "-hE",
    "^(Sig(Blk|Ign|Pnd)|Cpus_allowed|THP_enabled|Umask|Max |[0-9-]+$)",
    "/proc/self/status",
    "/proc/self/limits",
];

/// A change that a command makes to its process before it executes another.
type Change = fn() -> io::Result<()>;

fn change_nothing() -> io::Result<()> {
    Ok(())
}

fn block_all() -> io::Result<()> {
    Ok(SigSet::all().thread_block()?)
}

fn close_input() -> io::Result<()> {
    // SAFETY: it takes a number.
    unsafe { libc::close(0) };
    Ok(())
}

/// Runs a command from a caller that has made a change.
fn from_caller(host: &Host, change: Change, mut command: Command) -> Finished {
    host.confine(&mut command);
    // SAFETY: only system calls, and little else.
    unsafe { command.pre_exec(change) };
    host.spawn(command).finish()
}

fn words(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[test]
fn a_command_has_the_callers_signals_limits_and_streams() {
    let host = Host::new();
    let files = ["/proc/self/timerslack_ns", "/proc/self/oom_score_adj"];
    for change in [change_nothing, block_all, change_everything, close_input] {
        for command in [
            &[&SHOW[..], &files].concat()[..],
            &["ls", "/proc/self/fd"],
            // The nice level.
            &["cut", "-d", " ", "-f19", "/proc/self/stat"],
        ] {
            let expected = from_caller(&host, change, words(command)).good();
            let run = host.plimsoll(["run", "--"].iter().chain(command));
            let found = from_caller(&host, change, run).good();
            assert_eq!(found.stdout, expected.stdout);
            assert!(!found.stdout.is_empty());
        }
    }
    host.assert_clean();
}

#[test]
fn the_exit_code_is_right_whatever_signals_the_caller_blocks_or_ignores() {
    let host = Host::new();
    for change in [block_all, change_everything] {
        // An owner has to be started each time.
        host.end_idle_owner();
        // It ends while `run` sleeps.
        let script = "until grep -q '^State:.S' /proc/$PPID/status; do :; done; exit 7";
        let run = host.plimsoll(["run", "--", "sh", "-c", script]);
        let finished = from_caller(&host, change, run);
        assert_eq!(finished.code(), 7, "{finished:?}");
        assert_eq!(finished.stderr, "");
    }
    host.assert_clean();
}

#[test]
fn a_signal_that_the_caller_blocks_is_passed_on_to_the_command() {
    let host = Host::new();
    let mut command = host.plimsoll(["run", "--", "sleep", "600"]);
    // SAFETY: only system calls.
    unsafe { command.pre_exec(block_all) };
    let running = host.spawn(command);
    let mut pid = 0;
    wait_until("it runs", || {
        let groups = host.owner().map_or_else(Vec::new, |state| state.groups);
        let name = groups.into_iter().next().map(|group| group.name);
        pid = name
            .and_then(|name| name.strip_prefix("sleep-")?.parse().ok())
            .unwrap_or(0);
        command_of(pid).as_deref() == Some("sleep")
    });
    running.send(Signal::SIGTERM);
    wait_until("it waits for the command to unblock it", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        u64::from_str_radix(pending.unwrap().trim(), 16).unwrap() & (1 << (libc::SIGTERM - 1)) != 0
    });
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    assert_eq!(running.finish().code(), 137);
    host.assert_clean();
}
