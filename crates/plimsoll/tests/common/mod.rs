//! Common parts of the integration tests: a cgroup and a runtime folder of a test's own, processes
//! that end with it, and exact counters.
//!
//! Everything that a test makes is below one cgroup, `/plimsoll-test-PID-N`,
//! and is removed when its `Host` is dropped, also by a panic. Nothing else
//! on the machine is touched.

// Every test binary uses a part of it.
#![allow(dead_code)]

#[path = "../../../plimsoll-daemon/tests/simulated/chance.rs"]
pub mod chance;
pub mod wait;

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use plimsoll_cgroupfs::{CpuGroup, CpuMax, Hierarchy, Version, read_ids};
use plimsoll_daemon::control::client::Client;
use plimsoll_daemon::control::protocol::{Answer, Request, SOCKET};
use plimsoll_daemon::state::State;
use plimsoll_engine::knobs::Bandwidth;
pub use plimsoll_engine::tasks::{command as command_of, threads as threads_of};
use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports)]
pub use wait::{Looks, wait_for, wait_until};

/// Returns whether this is the emulated machine of `vm/run`, which is many times slower.
pub fn in_vm() -> bool {
    std::env::var_os("PLIMSOLL_TEST_VM").is_some()
}

/// Random choices of a test. `PLIMSOLL_SEED` has them made again; without it each run makes the
/// same.
pub fn chance(what: &str) -> chance::Chance {
    let given = std::env::var("PLIMSOLL_SEED").ok();
    let seed = given.map_or(1, |text| text.parse().unwrap());
    println!("{what}: PLIMSOLL_SEED={seed}");
    chance::Chance::new(seed)
}

/// The binary under test, which Cargo builds beside the folder of the tests. Its path is not
/// compiled in, so that test programs of two folders are equal and give equal figures in virtual
/// time.
pub fn binary() -> PathBuf {
    let beside = || {
        let me = std::env::current_exe().unwrap();
        me.parent().unwrap().with_file_name("plimsoll")
    };
    std::env::var_os("PLIMSOLL_BIN").map_or_else(beside, PathBuf::from)
}

/// Runs a closure while the calling thread, and so its children, is bound to one CPU.
pub fn on_one_cpu<T>(act: impl FnOnce() -> T) -> T {
    let mine = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpu = (0..64).find(|cpu| mine.is_set(*cpu).unwrap_or(false));
    on_cpus(1 << cpu.expect("no CPU to run on"), act)
}

/// Runs a closure while the calling thread, and so its children, is bound to some CPUs (a mask).
pub fn on_cpus<T>(cpus: u64, act: impl FnOnce() -> T) -> T {
    let me = Pid::from_raw(0);
    let before = sched_getaffinity(me).unwrap();
    bind(0, (0..64).filter(|cpu| cpus & (1 << cpu) != 0)).unwrap();
    let result = act();
    sched_setaffinity(me, &before).unwrap();
    result
}

/// Binds a task, 0 for the calling thread, to some CPUs.
pub fn bind(tid: i32, cpus: impl IntoIterator<Item = usize>) -> nix::Result<()> {
    let mut set = CpuSet::new();
    cpus.into_iter().for_each(|cpu| set.set(cpu).unwrap());
    sched_setaffinity(Pid::from_raw(tid), &set)
}

/// A CPU that is offline; it comes back in any case. For guests only.
pub struct Offline(usize);

impl Offline {
    pub fn take(cpu: usize) -> Self {
        assert!(in_vm(), "it would take a CPU of this machine");
        let offline = Self(cpu);
        offline.write("0").unwrap();
        offline
    }

    fn write(&self, online: &str) -> std::io::Result<()> {
        let file = format!("/sys/devices/system/cpu/cpu{}/online", self.0);
        fs::write(file, online)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = self.write("1");
    }
}

