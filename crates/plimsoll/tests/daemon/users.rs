//! Permissions of users who are not operators.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::protocol::{Answer, Choice, Request, Run, SUBJECT_CHARS_MAX};

use crate::common::{Finished, Host, Running, binary, wait_until};
use crate::rig::{Daemon, SHORT, Sleeper, copy_program, is_idle, of_cgroup, quota_us, rule, shown};

const USER: u32 = 65_534;

/// A copy of the binary that any user can execute.
struct Account {
    folder: tempfile::TempDir,
}

impl Account {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        copy_program(&binary(), &folder.path().join("plimsoll"));
        Self { folder }
    }

    fn start(&self, host: &Host, words: &[&str]) -> Running {
        let mut command = std::process::Command::new(self.folder.path().join("plimsoll"));
        // As root it also drops the groups.
        command.args(words).uid(USER).gid(USER).current_dir("/");
        host.confine(&mut command);
        host.spawn(command)
    }

    fn run(&self, host: &Host, words: &[&str]) -> Finished {
        self.start(host, words).finish(SHORT)
    }

    fn refused(&self, host: &Host, words: &[&str]) -> String {
        let refused = self.run(host, words);
        assert_eq!(refused.code(), 125, "{words:?}: {refused:?}");
        refused.one_line().to_owned()
    }
}

/// A process of a user.
fn start_as(host: &Host, sleeper: &Sleeper, uid: u32) -> Running {
    let mut command = sleeper.command();
    command.uid(uid).gid(uid);
    host.spawn(command)
}

#[test]
fn any_user_may_read_the_state() {
    let mut host = Host::shared();
    let group = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&group)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    let user = Account::new();
    let all = user.run(&host, &["show"]).good();
    assert!(all.stdout.contains("web"), "{all:?}");
    user.run(&host, &["show", "web", "--json"]).good().json();
    user.run(&host, &["show", &shown(&group)]).good();
    daemon.stop();
}

#[test]
fn user_may_run_under_restrictions_which_hold() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let user = Account::new();
    let words = [
        "run", "--class", "batch", "--cap", "40%", "--name", "theirs", "--", "sleep", "600",
    ];
    let running = user.start(&host, &words);
    let group = host.batch("theirs");
    wait_until("it runs in its group", SHORT, || {
        group.all_processes().is_ok_and(|all| !all.is_empty())
    });
    let shown = daemon.group("theirs").unwrap();
    assert_eq!(shown.knobs.cap.unwrap().to_string(), "40%");
    // The user may restrict the own group further, but not loosen an operator's limits.
    user.run(&host, &["set", "theirs", "--cap", "20%"]).good();
    user.run(&host, &["set", "theirs", "--cap", "30%"]).good();
    host.run(["set", "theirs", "--cap", "10%"]).good();
    let line = user.refused(&host, &["set", "theirs", "--cap", "30%"]);
    assert!(line.contains("cap"), "{line}");
    user.refused(&host, &["set", "theirs", "--class", "normal"]);
    assert_eq!(
        daemon
            .group("theirs")
            .unwrap()
            .knobs
            .cap
            .unwrap()
            .to_string(),
        "10%"
    );
    assert_eq!(running.stop().code(), 128 + 15);
    wait_until("the group has gone", SHORT, || {
        daemon.group("theirs").is_none()
    });
    daemon.stop();
}

#[test]
fn a_user_may_restrict_a_process_of_their_own() {
    let host = Host::shared();
    let sleeper = Sleeper::new("sleeper");
    let theirs = start_as(&host, &sleeper, USER);
    let daemon = Daemon::start(&host, "");
    let user = Account::new();
    let pid = theirs.pid().to_string();
    user.run(&host, &["set", &pid, "--class", "batch"]).good();
    crate::rig::wait_until_in(&daemon, theirs.pid(), &format!("pid-{pid}"));
    user.refused(&host, &["set", &pid, "--class", "normal"]);
    user.run(&host, &["set", &pid, "--reset"]).good();
    theirs.kill_hard();
    daemon.stop();
}

