//! A test's daemon: its configuration matches only cgroups below the test's, and everything is
//! compared after its end.

// The tests of faults use a part of it.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_daemon::control::protocol::SOCKET;
use plimsoll_daemon::state::{GroupState, State};

use crate::common::{
    Finished, Host, Running, assert_same, bandwidth_us, knob, state_of, wait_until,
};

/// The path of a cgroup for a group of the file.
pub fn shown(group: &CpuGroup) -> String {
    format!("/{}", group.path().display())
}

/// A group of the file: `name`, match, knobs.
pub fn rule(name: &str, matches: &str, knobs: &str) -> String {
    let mut text = format!("[[group]]\nname = \"{name}\"\nmatch = {{ {matches} }}\n");
    for knob in knobs.split(", ").filter(|knob| !knob.is_empty()) {
        writeln!(text, "{knob}").unwrap();
    }
    text
}

/// A group of the file for one cgroup.
pub fn rule_of(name: &str, group: &CpuGroup, knobs: &str) -> String {
    rule(name, &of_cgroup(&shown(group)), knobs)
}

pub fn of_cgroup(pattern: &str) -> String {
    format!("cgroup = \"{pattern}\"")
}

pub struct Daemon<'h> {
    pub host: &'h Host,
    folder: tempfile::TempDir,
    /// Command that starts `plimsoll daemon`, if any.
    wrapper: Vec<String>,
    running: Option<Running>,
    before: BTreeMap<PathBuf, String>,
    /// Logs of earlier daemons.
    earlier: String,
}

impl<'h> Daemon<'h> {
    /// Starts a daemon; `text` is its configuration without version and metrics.
    pub fn start(host: &'h Host, text: &str) -> Self {
        let mut daemon = Self::ready(host, text);
        daemon.restart();
        daemon
    }

    /// Prepares a daemon without starting it.
    pub fn ready(host: &'h Host, text: &str) -> Self {
        let daemon = Self {
            host,
            folder: tempfile::tempdir().unwrap(),
            wrapper: Vec::new(),
            running: None,
            before: host.snapshot(),
            earlier: String::new(),
        };
        daemon.write(text);
        daemon
    }

    /// Has the daemon started by another program, such as `env`.
    pub fn wrapped(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("plimsoll.toml")
    }

    /// Replaces the configuration atomically, as an editor does.
    pub fn write(&self, text: &str) {
        let metrics = if text.contains("[metrics]") {
            ""
        } else {
            "[metrics]\nlisten = \"none\"\n"
        };
        // The scheduler has tests of its own.
        let enforcer = if text.contains("enforcer") {
            String::new()
        } else {
            format!("enforcer = \"{}\"", crate::ENFORCER)
        };
        // In TOML, keys come before tables.
        let tables = text.find("[[").unwrap_or(text.len());
        let (top, tables) = text.split_at(tables);
        self.write_raw(&format!(
            "version = 1\n{enforcer}\n{top}\n{metrics}\n{tables}"
        ));
    }