/// Tells threads to end, also if the test fails.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of CPUs that this process may use.
pub fn nr_cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Exit status and output of a command.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Finished {
    /// Returns the exit code; panics if the command was killed.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| {
            panic!(
                "killed by signal {:?}: {}",
                self.status.signal(),
                self.stderr
            )
        })
    }

    /// Panics unless the command succeeded.
    pub fn good(self) -> Self {
        assert_eq!(self.code(), 0, "{self:?}");
        self
    }

    /// The JSON document on standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.stdout))
    }

    /// The JSON document on standard error, behind messages for people.
    pub fn stats(&self) -> Value {
        let start = self.stderr.find('{').unwrap_or(0);
        serde_json::from_str(&self.stderr[start..])
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.stderr))
    }

    /// Returns the line of a refusal; panics unless the command was refused.
    pub fn refusal(&self) -> &str {
        assert_eq!(self.code(), 125, "{self:?}");
        self.one_line()
    }

    /// Returns the single line on standard error.
    pub fn one_line(&self) -> &str {
        let text = self.stderr.trim_end();
        assert!(
            !text.is_empty() && !text.contains('\n'),
            "not one line: {text:?}"
        );
        text
    }
}

/// A running command; it ends with the test.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: bool,
}

impl Running {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until a condition holds that ends no earlier than the command does. Fails with the
    /// command's output as soon as the command has ended without it, such as by a refusal.
    pub fn wait_until(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        wait_until(what, || {
            // First, because the condition may begin just before the command ends.
            let runs = self.is_running();
            let is_met = holds();
            let output = || format!("{}{}", self.stdout(), self.stderr());
            assert!(runs || is_met, "ended before {what}: {}", output());
            is_met
        });
    }

    pub fn finish(mut self) -> Finished {
        let mut looks = Looks::begin();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                looks.again(),
                "still running: {}{}",
                self.stdout(),
                self.stderr()
            );
        };
        self.ended = true;
        Finished {
            status,
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    /// Ends the command by SIGTERM, and returns its output.
    pub fn stop(self) -> Finished {
        self.send(Signal::SIGTERM);
        self.finish()
    }

    pub fn kill_hard(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.ended = true;
    }
}

