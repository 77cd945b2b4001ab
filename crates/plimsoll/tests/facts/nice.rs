//! Nice levels inherited from parents with a knob `nice` are reset at its end.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use crate::common::{Host, Running, is_alive, wait_until};
use crate::foreign::{policy, start};
use crate::rig::shown;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::cgroup::CgroupEnforcer;
use plimsoll_engine::group_policy::{GroupPolicy, Selector};
use plimsoll_engine::knobs::Knobs;
use plimsoll_engine::tasks::{TaskId, nice, set_nice};

/// Starts a process for each line that it reads, and prints its pid.
const SCRIPT: &str = r#"
exec 3<>"$0"
while read -r what <&3; do
    case $what in
        child) sleep 600 & echo $! ;;
        orphan) (sleep 600 & echo $!) ;;
    esac
done
"#;

fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    fields.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A process that starts others on request; all end with the test.
struct Parent {
    _folder: tempfile::TempDir,
    orders: PathBuf,
    running: Option<Running>,
    words: Vec<String>,
}

impl Parent {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let orders = folder.path().join("orders");
        mkfifo(&orders, Mode::S_IRWXU).unwrap();
        let words = ["sh", "-c", SCRIPT, orders.to_str().unwrap()];
        Self {
            words: words.map(str::to_owned).to_vec(),
            _folder: folder,
            orders,
            running: None,
        }
    }

    fn in_group(host: &Host, group: &CpuGroup) -> Self {
        let mut parent = Self::new();
        parent.running = Some(host.start_in(group, &parent.words));
        parent
    }

    fn under(host: &Host, words: &str) -> Self {
        let mut parent = Self::new();
        let words = words.split(' ').map(str::to_owned);
        parent.running = Some(host.start(words.chain(parent.words.clone())));
        parent
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn pid(&self) -> i32 {
        self.running().pid()
    }

    fn started(&self) -> Vec<i32> {
        let text = self
            .running
            .as_ref()
            .map_or_else(String::new, Running::stdout);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn start(&self, what: &str) -> i32 {
        let before = self.started().len();
        let mut orders = fs::File::options().write(true).open(&self.orders).unwrap();
        writeln!(orders, "{what}").unwrap();
        wait_until("it has started one", || self.started().len() > before);
        self.started()[before]
    }

    fn child(&self) -> i32 {
        self.start("child")
    }

    /// A process whose parent has ended.
    fn orphan(&self) -> i32 {
        let pid = self.start("orphan");
        // Its parent has the command line of the process that reads the requests.
        let words = || fs::read_to_string(format!("/proc/{}/cmdline", parent_of(pid)));
        let orders = self.orders.to_str().unwrap();
        wait_until("its parent has ended", || {
            words().is_ok_and(|words| !words.contains(orders))
        });
        pid
    }

    fn end_children(&self) {
        for pid in self.started() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            wait_until("it has ended", || !is_alive(pid));
        }
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.end_children();
        if let Some(running) = self.running.take()
            && is_alive(running.pid())
        {
            running.kill_hard();
        }
    }
}

fn levels(pids: &[i32]) -> Vec<i32> {
    pids.iter().map(|pid| nice(*pid).unwrap()).collect()
}

/// Nice level of the tests and their children.
fn own() -> i32 {
    nice(std::process::id().cast_signed()).unwrap()
}

fn knobs(json: &str) -> Knobs {
    serde_json::from_str(json).unwrap()
}

