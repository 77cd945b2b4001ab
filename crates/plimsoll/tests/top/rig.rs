//! A terminal that tests can read, and a scripted daemon.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::time::{ClockId, clock_gettime};
use plimsoll_cgroupfs::CpuStat;
use plimsoll_daemon::control::protocol::{Answer, Envelope, Request, SOCKET, VERSION};
use plimsoll_daemon::state::{Daemon, Group, Machine, State};
use plimsoll_engine::sample::{BatchSample, HeadroomSample, Sample, TaskRate, TaskRates};
use serde_json::json;
use tempfile::TempDir;

use crate::common::{Looks, binary, wait_for, wait_until};

/// Panics if tmux is not installed.
pub fn need_tmux() {
    let found = Command::new("tmux")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    assert!(is_there, "THESE TESTS NEED TMUX: tools/install-deps native");
}

/// A shell in a terminal of tmux, with a tmux server of its own.
pub struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// Starts a terminal of 80 × 24, with variables in the environment of its
    /// shell.
    pub fn new(variables: &[(&str, &str)], confine: impl FnOnce(&mut Command)) -> Self {
        let terminal = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut command = terminal.tmux(&["-f", "/dev/null", "-u", "new-session", "-d"]);
        command.args(["-x", "80", "-y", "24", "sh"]);
        let plimsoll = binary();
        let path = format!(
            "{}:{}",
            plimsoll.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        command.env_remove("NO_COLOR").env_remove("ENV");
        command.env_remove("LC_ALL").env_remove("LC_CTYPE");
        command.env("PATH", path).env("LANG", "C.UTF-8");
        command.envs(variables.iter().copied());
        confine(&mut command);
        assert!(command.status().unwrap().success(), "{command:?}");
        terminal.run(&["set-option", "-g", "status", "off"]);
        terminal.run(&["resize-window", "-x", "80", "-y", "24"]);
        terminal.until("a prompt", |text| text.starts_with(['#', '$']));
        terminal
    }

    fn tmux(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket"));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.tmux(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Presses keys, by tmux's names for them.
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types a line into the shell.
    pub fn type_line(&self, line: &str) {
        self.run(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// Waits until the screen satisfies a condition, and returns it.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let mut looks = Looks::begin();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(looks.again(), "waited in vain for {what}:\n{screen}");
        }
    }

    /// Waits until a text is on the screen, and returns the screen.
    pub fn until_shown(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    fn children(&self) -> Vec<i32> {
        let shell = self.run(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let pids = std::fs::read_to_string(&children).unwrap_or_default();
        let pids = pids.split_whitespace();
        pids.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The process that runs in the shell.
    pub fn child(&self) -> i32 {
        wait_for("a child of the shell", || self.children().first().copied())
    }

    /// Waits until nothing but the shell reads what is typed: a process that ends, or stops, may
    /// do so for a while after it has restored the screen.
    pub fn until_the_shell_reads(&self) {
        wait_until("the shell's processes have ended or are stopped", || {
            let mut all = self.children().into_iter();
            all.all(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
                state.is_empty() || state.starts_with('T')
            })
        });
    }

    /// Closes the terminal, as a lost connection does.
    pub fn close(&self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = self.tmux(&["kill-server"]);
        let _ = command.stderr(Stdio::null()).status();
    }
}

fn now_usec() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}

/// Activity of a group of the scripted daemon, in ppm of one CPU and of its
/// periods of 100 ms.
#[derive(Clone, Copy)]
pub struct Activity {
    pub name: &'static str,
    pub knobs: &'static str,
    pub cpu_ppm: u64,
    pub throttled_ppm: u64,
    pub wait_ppm: u64,
}

/// Three groups on two CPUs: normal work 30 %, batch work 40 %.
pub const GROUPS: [Activity; 3] = [
    Activity {
        name: "/system.slice/web.service",
        knobs: r#"{"headroom": "30%"}"#,
        cpu_ppm: 600_000,
        throttled_ppm: 0,
        wait_ppm: 0,
    },
    Activity {
        name: "encode",
        knobs: r#"{"class": "batch", "nice": "10"}"#,
        cpu_ppm: 800_000,
        throttled_ppm: 0,
        wait_ppm: 3_200_000,
    },
    Activity {
        name: "tenant",
        knobs: r#"{"quota": "2cpus", "burst": "100ms"}"#,
        cpu_ppm: 0,
        throttled_ppm: 1_000_000,
        wait_ppm: 0,
    },
];

/// State at the current time. Every counter is an exact function of the clock,
/// so that rates do not depend on the delay of requests.
fn state(groups: &[Activity], with_plan: bool) -> State {
    let at_usec = now_usec();
    let grown = |ppm: u64| (u128::from(at_usec) * u128::from(ppm) / 1_000_000) as u64;
    let periods = at_usec / 100_000;
    let group = |activity: &Activity| Group {
        name: activity.name.into(),
        group: activity.name.into(),
        cgroup: format!("/here/{}", activity.name.trim_start_matches('/')),
        knobs: serde_json::from_str(activity.knobs).unwrap(),
        plan: if with_plan {
            json!([{"knob": "nice", "value": "10", "mechanism": "setpriority", "fidelity": "exact"}])
        } else {
            json!(null)
        },
        statistics: Some(Sample {
            usage_usec: grown(activity.cpu_ppm),
            processes: 4,
            quota: Some(CpuStat {
                nr_periods: periods,
                nr_throttled: if activity.throttled_ppm > 0 {
                    periods
                } else {
                    0
                },
                ..CpuStat::default()
            }),
            batch: Some(BatchSample {
                total: plimsoll_engine::sample::BatchCounts {
                    wait_usec: grown(activity.wait_ppm),
                    ..Default::default()
                },
                cpus: Vec::new(),
            }),
            task_rates: (with_plan && activity.name == "encode").then(|| {
                let task = TaskRate {
                    tid: 4711,
                    command: "ffmpeg".into(),
                    rate_ppm: 791_000,
                    background: true,
                };
                TaskRates::new(vec![task], 5)
            }),
            ..Sample::default()
        }),
        ..Group::default()
    };
    State {
        daemon: Daemon {
            pid: 1,
            uptime_usec: 11_520_000_000,
            ..Daemon::default()
        },
        machine: Machine {
            at_usec,
            nr_cpus: 2,
            busy_usec: grown(1_400_000),
            batch_usec: grown(800_000),
        },
        headroom: Some(HeadroomSample {
            headroom_ppm: 300_000,
            allowance_ppm: 400_000,
            side_ppm: 400_000,
            nonside_ppm: 300_000,
            ..HeadroomSample::default()
        }),
        groups: groups.iter().map(group).collect(),
        ..State::default()
    }
}

/// A daemon that speaks the protocol and reports scripted groups.
pub struct ScriptedDaemon {
    connections: Arc<Mutex<Vec<UnixStream>>>,
    socket: std::path::PathBuf,
}

impl ScriptedDaemon {
    /// Listens in a runtime folder.
    pub fn start(runtime: &Path, groups: Vec<Activity>) -> Self {
        let socket = runtime.join(SOCKET);
        let listener = UnixListener::bind(&socket).unwrap();
        let connections = Arc::<Mutex<Vec<UnixStream>>>::default();
        let accepted = Arc::clone(&connections);
        let own = socket.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The daemon was dropped: the connection only wakes this
                // thread.
                if !own.exists() {
                    return;
                }
                accepted.lock().unwrap().push(stream.try_clone().unwrap());
                let groups = groups.clone();
                thread::spawn(move || answer(&stream, &groups));
            }
        });
        Self {
            connections,
            socket,
        }
    }
}

impl Drop for ScriptedDaemon {
    fn drop(&mut self) {
        let last = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
        drop(last);
        for stream in self.connections.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn answer(stream: &UnixStream, groups: &[Activity]) {
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let asked: Envelope = serde_json::from_str(&line).unwrap();
        assert_eq!(asked.version, VERSION);
        let (target, details) = match asked.request {
            Request::Show { target, details } => (target, details),
            Request::Tasks { target } => (Some(target), true),
            _ => panic!("not asked to show: {line}"),
        };
        let wanted =
            |activity: &&Activity| target.as_deref().is_none_or(|name| name == activity.name);
        let groups: Vec<Activity> = groups.iter().filter(wanted).copied().collect();
        let answer = Answer::State(Box::new(state(&groups, details)));
        let mut text = serde_json::to_string(&answer).unwrap();
        text.push('\n');
        let mut stream = stream;
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}