/// Looks at the end of a command that a failed test leaves, before it is killed.
const ENDING_LOOKS: u32 = 1_000;

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended || !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let mut looks = Looks::begin();
        for _ in 0..ENDING_LOOKS {
            if !matches!(self.child.try_wait(), Ok(None)) || !looks.again() {
                return;
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prepares a shell script in a private mount namespace. The caller adds the arguments, `$0`
/// first.
pub fn with_own_mounts(script: &str) -> Command {
    // In a chroot `/` is no mount point, so each mount is made private separately. The script
    // stops if one is still shared.
    let private = "mount --make-rprivate / 2>/dev/null || \
                   cut -d' ' -f5 /proc/self/mountinfo | while read -r mount; do \
                   mount --make-private \"$mount\" 2>/dev/null; done\n\
                   if grep -q ' shared:' /proc/self/mountinfo; then exit 99; fi";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{private}\n{script}")]);
    // SAFETY: one system call, which takes an integer only.
    unsafe {
        use std::os::unix::process::CommandExt as _;
        command.pre_exec(|| match libc::unshare(libc::CLONE_NEWNS) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    command
}

/// Lets a command begin in a cgroup, and there in new namespaces, if any: `CLONE_NEWCGROUP` makes
/// the cgroup the root of all that the command sees.
pub fn begin_in(command: &mut Command, group: &CpuGroup, namespaces: libc::c_int) {
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::process::CommandExt as _;
    let files = group.folders().into_iter();
    let files = files.map(|it| it.join("cgroup.procs").into_os_string().into_vec());
    let files: Vec<_> = files.map(|it| CString::new(it).unwrap()).collect();
    // SAFETY: only system calls, on texts that were made before.
    unsafe {
        command.pre_exec(move || {
            for file in &files {
                let file = libc::open(file.as_ptr(), libc::O_WRONLY);
                // 0 is the process that writes.
                if libc::write(file, c"0".as_ptr().cast(), 1) != 1 {
                    return Err(std::io::Error::last_os_error());
                }
                libc::close(file);
            }
            match libc::unshare(namespaces) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
}

/// Cgroup and runtime folder of one test.
pub struct Host {
    hierarchy: Arc<Hierarchy>,
    base: CpuGroup,
    runtime: TempDir,
    streams: TempDir,
    nr_streams: AtomicU32,
    _top: TopController,
    clean: BTreeMap<PathBuf, String>,
}

/// Users of the controller in the root cgroup, which a kernel in a guest has disabled. Tests in
/// parallel share it; the last one disables it.
static TOP_USERS: Mutex<(usize, bool)> = Mutex::new((0, false));

struct TopController(CpuGroup);

impl TopController {
    fn enable(hierarchy: &Arc<Hierarchy>) -> Self {
        let top = CpuGroup::at(hierarchy, "");
        let mut users = TOP_USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, enabled) = &mut *users;
        *enabled |= top.enable_children().unwrap();
        *count += 1;
        Self(top)
    }
}

impl Drop for TopController {
    fn drop(&mut self) {
        let mut users = TOP_USERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, enabled) = &mut *users;
        *count -= 1;
        if *count == 0 && std::mem::take(enabled) {
            let disabled = fs::write(self.0.subtree_control(), "-cpu");
            assert!(disabled.is_ok() || thread::panicking(), "{disabled:?}");
        }
    }
}

impl Host {
    /// Creates a cgroup and a runtime folder. Tests in parallel have one each.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(
            nix::unistd::geteuid().is_root(),
            "THESE TESTS NEED ROOT: they create cgroups. Run them as root, or in the VM."
        );
        hear_every_signal();
        let hierarchy = Arc::new(Hierarchy::find().expect("no cpu controller to test with"));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-test-{}-{number}", std::process::id());
        let top = TopController::enable(&hierarchy);
        let base = CpuGroup::at(&hierarchy, name);
        base.create().unwrap();
        let mut host = Self {
            hierarchy,
            base,
            runtime: memory_folder(),
            streams: memory_folder(),
            nr_streams: AtomicU32::new(0),
            _top: top,
            clean: BTreeMap::new(),
        };
        host.clean = host.snapshot();
        host
    }

    pub fn hierarchy(&self) -> &Arc<Hierarchy> {
        &self.hierarchy
    }

    pub fn is_v2(&self) -> bool {
        self.hierarchy.version() == Version::V2
    }

    pub fn base(&self) -> &CpuGroup {
        &self.base
    }

    pub fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// The base as `PLIMSOLL_CGROUP_BASE` expects it.
    pub fn base_path(&self) -> String {
        format!("/{}", self.base.path().display())
    }

    /// A normal group of Plimsoll's.
    pub fn normal(&self, name: &str) -> CpuGroup {
        self.base.child("plimsoll").child(name)
    }

    /// A batch group of Plimsoll's.
    pub fn batch(&self, name: &str) -> CpuGroup {
        self.base.child("plimsoll-batch").child(name)
    }

    /// A soft-capped group of Plimsoll's.
    pub fn soft(&self, name: &str) -> CpuGroup {
        self.base.child(format!("plimsoll-soft-{name}"))
    }

    /// A foreign cgroup, with knobs of its own.
    pub fn group(&mut self, name: &str) -> CpuGroup {
        self.base.enable_children().unwrap();
        let group = self.base.child(name);
        group.create().unwrap();
        self.clean = self.snapshot();
        group
    }

    /// A new file for a command's output.
    fn stream(&self) -> PathBuf {
        let number = self.nr_streams.fetch_add(1, Ordering::Relaxed);
        self.streams.path().join(number.to_string())
    }

    /// Plimsoll's command with the variables of this host.
    pub fn plimsoll<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments);
        self.confine(&mut command);
        command
    }

    /// Sets the variables that confine Plimsoll to this host.
    pub fn confine(&self, command: &mut Command) {
        command
            .env("PLIMSOLL_CGROUP_BASE", self.base_path())
            .env("PLIMSOLL_RUNTIME_DIR", self.runtime.path())
            .stdin(Stdio::null());
    }

    /// Runs a command to its end, confined to this host, with the place of the hierarchy that has
    /// the cpu controller in `$MOUNT`.
    pub fn finish_with_mount(&self, mut command: Command) -> Finished {
        self.confine(&mut command);
        command.env("MOUNT", self.hierarchy().cpu_folder(Path::new("")));
        self.spawn(command).finish()
    }

    /// Starts a command; its output goes to files.
    pub fn spawn(&self, mut command: Command) -> Running {
        let (stdout, stderr) = (self.stream(), self.stream());
        command
            .stdout(File::create(&stdout).unwrap())
            .stderr(File::create(&stderr).unwrap());
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Running {
            child,
            stdout,
            stderr,
            ended: false,
        }
    }

    pub fn start<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Running {
        self.spawn(self.plimsoll(arguments))
    }

    /// Starts `plimsoll run KNOBS -- plimsoll load LOAD`, both in words.
    pub fn start_load(&self, knobs: &str, load: &str) -> Running {
        self.start(run_load(knobs, load))
    }

    /// Starts `plimsoll run --name NAME KNOBS -- sleep`; returns when it sleeps in its group.
    pub fn sleeper(&self, name: &str, knobs: &str) -> Running {
        let line = format!("run --name {name} {knobs} -- sleep 100000");
        let mut running = self.start(line.split_whitespace());
        let groups = [self.normal(name), self.batch(name), self.soft(name)];
        running.wait_until("it sleeps in its group", || {
            let members = groups.iter().filter_map(|group| group.all_processes().ok());
            let sleeps = |pid: i32| command_of(pid).as_deref() == Some("sleep");
            members.flatten().any(sleeps)
        });
        running
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Finished {
        self.start(arguments).finish()
    }

    /// Starts a command in a foreign cgroup.
    pub fn start_in<S: AsRef<OsStr>>(
        &self,
        group: &CpuGroup,
        words: impl IntoIterator<Item = S>,
    ) -> Running {
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).stdin(Stdio::null());
        begin_in(&mut command, group, 0);
        self.spawn(command)
    }

    /// Starts one of Plimsoll's workloads in a cgroup.
    pub fn start_load_in(&self, group: &CpuGroup, load: &str) -> Running {
        self.start_in(group, load_words(load))
    }

    /// The state of a group of Plimsoll's.
    pub fn show(&self, name: &str) -> Value {
        self.run(["show", name, "--json"]).good().json()["group"].clone()
    }

    /// Snapshot of all knobs and processes below the base, and of the runtime folder without its
    /// locks.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for folder in self.base.folders() {
            collect_knobs(&folder, &mut found);
        }
        let top = CpuGroup::at(&self.hierarchy, "");
        if self.is_v2() {
            let control = top.subtree_control();
            found.insert(control.clone(), text(&control));
        }
        for entry in fs::read_dir(self.runtime.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.path().extension().is_none_or(|end| end != "lock")
                && entry.file_name() != "lock"
            {
                found.insert(entry.path(), String::new());
            }
        }
        found
    }

    /// Returns whether everything equals the first snapshot.
    pub fn is_clean(&self) -> bool {
        self.end_idle_owner() && self.snapshot() == self.clean
    }

    /// Panics unless everything equals the first snapshot.
    pub fn assert_clean(&self) {
        self.assert_as(&self.clean);
    }

    /// Panics unless everything equals a snapshot. An idle owner is ended first, which removes its
    /// socket and log.
    pub fn assert_as(&self, before: &BTreeMap<PathBuf, String>) {
        self.end_idle_owner();
        assert_same(before, &self.snapshot());
    }

    /// Reads the state of this host's owner, if one runs.
    pub fn owner(&self) -> Option<State> {
        owner_at(&self.runtime().join(SOCKET))
    }

    pub fn owner_pid(&self) -> i32 {
        let state = self.owner().expect("no owner runs");
        state.daemon.pid.cast_signed()
    }

    /// Ends an owner without groups, which would soon end by itself. Returns whether none is left.
    pub fn end_idle_owner(&self) -> bool {
        match self.owner() {
            None => true,
            Some(state) if !state.groups.is_empty() => false,
            Some(state) => {
                end_owner(state.daemon.pid.cast_signed());
                true
            }
        }
    }

    pub fn kill_owner(&self) {
        let pid = self.owner_pid();
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        // Its lock on the tree is released with its last thread, which may outlive the first.
        wait_until("the owner is gone", || {
            !is_alive(pid) && threads_of(pid).len() <= 1
        });
    }

    /// Ends all processes below the base and removes it. Fails if a cgroup stays.
    fn remove_everything(&self) {
        wait_until("the cgroups of this test are removed", || {
            let folders = self.base.folders();
            let mut left = folders.into_iter().filter(|folder| folder.exists());
            left.all(|folder| empty_and_remove(&folder))
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // An owner that a failed test has stopped does not answer, but it is in no cgroup of ours.
        if let Some(state) = self.owner() {
            let _ = kill(
                Pid::from_raw(state.daemon.pid.cast_signed()),
                Signal::SIGKILL,
            );
        }
        if thread::panicking() {
            // A second panic would end the program and hide the first one's message.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.remove_everything();
            }));
        } else {
            self.remove_everything();
        }
    }
}

