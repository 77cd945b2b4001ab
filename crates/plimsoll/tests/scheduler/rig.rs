//! Common parts of these tests: a host with sched_ext, and its comparison with the state before.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use plimsoll_cgroupfs::{CpuGroup, CpuStat};
use plimsoll_daemon::control::protocol::SOCKET;
use plimsoll_daemon::state::State;
use plimsoll_engine::sample::{Sample, SchedulerSample};
use serde_json::Value;

use crate::common::{
    Finished, Host, Looks, Running, assert_same, binary, command_of, in_vm, load_words, nr_cpus,
    on_cpus, state_of, task_ns, tasks_below, text, threads_of, wait_for, wait_until,
};
use crate::daemon_rig::{kill_all, remove_group, shown};

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const BPFFS: &str = "/sys/fs/bpf";

/// The rig in use. There is one at a time, because there is one scheduler; between the tests of
/// [`crate::shared`] it stays, with the scheduler loaded.
pub static RIG: Mutex<Option<Rig>> = Mutex::new(None);

/// A rig as long as a test uses it; then nothing of the test may be left.
pub struct Loan {
    slot: MutexGuard<'static, Option<Rig>>,
    /// Whether the next test may have the rig.
    stays: bool,
}

impl Loan {
    /// Waits for the rig of another test, and uses what `choose` makes of the one that it has left.
    /// `stays`: leaves that to the next test.
    pub fn of(stays: bool, choose: impl FnOnce(Option<Rig>) -> Rig) -> Self {
        let mut slot = RIG.lock().unwrap_or_else(PoisonError::into_inner);
        let left = slot.take();
        *slot = Some(choose(left));
        Self { slot, stays }
    }
}

impl Deref for Loan {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        self.slot.as_ref().expect("a rig in use")
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // A failed test must not affect the next by what it leaves.
        let rig = self.slot.take();
        if !thread::panicking()
            && let Some(rig) = rig
        {
            rig.assert_nothing_left();
            *self.slot = self.stays.then_some(rig);
        }
    }
}

/// A host and the kernel's state before the test.
pub struct Rig {
    pub host: &'static Host,
    before: Before,
    /// Foreign cgroups of the test.
    groups: Mutex<Vec<CpuGroup>>,
    /// Command of a group without limits, which keeps the scheduler loaded between tests.
    keeper: Option<Running>,
}

struct Before {
    kernel: Kernel,
    files: BTreeMap<PathBuf, String>,
    slots: Vec<u64>,
}

/// A rig of a test's own. Panics outside of a virtual machine with sched_ext, because these tests
/// use the whole machine.
pub fn rig() -> Loan {
    Loan::of(false, |left| {
        left.into_iter().for_each(Rig::unload);
        Rig::new()
    })
}

/// Kernel state that could be left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kernel {
    state: String,
    pins: BTreeSet<String>,
    /// BPF programs, maps and links that are loaded, while no scheduler is: its owner has programs
    /// of its own.
    bpf: Option<[usize; 3]>,
}

impl Kernel {
    fn now() -> Self {
        let state = state();
        // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID
        let bpf = (state == "disabled").then(|| [11, 12, 31].map(count_bpf));
        Self {
            state,
            pins: names(Path::new(BPFFS)),
            bpf,
        }
    }

    /// Whether no BPF object is loaded. The kernel frees them with a delay.
    fn is_empty(&self) -> bool {
        self.bpf == Some([0, 0, 0])
    }
}

/// State of sched_ext: `enabled` or `disabled`.
pub fn state() -> String {
    text(&Path::new(SCHED_EXT).join("state"))
}