fn of_process(pid: i32, json: &str) -> GroupPolicy {
    GroupPolicy {
        name: "g".into(),
        selector: Selector::Process(TaskId::of(pid).unwrap()),
        subject: String::new(),
        knobs: knobs(json),
        is_scheduled: false,
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    Removed,
    WithoutTheKnob,
    AfterAnotherLevel,
    Undone,
}

const ENDS: [End; 4] = [
    End::Removed,
    End::WithoutTheKnob,
    End::AfterAnotherLevel,
    End::Undone,
];

/// Sets a group's nice level, lets the parent start tasks, and resets it.
fn levels_at_the_end(
    enforcer: &mut CgroupEnforcer,
    group: &GroupPolicy,
    parent: &Parent,
    end: End,
) {
    // A level other than that of the tests.
    set_nice(parent.pid(), 2).unwrap();
    let earlier = parent.child();
    enforcer.put(group).unwrap();
    let name = &group.name;
    let with = |json: &str| GroupPolicy {
        knobs: knobs(json),
        ..group.clone()
    };
    let child = parent.child();
    // A process keeps a nice level that it set itself.
    let other = parent.child();
    set_nice(other, 9).unwrap();
    let mut started = vec![child, parent.orphan()];
    assert_eq!(levels(&started), [7, 7], "{end:?}");
    match end {
        End::Removed => drop(enforcer.remove(name).unwrap()),
        End::WithoutTheKnob => enforcer.put(&with(r#"{"weight": "50"}"#)).unwrap(),
        End::AfterAnotherLevel => {
            enforcer.put(&with(r#"{"nice": "8"}"#)).unwrap();
            assert_eq!(levels(&started), [8, 8]);
            started.push(parent.child());
            set_nice(other, 9).unwrap();
            drop(enforcer.remove(name).unwrap());
        }
        End::Undone => drop(enforcer.undo()),
    }
    started.push(parent.pid());
    assert_eq!(levels(&started), vec![2; started.len()], "{end:?} {name}");
    assert_eq!(nice(other).unwrap(), 9, "{end:?}");
    assert_eq!(nice(earlier).unwrap(), 2, "{end:?}");
    if matches!(end, End::WithoutTheKnob) {
        drop(enforcer.remove(name).unwrap());
    }
    parent.end_children();
}

#[test]
fn children_in_a_foreign_cgroup_do_not_keep_its_nice_level() {
    let mut host = Host::new();
    let group = host.group("g");
    for end in ENDS {
        let parent = Parent::in_group(&host, &group);
        let mut enforcer = start(&host);
        let policy = policy(&group, r#"{"nice": "7"}"#);
        levels_at_the_end(&mut enforcer, &policy, &parent, end);
    }
}

#[test]
fn only_the_threads_of_a_cgroup_have_its_nice_level() {
    let mut host = Host::new();
    let vm = host.group("vm");
    let process = host.start_load_in(&vm, "burn --threads 2 --duration 600s");
    wait_until("it has its threads", || vm.threads().unwrap().len() >= 3);
    let emulator = vm.child("em");
    emulator.create().unwrap();
    if host.is_v2() {
        emulator.make_threaded().unwrap();
        vm.enable_children().unwrap();
    }
    let threads = vm.threads().unwrap();
    let is_other = |tid: &&i32| **tid != process.pid();
    let thread = *threads.iter().find(is_other).unwrap();
    emulator.add_thread(thread).unwrap();
    let others: Vec<i32> = threads.into_iter().filter(|tid| *tid != thread).collect();
    let target = shown(&emulator);
    for is_removed in [true, false] {
        let mut enforcer = start(&host);
        for json in [r#"{"nice": "5"}"#, r#"{"nice": "6"}"#] {
            enforcer.put(&policy(&emulator, json)).unwrap();
        }
        assert_eq!(levels(&[thread]), [6]);
        assert_eq!(levels(&others), vec![own(); others.len()]);
        assert_eq!(enforcer.sample(&target, false).unwrap().processes, 1);
        match is_removed {
            true => drop(enforcer.remove(&target).unwrap()),
            false => assert_eq!(enforcer.undo().problems, [""; 0]),
        }
        assert_eq!(levels(&[thread]), [own()], "{is_removed}");
    }
    let shown = host.run(["show", &target, "--json"]).good().json();
    assert_eq!(shown["cgroup"]["processes"], 1);
    process.kill_hard();
    crate::rig::remove_group(&emulator);
}

#[test]
fn children_in_an_own_cgroup_do_not_keep_its_nice_level() {
    let mut host = Host::new();
    let home = host.group("home");
    for end in ENDS {
        let parent = Parent::in_group(&host, &home);
        let mut enforcer = start(&host);
        let policy = of_process(parent.pid(), r#"{"nice": "7"}"#);
        levels_at_the_end(&mut enforcer, &policy, &parent, end);
    }
    host.assert_clean();
}

#[test]
fn restore_after_a_kill_resets_inherited_nice_levels() {
    let mut host = Host::new();
    let home = host.group("home");
    let parent = Parent::in_group(&host, &home);
    host.run(["set", &parent.pid().to_string(), "--nice", "15"])
        .good();
    assert_eq!(nice(parent.pid()).unwrap(), 15);
    let started = [parent.child(), parent.orphan()];
    assert_eq!(levels(&started), [15, 15]);
    host.kill_owner();
    host.run(["restore"]).good();
    assert_eq!(levels(&started), [own(); 2]);
    assert_eq!(nice(parent.pid()).unwrap(), own());
    drop(parent);
    host.assert_clean();
}

#[test]
fn processes_released_by_run_have_the_nice_level_of_its_caller() {
    let host = Host::new();
    for is_killed in [false, true] {
        let parent = Parent::under(&host, "run --name run-on --nice 16 --");
        wait_until("it runs", || {
            host.normal("run-on").is_populated().unwrap_or(false)
        });
        let started = [parent.child(), parent.orphan()];
        assert_eq!(levels(&started), [16, 16]);
        let command = parent_of(started[0]);
        if is_killed {
            parent.running().send(Signal::SIGKILL);
            wait_until("it is dead", || !is_alive(parent.pid()));
            host.kill_owner();
            host.run(["restore"]).good();
            assert_eq!(nice(command).unwrap(), own());
            kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
        } else {
            kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
            wait_until("it says that they run on", || {
                parent.running().stderr().contains("run on")
            });
            parent.running().send(Signal::SIGTERM);
            wait_until("it has ended", || !is_alive(parent.pid()));
        }
        assert_eq!(levels(&started), [own(); 2], "{is_killed}");
    }
    host.assert_clean();
}