/// The state of the owner that listens at a socket, if one does.
pub fn owner_at(socket: &Path) -> Option<State> {
    state_of(socket, None, false)
}

/// The state of one target or of all, in detail or not, of the owner that listens at a socket, if
/// one does.
pub fn state_of(socket: &Path, target: Option<String>, details: bool) -> Option<State> {
    let request = Request::Show { target, details };
    match Client::connect(socket).ok()??.ask(&request).ok()? {
        Answer::State(state) => Some(*state),
        // The owner has ended meanwhile.
        Answer::Ending => None,
        other => panic!("the owner answers {other:?}"),
    }
}

pub fn end_owner(pid: i32) {
    // It may end by itself meanwhile.
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    wait_until("the owner has ended", || !is_alive(pid));
}

/// A folder in memory, like `/run`, if there is one, because journals are synced. It is private,
/// as an owner would make it.
pub fn memory_folder() -> TempDir {
    let mut folder = tempfile::Builder::new();
    folder.permissions(fs::Permissions::from_mode(0o700));
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        folder.tempdir_in(memory).unwrap()
    } else {
        folder.tempdir().unwrap()
    }
}

/// `run KNOBS -- plimsoll load LOAD`.
pub fn run_load(knobs: &str, load: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["run".into()];
    words.extend(knobs.split_whitespace().map(OsString::from));
    words.push("--".into());
    words.extend(load_words(load));
    words
}