/// Makes the kernel end the scheduler, as an operator can.
pub fn throw_out() {
    fs::write("/proc/sysrq-trigger", "S").unwrap();
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// BPF objects of a kind, by include/uapi/linux/bpf.h: `command` is BPF_…_GET_NEXT_ID.
fn count_bpf(command: libc::c_int) -> usize {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut attributes = Attributes::default();
    let mut count = 0;
    loop {
        // SAFETY: the pointer is to a live local, and its size is given.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw mut attributes,
                size_of::<Attributes>(),
            )
        };
        if result != 0 {
            return count;
        }
        count += 1;
        attributes.start_id = attributes.next_id;
    }
}

impl Rig {
    pub fn new() -> Self {
        assert!(
            in_vm(),
            "this disturbs the whole machine; run it in a virtual one: make test-kernel"
        );
        assert!(
            Path::new(SCHED_EXT).exists(),
            "this kernel has no sched_ext"
        );
        wait_until("no scheduler is loaded", || Kernel::now().is_empty());
        let host: &'static Host = Box::leak(Box::new(Host::new()));
        host.base().enable_children().unwrap();
        Self {
            host,
            before: Before {
                kernel: Kernel::now(),
                files: host.snapshot(),
                slots: Vec::new(),
            },
            groups: Mutex::default(),
            keeper: None,
        }
    }

    /// Keeps the scheduler loaded from now on. The present state is the one that a test has to
    /// leave.
    pub fn kept(mut self) -> Self {
        self.keeper = Some(self.batch_sleeper("keeper"));
        self.before = Before {
            kernel: Kernel::now(),
            files: self.host.snapshot(),
            slots: self.slots(),
        };
        self
    }

    /// Ends the group that keeps the scheduler loaded. Panics unless nothing is left.
    pub fn unload(mut self) {
        self.keeper.take().expect("a keeper").stop();
        wait_until("the scheduler is unloaded", || {
            self.host.end_idle_owner() && Kernel::now().is_empty()
        });
    }

    /// Creates a foreign cgroup, which is removed after the test.
    pub fn group(&self, name: &str) -> CpuGroup {
        let group = self.host.base().child(name);
        group.create().unwrap();
        self.groups.lock().unwrap().push(group.clone());
        group
    }

    /// Starts `plimsoll run --enforcer sched-ext --class batch --name NAME KNOBS -- COMMAND`.
    pub fn batch<S: AsRef<OsStr>>(&self, name: &str, knobs: &str, command: &[S]) -> Running {
        let line = format!("run --enforcer sched-ext --class batch --name {name} {knobs} --");
        let words = line.split_whitespace().map(OsStr::new);
        self.host
            .start(words.chain(command.iter().map(AsRef::as_ref)))
    }

    /// Starts a command that sleeps; returns when it is in its group.
    pub fn batch_sleeper(&self, name: &str) -> Running {
        self.host
            .sleeper(name, "--enforcer sched-ext --class batch")
    }

    /// Starts one of Plimsoll's workloads in a batch group, on some CPUs (a mask).
    pub fn batch_load(&self, name: &str, knobs: &str, cpus: u64, load: &str) -> Running {
        on_cpus(cpus, || self.batch(name, knobs, &load_words(load)))
    }

    /// Starts burners in a batch group, on some CPUs (a mask); returns when all of them run.
    pub fn batch_burners(&self, name: &str, knobs: &str, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 80000s");
        let mut running = self.batch_load(name, knobs, cpus, &load);
        wait_for_burners(&mut running, &self.host.batch(name), burners);
        running
    }

    /// Starts a workload outside of Plimsoll's groups on some CPUs (a mask).
    pub fn fair_load(&self, group: &CpuGroup, cpus: u64, load: &str) -> Running {
        on_cpus(cpus, || self.host.start_in(group, load_words(load)))
    }

    /// Starts burners outside of Plimsoll's groups, on some CPUs (a mask); returns when all of them
    /// run.
    pub fn fair_burners(&self, group: &CpuGroup, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 80000s");
        let mut running = self.fair_load(group, cpus, &load);
        wait_for_burners(&mut running, group, burners);
        running
    }