#[test]
fn user_may_not_raise_reload_or_change_others() {
    let mut host = Host::shared();
    let (web, home) = (host.group("web"), host.group("home"));
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let sleeper = Sleeper::new("sleeper");
    let ours = host.start_in(&home, sleeper.words());
    let anothers = start_as(&host, &sleeper, USER - 1);
    let mut daemon = Daemon::start(&host, &text);
    let mine = host.start([
        "run", "--class", "batch", "--name", "mine", "--", "sleep", "600",
    ]);
    wait_until("it runs", SHORT, || daemon.group("mine").is_some());
    wait_until("it is in its group", SHORT, || {
        host.batch("mine")
            .all_processes()
            .is_ok_and(|all| !all.is_empty())
    });
    let before = host.snapshot();
    let user = Account::new();
    let name = shown(&web);
    let (ours_pid, anothers_pid) = (ours.pid().to_string(), anothers.pid().to_string());
    for words in [
        &["set", "web", "--quota", "20ms/100ms"][..],
        &["set", "web", "--reset"],
        &["set", &name, "--class", "batch"],
        &["set", &shown(&home), "--class", "batch"],
        &["set", "mine", "--cap", "10%"],
        &["set", &ours_pid, "--class", "batch"],
        &["set", &anothers_pid, "--class", "batch"],
        &["reload"],
        &["run", "--nice", "-5", "--", "true"],
        &["run", "--weight", "1000", "--", "true"],
        &["run", "--headroom", "30%", "--", "true"],
        &["run", "--class", "batch", "--headroom", "30%", "--", "true"],
        &["run", "--name", "web", "--", "true"],
        &["run", "--name", "mine", "--", "true"],
    ] {
        let line = user.refused(&host, words);
        println!("{words:?}: {line}");
        assert_eq!(host.snapshot(), before, "{words:?}");
    }
    assert_eq!(quota_us(&web), 30_000);
    assert!(!is_idle(&home));
    mine.stop();
    ours.kill_hard();
    anothers.kill_hard();
    daemon.end();
}

#[test]
fn group_name_cannot_hide_files_of_the_daemon_or_kernel() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let user = Account::new();
    for name in ["control", "control.sock", "daemon", "requested", "lock"] {
        let words = ["run", "--cap", "50%", "--name", name, "--", "true"];
        user.run(&host, &words).good();
        wait_until("its group has gone", SHORT, || daemon.group(name).is_none());
    }
    for name in ["tasks", "cgroup.procs", "cpu.idle"] {
        let line = user.refused(&host, &["run", "--name", name, "--", "true"]);
        assert!(line.contains("a file of the kernel's"), "{line}");
    }
    assert!(host.run(["show"]).good().stdout.lines().count() <= 1);
    daemon.stop();
}

/// Sends a request as a user from this process, faster than any command; `request` is created
/// after the connection.
fn ask_as_user(socket: &Path, uid: u32, make_request: impl FnOnce() -> Request) -> Answer {
    let connect = || {
        use nix::libc::{SYS_setgroups, SYS_setresgid, SYS_setresuid, syscall};
        // SAFETY: an empty list of groups is not read; the others take
        // numbers. They change this thread's credentials, no memory.
        let changed = unsafe {
            syscall(SYS_setgroups, 0, std::ptr::null::<u32>()) == 0
                && syscall(SYS_setresgid, uid, uid, uid) == 0
                && syscall(SYS_setresuid, uid, uid, uid) == 0
        };
        assert!(changed, "{}", std::io::Error::last_os_error());
        Client::connect(socket).unwrap().unwrap()
    };
    let mut client = thread::scope(|scope| scope.spawn(connect).join().unwrap());
    client.ask(&make_request()).unwrap()
}

fn run_request(name: &str, pid: i32, subject: &str, knobs: &str) -> Request {
    Request::Run(Box::new(Run {
        name: name.into(),
        pid,
        subject: subject.into(),
        knobs: serde_json::from_str(knobs).unwrap(),
        choice: Choice::default(),
    }))
}

#[test]
fn user_cannot_leave_a_group_of_the_file_before_it_applies() {
    const CLAIMED: u32 = USER - 7;
    let host = Host::shared();
    let text = rule("theirs", &format!("user = {CLAIMED}"), "cap = \"10%\"");
    let daemon = Daemon::start(&host, &text);
    let sleeper = Sleeper::new("sleeper");
    let mut all = Vec::new();
    for number in 0..20 {
        let name = format!("free-{number}");
        let answer = ask_as_user(&daemon.socket(), CLAIMED, || {
            let process = start_as(&host, &sleeper, CLAIMED);
            let request = run_request(&name, process.pid(), "sleeper", r#"{"cap": "90%"}"#);
            all.push(process);
            request
        });
        let Answer::Refused(why) = answer else {
            panic!("{name}: {answer:?}")
        };
        assert!(why.contains("`theirs`, which limits it"), "{why}");
    }
    for process in all {
        crate::rig::wait_until_in(&daemon, process.pid(), "theirs");
        process.kill_hard();
    }
    daemon.stop();
}

#[test]
fn name_taken_by_a_user_does_not_hide_a_group_of_the_file() {
    let mut host = Host::shared();
    let web = host.group("web");
    let mut daemon = Daemon::start(&host, "");
    let user = Account::new();
    let words = ["run", "--cap", "50%", "--name", "web", "--", "sleep", "600"];
    let theirs = user.start(&host, &words);
    wait_until("it runs", SHORT, || daemon.group("web").is_some());
    daemon.write(&rule(
        "web",
        &of_cgroup(&shown(&web)),
        "quota = \"30ms/100ms\"",
    ));
    let refused = daemon.reload();
    assert_eq!(refused.code(), 125);
    assert!(
        refused
            .one_line()
            .contains("a command has a group of that name")
    );
    daemon.end();
    daemon.restart();
    assert!(
        daemon
            .log()
            .contains("the command's of that name is `web-2`")
    );
    let cap = daemon.group("web-2").unwrap().knobs.cap;
    assert_eq!(cap.unwrap().to_string(), "50%");
    host.run(["set", "web", "--quota", "20ms/100ms"]).good();
    assert_eq!(quota_us(&web), 20_000);
    host.run(["set", "web", "--reset"]).good();
    assert_eq!(theirs.stop().code(), 128 + 15);
    daemon.end();
}

#[test]
fn user_cannot_reduce_the_tolerance_of_all_batch_work() {
    let mut host = Host::shared();
    let (web, jobs) = (host.group("web"), host.group("jobs"));
    let text = rule(
        "web",
        &of_cgroup(&shown(&web)),
        "headroom = \"30%\", tolerance = \"10ms/100ms\"",
    ) + &rule("jobs", &of_cgroup(&shown(&jobs)), "class = \"batch\"");
    let mut daemon = Daemon::start(&host, &text);
    let user = Account::new();
    let run = |tolerance: &'static str| {
        let words = "run --class batch --headroom 10% --tolerance".split(' ');
        words.chain([tolerance, "--", "true"]).collect::<Vec<_>>()
    };
    // The headroom must be in force before a user may ask for a part of it.
    wait_until("headroom is in force", SHORT, || {
        daemon
            .state()
            .headroom
            .is_some_and(|it| it.headroom_ppm > 0)
    });
    let line = user.refused(&host, &run("1ms/100ms"));
    assert!(line.contains("(10ms/100ms)"), "{line}");
    user.run(&host, &run("10ms/100ms")).good();
    daemon.end();
}