/// `plimsoll load LOAD`.
pub fn load_words(load: &str) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![binary().into(), "load".into()];
    words.extend(load.split_whitespace().map(OsString::from));
    words
}

/// Gives a cgroup to a user, as systemd does for `Delegate=yes`.
pub fn delegate(group: &CpuGroup, uid: u32) {
    for folder in group.folders() {
        chown(&folder, Some(uid), Some(uid)).unwrap();
        for name in [
            "cgroup.procs",
            "cgroup.subtree_control",
            "cgroup.threads",
            "tasks",
        ] {
            let file = folder.join(name);
            if file.exists() {
                chown(file, Some(uid), Some(uid)).unwrap();
            }
        }
    }
}

/// The trimmed text of a file; empty where there is none.
pub fn text(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

/// A limit of others, as `write_cpu_max` takes it: a quota such as `20ms/100ms`, or `max`.
pub fn max(quota: &str) -> CpuMax {
    Bandwidth::of(quota.parse().unwrap(), None).into()
}

pub fn max_with_burst(quota: &str, burst: &str) -> CpuMax {
    Bandwidth::of(quota.parse().unwrap(), Some(burst.parse().unwrap())).into()
}

/// Reads a knob of a cgroup from the kernel.
pub fn knob(group: &CpuGroup, name: &str) -> String {
    text(&group.cpu_file(name))
}

/// Quota, period and burst in microseconds, -1 for no quota.
pub fn bandwidth_us(group: &CpuGroup) -> (i64, u64, u64) {
    let now = group.read_cpu_max().unwrap();
    let quota = now.quota_usec.map_or(-1, |usec| usec as i64);
    (quota, now.period_usec, now.burst_usec)
}

/// Has this process obey these signals again: a shell that runs the tests in the background makes
/// them ignore the signals, and children inherit that.
fn hear_every_signal() {
    for ignored in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        // SAFETY: the default action replaces another disposition; no handler is installed or
        // lost.
        unsafe { signal(ignored, SigHandler::SigDfl) }.unwrap();
    }
}