    /// Makes a foreign cgroup a batch group of the scheduler.
    pub fn set(&self, group: &CpuGroup, knobs: &str) -> Finished {
        let path = shown(group);
        let mut words = vec!["set", &path, "--enforcer", "sched-ext", "--class", "batch"];
        words.extend(knobs.split_whitespace());
        self.host.run(words).good()
    }

    /// Resets the knobs of a foreign cgroup.
    pub fn reset(&self, group: &CpuGroup) {
        self.host.run(["set", &shown(group), "--reset"]).good();
    }

    /// Ends all processes of a batch group, and so the command that started them.
    pub fn end(&self, name: &str, command: Running) -> Finished {
        kill_all(&self.host.batch(name).all_processes().unwrap());
        command.finish()
    }

    /// Messages of an owner that a command has started.
    pub fn owner_log(&self) -> String {
        text(&self.host.runtime().join("owner.log"))
    }

    /// The scheduler's own state, in all detail.
    pub fn debug(&self) -> Value {
        self.host.run(["debug", "--json"]).good().json()
    }

    pub fn state(&self) -> State {
        self.ask(None)
    }

    fn ask(&self, target: Option<String>) -> State {
        let socket = self.host.runtime().join(SOCKET);
        state_of(&socket, target, false).expect("no owner")
    }

    /// The scheduler as its owner sees it.
    pub fn scheduler(&self) -> SchedulerSample {
        self.state().scheduler.expect("no scheduler")
    }

    /// Statistics of a group: its name, or a path with a `/` in front.
    pub fn statistics(&self, target: &str) -> Sample {
        let groups = self.ask(Some(target.to_owned())).groups;
        let group = groups.into_iter().next().expect("no such group");
        group
            .statistics
            .unwrap_or_else(|| panic!("{target}: {:?}", group.problem))
    }

    /// Counters of a group's quota.
    pub fn quota(&self, target: &str) -> CpuStat {
        self.statistics(target).quota.expect("it has no quota")
    }

    /// The kernel's id of the scheduler's map of groups: another one after a load.
    pub fn groups_id(&self) -> u64 {
        self.debug()["groups_id"].as_u64().unwrap()
    }