#[test]
fn command_text_has_a_limited_length() {
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let sleeper = Sleeper::new("sleeper");
    let process = start_as(&host, &sleeper, USER);
    let long = "ä".repeat(20_000);
    let answer = daemon.ask(&run_request("long", process.pid(), &long, "{}"));
    assert!(matches!(answer, Answer::Groups { .. }), "{answer:?}");
    let shown = daemon.group("long").unwrap().subject;
    assert_eq!(shown.chars().count(), SUBJECT_CHARS_MAX);
    process.kill_hard();
    daemon.stop();
}

/// A process with a reused pid.
fn start_with_pid(host: &Host, sleeper: &Sleeper, pid: i32) -> Option<Running> {
    for _ in 0..500 {
        // The next process gets the first free pid after this one, unless others are faster.
        fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let process = start_as(host, sleeper, USER);
        if process.pid() == pid {
            return Some(process);
        }
        process.kill_hard();
    }
    None
}

#[test]
fn reused_pid_does_not_loosen_limits_of_its_predecessor() {
    if !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        println!("SKIPPED: this kernel has no ns_last_pid to choose a process's number by");
        return;
    }
    let host = Host::shared();
    let daemon = Daemon::start(&host, "");
    let (user, sleeper) = (Account::new(), Sleeper::new("sleeper"));
    let mut shell = std::process::Command::new("/bin/sh");
    let script = format!("read line; {} & exit 0", sleeper.words().join(" "));
    shell.args(["-c", &script]).uid(USER).gid(USER);
    let mut first = shell.stdin(Stdio::piped()).spawn().unwrap();
    let pid = first.id().cast_signed();
    let (number, name) = (pid.to_string(), format!("pid-{pid}"));
    host.run(["set", &number, "--cap", "10%"]).good();
    first.stdin.take().unwrap().write_all(b"\n").unwrap();
    first.wait().unwrap();
    let left = crate::rig::members(&host, &name);
    assert_eq!(left.len(), 1);

    let Some(later) = start_with_pid(&host, &sleeper, pid) else {
        panic!("no process got number {pid} in 500 attempts")
    };
    let line = user.refused(&host, &["set", &number, "--cap", "90%"]);
    assert!(line.contains(&name), "{line}");
    let cap = || daemon.group(&name).unwrap().knobs.cap.unwrap().to_string();
    assert_eq!(cap(), "10%");
    crate::rig::kill_all(&left);
    wait_until("nothing is left in it", SHORT, || {
        crate::rig::members(&host, &name).is_empty()
    });
    user.run(&host, &["set", &number, "--cap", "90%"]).good();
    assert_eq!(cap(), "90%");
    assert_eq!(crate::rig::members(&host, &name), [pid]);
    later.kill_hard();
    daemon.stop();
}

#[test]
fn the_runtime_folder_shows_users_the_socket_and_nothing_else() {
    let mut host = Host::shared();
    let web = host.group("web");
    let text = rule("web", &of_cgroup(&shown(&web)), "quota = \"30ms/100ms\"");
    let daemon = Daemon::start(&host, &text);
    host.run(["set", "web", "--quota", "40ms/100ms"]).good();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(host.runtime()), 0o711);
    for entry in fs::read_dir(host.runtime()).unwrap().flatten() {
        let expected = if entry.file_name() == "control.sock" {
            0o666
        } else {
            0o600
        };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
    host.run(["set", "web", "--reset"]).good();
    daemon.stop();
}