/// Waits until something in a cgroup has run for a while.
pub fn wait_until_busy(group: &CpuGroup) {
    wait_until("the group uses CPU time", || {
        group.usage_ns().is_ok_and(|ns| ns > 30_000_000)
    });
}

/// CPU time used by one task, in nanoseconds.
pub fn task_ns(tid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// CPU time of all tasks of a guest, in nanoseconds: of the top cgroups, and of each thread of the
/// root, such as kernel threads.
pub fn busy_ns() -> u64 {
    let root = Path::new("/sys/fs/cgroup");
    let used_us = |stat: String| {
        let used = stat
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        used.map_or(0, |word| word.parse::<u64>().unwrap())
    };
    let top = fs::read_dir(root).unwrap().flatten();
    let stats = top.filter_map(|entry| fs::read_to_string(entry.path().join("cpu.stat")).ok());
    let below_us: u64 = stats.map(used_us).sum();
    let threads = fs::read_to_string(root.join("cgroup.threads")).unwrap();
    let tids = threads.lines().map(|line| line.parse().unwrap());
    below_us * 1000 + tids.filter_map(task_ns).sum::<u64>()
}

/// The tasks of a cgroup and of all below it.
pub fn tasks_below(group: &CpuGroup) -> Vec<i32> {
    let pids = group.all_processes().unwrap_or_default();
    pids.into_iter().flat_map(threads_of).collect()
}

/// Returns whether the cgroup is there, and it or one below it has a process.
pub fn has_processes(group: &CpuGroup) -> bool {
    group.all_processes().is_ok_and(|pids| !pids.is_empty())
}

/// The cgroup of a process in each hierarchy that matters, as text.
pub fn membership(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let matters =
        |line: &&str| line.starts_with("0::") || line.contains(":cpu") && !line.contains(":cpuset");
    text.lines().filter(matters).collect::<Vec<_>>().join("\n")
}

/// Returns the state of a thread, by the kernel's letter.
fn thread_state(pid: i32, tid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // It stands behind the command's name in brackets.
    stat.rsplit(") ").next()?.chars().next()
}

/// Returns whether any thread of a process lives: the first may end before the others, which keep
/// its files open.
pub fn is_alive(pid: i32) -> bool {
    let lives = |tid| thread_state(pid, tid).is_some_and(|state| !"ZX".contains(state));
    threads_of(pid).into_iter().any(lives)
}

/// Returns whether no thread of a process runs until the process goes on. One that has ended runs no
/// more.
pub fn is_stopped(pid: i32) -> bool {
    let is_at_rest = |tid| thread_state(pid, tid).is_some_and(|state| "TZX".contains(state));
    threads_of(pid).into_iter().all(is_at_rest)
}

/// Panics with the entries that differ.
pub fn assert_same(before: &BTreeMap<PathBuf, String>, after: &BTreeMap<PathBuf, String>) {
    let mut differences = Vec::new();
    for (path, value) in before {
        match after.get(path) {
            Some(now) if now == value => (),
            now => differences.push(format!("{}: {value:?} became {now:?}", path.display())),
        }
    }
    let new = after.keys().filter(|path| !before.contains_key(*path));
    differences.extend(new.map(|path| format!("{} is new", path.display())));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

const KNOB_FILES: [&str; 11] = [
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.type",
    "cpu.cfs_burst_us",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.idle",
    "cpu.max",
    "cpu.max.burst",
    "cpu.shares",
    "cpu.weight",
];

fn collect_knobs(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    found.insert(folder.to_owned(), String::new());
    for name in KNOB_FILES {
        let path = folder.join(name);
        if path.exists() {
            found.insert(path.clone(), text(&path));
        }
    }
    for child in folders_below(folder) {
        collect_knobs(&child, found);
    }
}

/// The folders directly below one.
pub fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Kills the processes of a test's cgroup, and removes it if possible. Returns whether it is gone.
fn empty_and_remove(folder: &Path) -> bool {
    // A throttled process cannot die.
    let _ = fs::write(folder.join("cpu.cfs_quota_us"), "-1");
    let _ = fs::write(folder.join("cpu.max"), "max");
    for pid in read_ids(&folder.join("cgroup.procs")).unwrap_or_default() {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    for child in folders_below(folder) {
        empty_and_remove(&child);
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}