    /// The cgroups that have a slot, by their ids. None while no scheduler is loaded.
    pub fn slots(&self) -> Vec<u64> {
        let debug = self.debug();
        let groups = debug["groups"].as_array().into_iter().flatten();
        let of_cgroups = groups.filter(|group| group["slot"] != 0);
        let mut ids: Vec<u64> = of_cgroups
            .map(|group| group["cgroup_id"].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The slots that tests' cgroups have.
    pub fn nr_slots(&self) -> usize {
        self.slots().len() - self.before.slots.len()
    }

    /// The slot of a cgroup, in all detail.
    pub fn slot(&self, group: &CpuGroup) -> Option<Value> {
        let id = cgroup_id(group);
        let debug = self.debug();
        let mut found = debug["groups"].as_array().unwrap().iter();
        found.find(|group| group["cgroup_id"] == id).cloned()
    }

    /// Quota and period in the scheduler itself, in microseconds, by the first line of a trace.
    pub fn quota_in_force(&self, target: &str) -> (u64, u64) {
        let words = ["debug", "--trace", target, "--duration", "10ms"];
        let traced = self.host.run(words).good();
        let first = traced.stdout.lines().next().unwrap_or_default();
        let begin: Value = serde_json::from_str(first).unwrap();
        let usec = |name: &str| begin[name].as_u64().unwrap() / 1000;
        (usec("quota_ns"), usec("period_ns"))
    }

    /// Panics unless the scheduler has this quota for a group, and keeps it.
    pub fn assert_quota(&self, target: &str, quota_us: u64, period_us: u64) {
        assert_eq!(
            self.quota_in_force(target),
            (quota_us, period_us),
            "{target}"
        );
        self.wait_until_throttled(target);
    }

    /// Waits until two more periods of a group have ended throttled.
    pub fn wait_until_throttled(&self, target: &str) {
        let before = self.quota(target);
        wait_with_rare_looks(&format!("{target} is throttled"), || {
            let now = self.quota(target);
            now.nr_periods >= before.nr_periods + 2 && now.nr_throttled >= before.nr_throttled + 2
        });
    }

    /// Waits until each of these tasks has run.
    pub fn wait_until_all_run(&self, tids: &[i32]) {
        let mut waiting: Vec<(i32, u64)> = tids.iter().map(|tid| (*tid, ran_ns(*tid))).collect();
        let mut looks = Looks::begin();
        loop {
            waiting.retain(|(tid, before)| ran_ns(*tid) == *before);
            if waiting.is_empty() {
                return;
            }
            let left = || waiting.iter().map(|(tid, _)| place_of(*tid));
            assert!(
                looks.again(),
                "have not run: {:?}",
                left().collect::<Vec<_>>()
            );
        }
    }

    /// Returns whether a cgroup is a group of the scheduler.
    pub fn is_scheduled(&self, group: &CpuGroup) -> bool {
        state() == "enabled" && self.slot(group).is_some()
    }

    pub fn wait_until_scheduled(&self, group: &CpuGroup) {
        wait_with_rare_looks(&format!("{} is scheduled", shown(group)), || {
            self.is_scheduled(group)
        });
    }

    /// Waits until the scheduler counts so many runnable tasks in a group.
    pub fn wait_until_runnable(&self, group: &CpuGroup, count: u64) {
        let what = format!("{} has {count} runnable tasks", shown(group));
        wait_with_rare_looks(&what, || {
            let slot = self.slot(group);
            slot.is_some_and(|slot| slot["nr_runnable"] == count)
        });
    }

    /// Waits until the kernel's end of the scheduler is over, and it has been loaded that often
    /// again.
    pub fn wait_until_reloaded(&self, nr_reloads: u64) {
        wait_with_rare_looks("the scheduler is loaded again", || {
            let scheduler = self.state().scheduler;
            scheduler.is_some_and(|now| now.state == "running" && now.nr_reloads == nr_reloads)
        });
    }

    /// Panics if the scheduler was reloaded or had an error.
    pub fn assert_never_ejected(&self) {
        let scheduler = self.scheduler();
        assert_eq!(scheduler.state, "running", "{scheduler:?}");
        assert_eq!(scheduler.nr_reloads, 0, "{scheduler:?}");
        assert_eq!(scheduler.last_exit, None, "{scheduler:?}");
        if state() != "enabled" {
            let exit = || self.scheduler().last_exit;
            panic!("it has ended: {:?}", wait_for("its exit", exit));
        }
    }

    /// Panics unless everything is as before the test: all slots, files and cgroups, and the
    /// scheduler, which without a keeper is gone.
    fn assert_nothing_left(&self) {
        for group in self.groups.lock().unwrap().drain(..).rev() {
            remove_group(&group);
        }
        if self.keeper.is_none() {
            wait_until("the owner has ended", || self.host.end_idle_owner());
        } else {
            self.assert_never_ejected();
            // To read all slots takes long, so first the owner's list.
            wait_with_rare_looks("the owner has forgotten all groups", || {
                self.state().groups.len() == self.before.slots.len()
            });
            wait_with_rare_looks("no slot is left", || self.slots() == self.before.slots);
        }
        // The kernel frees what it has with a delay.
        let mut looks = Looks::begin();
        while Kernel::now() != self.before.kernel && looks.again() {}
        assert_eq!(Kernel::now(), self.before.kernel);
        assert_same(&self.before.files, &self.host.snapshot());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if thread::panicking() {
            // If the kernel ended the scheduler with an error.
            let dump = text(&self.host.runtime().join("sched-ext.dump"));
            let start: Vec<&str> = dump.lines().take(30).collect();
            eprintln!("{}", start.join("\n"));
            eprintln!("{}", self.owner_log());
            // Outside all limits, it would run on.
            kill_all(&self.host.base().all_processes().unwrap_or_default());
            // An owner that lives keeps its groups.
            if self.host.owner().is_some() {
                self.host.kill_owner();
            }
            let mut restore = self.host.plimsoll(["restore"]);
            let _ = restore.status();
        }
        // Its group is in the host's cgroup.
        self.keeper.take();
        let host = std::ptr::from_ref(self.host).cast_mut();
        // SAFETY: it came from a box, and the only other references to it are those of a test's
        // daemons, which end before its rig.
        drop(unsafe { Box::from_raw(host) });
    }
}

/// Pauses between two looks that take time from the groups: at the owner, or by a command.
const PAUSES: u32 = 10;

/// Like [`wait_until`], for conditions that take time to look at.
fn wait_with_rare_looks(what: &str, mut holds: impl FnMut() -> bool) {
    let mut pauses = PAUSES;
    wait_until(what, || {
        pauses += 1;
        pauses > PAUSES && {
            pauses = 0;
            holds()
        }
    });
}

/// The kernel's id of a cgroup.
pub fn cgroup_id(group: &CpuGroup) -> u64 {
    fs::metadata(group.cpu_file("")).unwrap().ino()
}

/// Makes khugepaged scan all memory again and again. It waits behind every burner, and blocks each
/// process whose memory it has begun to scan.
pub struct EagerHugePages(Vec<(PathBuf, String)>);

impl EagerHugePages {
    pub fn start() -> Self {
        let folder = Path::new("/sys/kernel/mm/transparent_hugepage/khugepaged");
        let files = ["scan_sleep_millisecs", "alloc_sleep_millisecs"];
        let old = files.map(|file| (folder.join(file), text(&folder.join(file))));
        for (file, _) in &old {
            fs::write(file, "0").unwrap();
        }
        Self(old.into())
    }
}

impl Drop for EagerHugePages {
    fn drop(&mut self) {
        for (file, old) in &self.0 {
            let _ = fs::write(file, old);
        }
    }
}

pub fn all_cpus() -> u64 {
    (1 << nr_cpus()) - 1
}

/// The threads of a group that burn.
pub fn burners(group: &CpuGroup) -> Vec<i32> {
    let mut tids = tasks_below(group);
    tids.retain(|tid| command_of(*tid).as_deref() == Some("load-burner"));
    tids
}

fn wait_for_burners(running: &mut Running, group: &CpuGroup, count: usize) {
    wait_until("all burners are there", || {
        assert!(running.is_running(), "it has ended: {}", running.stderr());
        burners(group).len() >= count
    });
}

/// State of a task in the kernel: its `stat`, `wchan` and `stack`.
fn place_of(tid: i32) -> String {
    let files = ["stat", "wchan", "stack"].map(|file| format!("/proc/{tid}/{file}"));
    files
        .map(|file| fs::read_to_string(file).unwrap_or_default())
        .join("; ")
}

/// Run time of a task, 0 if it has ended.
fn ran_ns(tid: i32) -> u64 {
    task_ns(tid).unwrap_or(0)
}

pub fn wait_for_threads(pid: i32, count: usize) -> Vec<i32> {
    wait_until("all threads are there", || threads_of(pid).len() >= count);
    threads_of(pid)
}

/// The words that run a part of a test, which is ignored otherwise, as a process of its own with
/// these variables.
pub fn words_of_part(part: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let me = std::env::current_exe().unwrap();
    let mut words = vec!["env".to_owned()];
    words.extend(
        variables
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    words.push(me.to_str().unwrap().to_owned());
    words.extend(["--exact", part, "--ignored", "--nocapture"].map(str::to_owned));
    words
}

/// The binary under test, as a string.
pub fn binary_word() -> String {
    binary().to_string_lossy().into_owned()
}