    /// Replaces the configuration atomically, without the additions of [`write`](Self::write).
    pub fn write_raw(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.config()).unwrap();
    }

    fn command(&self) -> Command {
        let config = self.config();
        let words = ["daemon", "-v", "--config", config.to_str().unwrap()];
        let plain = self.host.plimsoll(words);
        let Some((first, rest)) = self.wrapper.split_first() else {
            return plain;
        };
        let mut wrapped = Command::new(first);
        wrapped
            .args(rest)
            .arg(plain.get_program())
            .args(plain.get_args());
        self.host.confine(&mut wrapped);
        wrapped
    }

    /// Starts the daemon, and waits until it answers.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_until_it_answers();
    }

    /// Starts the daemon without waiting.
    pub fn launch(&mut self) {
        self.note_log();
        self.running = Some(self.host.spawn(self.command()));
    }

    pub fn wait_until_it_answers(&mut self) {
        let running = self.running.as_ref().expect("it was not started");
        // An owner that a command started may answer before the daemon.
        let pid = running.pid().cast_unsigned();
        wait_until("the daemon answers", || {
            assert!(self.is_running(), "the daemon has ended");
            let state = self.try_state(false);
            state.is_some_and(|state| state.daemon.pid == pid)
        });
    }

    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(Running::is_running)
    }

    pub fn pid(&self) -> i32 {
        self.running.as_ref().expect("it does not run").pid()
    }

    pub fn send(&self, signal: Signal) {
        self.running.as_ref().expect("it does not run").send(signal);
    }

    fn note_log(&mut self) {
        if let Some(running) = &self.running {
            self.earlier += &running.stderr();
            self.earlier += "---- another start ----\n";
        }
    }

    /// Logs of the earlier daemons and of this one.
    pub fn log(&self) -> String {
        let now = self
            .running
            .as_ref()
            .map_or_else(String::new, Running::stderr);
        format!("{}{now}", self.earlier)
    }

    /// Waits for a text in the log.
    pub fn wait_for_log(&self, what: &str) {
        wait_until(&format!("it says {what:?}"), || self.log().contains(what));
    }

    /// Waits until the daemon has ended; its exit status stays to be asked for.
    pub fn wait_until_it_ended(&mut self) {
        wait_until("it has ended", || !self.is_running());
    }

    pub fn socket(&self) -> PathBuf {
        self.host.runtime().join(SOCKET)
    }

    fn try_state(&self, details: bool) -> Option<State> {
        state_of(&self.socket(), None, details)
    }

    pub fn state(&self) -> State {
        self.try_state(true)
            .unwrap_or_else(|| panic!("no answer: {}", self.log()))
    }

    pub fn group(&self, name: &str) -> Option<GroupState> {
        let groups = self.state().groups.into_iter();
        groups.into_iter().find(|group| group.name == name)
    }

    pub fn names(&self) -> Vec<String> {
        let groups = self.state().groups;
        groups.into_iter().map(|group| group.name).collect()
    }

    pub fn reload(&self) -> Finished {
        self.host.run(["reload"])
    }

    pub fn reload_with(&self, text: &str) {
        self.write(text);
        self.reload().good();
    }

    pub fn kill_hard(&mut self) {
        self.note_log();
        self.running.take().expect("it does not run").kill_hard();
    }

    /// Ends the daemon as a panic does.
    pub fn abort(&mut self) {
        self.note_log();
        let running = self.running.take().expect("it does not run");
        running.send(Signal::SIGABRT);
        running.finish();
    }

    pub fn end(&mut self) -> Finished {
        self.note_log();
        let finished = self.running.take().expect("it does not run").stop();
        assert_eq!(finished.code(), 0, "{}", finished.stderr);
        finished
    }

    /// Ends the daemon, and compares the state with the reference.
    pub fn stop(mut self) -> Finished {
        let finished = self.end();
        self.assert_as_before();
        finished
    }

    pub fn assert_as_before(&self) {
        assert_same(&self.before, &self.host.snapshot());
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let from = log.char_indices().nth_back(6_000).map_or(0, |(at, _)| at);
            eprintln!("the daemon said: {}", &log[from..]);
        }
    }
}

/// The quota in microseconds per period of the same, -1 for none.
pub fn quota_us(group: &CpuGroup) -> i64 {
    bandwidth_us(group).0
}

pub fn is_idle(group: &CpuGroup) -> bool {
    knob(group, "cpu.idle") == "1"
}

/// Removes a test's cgroup as soon as it is empty.
pub fn remove_group(group: &CpuGroup) {
    wait_until("the cgroup is removed", || {
        for folder in group.folders() {
            let _ = fs::remove_dir(folder);
        }
        !group.cpu_file("").exists()
    });
}

/// Ends processes that are not children of this one.
pub fn kill_all(pids: &[i32]) {
    for pid in pids {
        // It may have ended already.
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

/// Waits until a cgroup has a quota.
pub fn wait_for_quota(group: &CpuGroup, expected_us: i64) {
    wait_until(&format!("{} has quota {expected_us}", shown(group)), || {
        group.read_cpu_max().is_ok() && quota_us(group) == expected_us
    });
}
