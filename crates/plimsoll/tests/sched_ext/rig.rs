//! What these tests share: a corner of a machine that has sched_ext, and counters that are read
//! together with the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plimsoll_engine::cgroup::CpuGroup;
use plimsoll_engine::tasks::{self, Policy};
use serde_json::Value;

use crate::common::{
    Finished, Host, Running, binary, in_vm, load_words, ms, task_ns, tasks_below, text, threads_of,
    wait_until,
};

pub const SHORT: Duration = Duration::from_secs(20);

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const EXT_SERVER: &str = "/sys/kernel/debug/sched/ext_server";
const BPFFS: &str = "/sys/fs/bpf";

/// A corner of this machine, with what the kernel had before.
pub struct Rig {
    pub host: Host,
    before: Kernel,
}

/// `None`, and a loud word, where there is nothing to test with. Never in the virtual machine.
pub fn rig() -> Option<Rig> {
    if !Path::new(SCHED_EXT).exists() {
        assert!(!in_vm(), "this kernel has no sched_ext");
        skip("this kernel has no sched_ext");
        return None;
    }
    let host = Host::alone();
    if in_vm() {
        wait_until_bpf_is_gone();
    }
    let before = Kernel::now();
    assert_eq!(before.state, "disabled", "another scheduler is loaded");
    measure_at_once();
    Some(Rig { host, before })
}

/// As [`rig`], for what must not happen to a machine that others use.
pub fn rig_in_vm() -> Option<Rig> {
    if !in_vm() {
        skip("it disturbs the whole machine");
        return None;
    }
    rig()
}

fn skip(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    eprintln!("SKIPPED: {test}: {why}; run it in the VM: crates/plimsoll/tests/in-vm sched_ext");
}

/// Who measures must not wait for what is measured.
fn measure_at_once() {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: the pointer is to a live local; pid 0 is the calling thread, the thread of this
    // test. What it starts is an ordinary process again.
    let result = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const priority,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// What the kernel has that could be left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub state: String,
    /// The ext servers' values, by file.
    pub servers: BTreeMap<String, String>,
    pub pins: BTreeSet<String>,
    /// BPF programs, maps and links that are loaded.
    pub bpf: [usize; 3],
}

impl Kernel {
    pub fn now() -> Self {
        Self {
            state: text(&Path::new(SCHED_EXT).join("state")),
            servers: servers(),
            pins: names(Path::new(BPFFS)),
            // BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID
            bpf: [11, 12, 31].map(count_bpf),
        }
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn servers() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for cpu in names(Path::new(EXT_SERVER)) {
        for file in ["runtime", "period"] {
            let name = format!("{cpu}/{file}");
            found.insert(name.clone(), text(&Path::new(EXT_SERVER).join(name)));
        }
    }
    found
}

/// The kernel frees what an earlier test has left to it when it gets to it. Elsewhere BPF objects
/// may be anybody's.
fn wait_until_bpf_is_gone() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Kernel::now().bpf != [0, 0, 0] && Instant::now() < deadline {
        thread::sleep(ms(50));
    }
}

/// Whether this kernel lets SCHED_EXT tasks run although fair ones want to.
pub fn has_ext_server() -> bool {
    !servers().is_empty()
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
        // SAFETY: the pointer is to a live local, and its size is told.
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
    /// Starts `plimsoll run --enforcer sched-ext --class batch --name NAME KNOBS -- COMMAND`.
    pub fn batch(&self, name: &str, knobs: &str, command: &[&str]) -> Running {
        let mut words = vec![
            "run",
            "--enforcer",
            "sched-ext",
            "--class",
            "batch",
            "--name",
            name,
        ];
        words.extend(knobs.split_whitespace());
        words.push("--");
        words.extend(command);
        self.host.start(words)
    }

    /// The same with one of Plimsoll's workloads on some CPUs (a mask).
    pub fn batch_load(&self, name: &str, knobs: &str, cpus: u64, load: &str) -> Running {
        let words = bound_load(cpus, load);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.batch(name, knobs, &words)
    }

    /// The same with burners, once all of them are there.
    pub fn batch_burners(&self, name: &str, knobs: &str, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 600s");
        let mut running = self.batch_load(name, knobs, cpus, &load);
        wait_for_burners(&mut running, &self.host.batch(name), burners);
        running
    }

    /// Starts a workload that is not Plimsoll's business on some CPUs (a mask).
    pub fn fair_load(&self, group: &CpuGroup, cpus: u64, load: &str) -> Running {
        self.host.start_in(group, bound_load(cpus, load))
    }

    /// The same with burners, once all of them are there.
    pub fn fair_burners(&self, group: &CpuGroup, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 600s");
        let mut running = self.fair_load(group, cpus, &load);
        wait_for_burners(&mut running, group, burners);
        running
    }

    /// Ends all that runs in a batch group, and so its keeper.
    pub fn end(&self, name: &str, keeper: Running) -> Finished {
        for pid in self.host.batch(name).all_processes().unwrap() {
            // It may just have ended.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        keeper.finish(SHORT)
    }

    /// The scheduler's own state, in all detail.
    pub fn debug(&self) -> Value {
        self.host.run(["debug", "--json"]).good().json()
    }

    /// Panics unless the scheduler is the one that was loaded first, and was never in trouble.
    pub fn assert_never_ejected(&self, name: &str) {
        let shown = self.host.show(name);
        let scheduler = &shown["statistics"]["scheduler"];
        assert_eq!(scheduler["state"], "running", "{scheduler}");
        assert_eq!(scheduler["nr_reloads"], 0, "{scheduler}");
        assert_eq!(scheduler["last_exit"], Value::Null, "{scheduler}");
        assert_eq!(text(&Path::new(SCHED_EXT).join("state")), "enabled");
    }

    /// Panics unless the kernel has nothing of the scheduler any more, and everything is as it
    /// was. The kernel frees BPF objects a moment after the last that needs them.
    pub fn assert_nothing_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Kernel::now() != self.before && Instant::now() < deadline {
            thread::sleep(ms(20));
        }
        assert_eq!(Kernel::now(), self.before);
        self.host.assert_clean();
    }
}

impl Drop for Rig {
    /// A test that failed must not spoil the next.
    fn drop(&mut self) {
        if thread::panicking() {
            // If the kernel threw the scheduler out with an error.
            let dump = text(&self.host.runtime().join("sched-ext.dump"));
            let start: Vec<&str> = dump.lines().take(30).collect();
            eprintln!("{}", start.join("\n"));
            // What runs would run on, outside all limits.
            for pid in self.host.base().all_processes().unwrap_or_default() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let mut restore = self.host.plimsoll(["restore"]);
            let _ = restore.status();
        }
    }
}

/// Has the kernel make huge pages of all memory all the time. Its thread for that is behind
/// every burner, and who has memory that it is at would wait as long.
pub struct EagerHugePages(Vec<(PathBuf, String)>);

impl EagerHugePages {
    pub fn start() -> Self {
        let folder = Path::new("/sys/kernel/mm/transparent_hugepage/khugepaged");
        let files = ["scan_sleep_millisecs", "alloc_sleep_millisecs"];
        let old = files.map(|file| (folder.join(file), text(&folder.join(file))));
        for (file, _) in &old {
            fs::write(file, "20").unwrap();
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

/// How each of these tasks is scheduled, with its command.
pub fn describe(tids: &[i32]) -> Vec<String> {
    let one = |tid: &i32| {
        let policy = tasks::policy(*tid);
        policy.map(|policy| format!("{tid} {} {policy:?}", command_of(*tid)))
    };
    tids.iter().filter_map(one).collect()
}

fn bound_load(cpus: u64, load: &str) -> Vec<String> {
    let mut words = vec!["taskset".to_owned(), format!("{cpus:x}")];
    let load = load_words(load);
    words.extend(load.iter().map(|word| word.to_string_lossy().into_owned()));
    words
}

/// All CPUs, as a mask.
pub fn all_cpus() -> u64 {
    (1 << crate::common::nr_cpus()) - 1
}

fn command_of(tid: i32) -> String {
    text(Path::new(&format!("/proc/{tid}/comm")))
}

/// The threads of a group that burn.
pub fn burners(group: &CpuGroup) -> Vec<i32> {
    let mut tids = tasks_below(group);
    tids.retain(|tid| command_of(*tid) == "load-burner");
    tids
}

fn wait_for_burners(running: &mut Running, group: &CpuGroup, count: usize) {
    wait_until("all burners are there", SHORT, || {
        assert!(running.is_running(), "it has ended: {}", running.stderr());
        burners(group).len() >= count
    });
}

/// Whether all of these tasks are the scheduler's.
pub fn are_scheduled(tids: &[i32]) -> bool {
    let mut policies = tids.iter().filter_map(|tid| tasks::policy(*tid));
    policies.all(|policy| policy == Policy::Ext)
}

/// Whether none of them is.
pub fn are_fair(tids: &[i32]) -> bool {
    let mut policies = tids.iter().filter_map(|tid| tasks::policy(*tid));
    policies.all(|policy| policy == Policy::Fair)
}

/// What a task has run, 0 when it is gone.
pub fn ran_ns(tid: i32) -> u64 {
    task_ns(tid).unwrap_or(0)
}

/// Counters and the time at which they were read, to within half a millisecond if that is to be
/// had at all: a virtual CPU may stand still between the two.
pub fn stamped<T>(mut read: impl FnMut() -> T) -> (Instant, T) {
    let mut best: Option<(Duration, Instant, T)> = None;
    for _ in 0..20 {
        let start = Instant::now();
        let value = read();
        let took = start.elapsed();
        if best.as_ref().is_none_or(|(least, ..)| took < *least) {
            best = Some((took, start + took / 2, value));
        }
        if took < Duration::from_micros(500) {
            break;
        }
    }
    let (_, at, value) = best.unwrap();
    (at, value)
}

/// As the older tests have it, with more attempts: a virtual machine whose host has other work
/// stands still for tens of milliseconds, and a limit that is given in each 100 ms is lost then.
pub fn expect_within(what: &str, expected: f64, tolerance: f64, mut measure: impl FnMut() -> f64) {
    expect_all_within(what, &[expected], tolerance, || vec![measure()]);
}

/// The same for several figures of one measurement.
pub fn expect_all_within(
    what: &str,
    expected: &[f64],
    tolerance: f64,
    mut measure: impl FnMut() -> Vec<f64>,
) {
    const ATTEMPTS: usize = 6;
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let values = measure();
        assert_eq!(values.len(), expected.len());
        let mut pairs = values.iter().zip(expected);
        let good = pairs.all(|(value, expected)| (value - expected).abs() <= tolerance);
        seen.push(values);
        if good {
            println!("{what}: {seen:.2?}, expected {expected:.2?} ± {tolerance:.2}");
            return;
        }
    }
    panic!("{what}: {seen:.2?}, expected {expected:.2?} ± {tolerance:.2}");
}

/// By how much counters rise over some time, in percent of it: of one CPU, for nanoseconds.
pub fn rates(time: Duration, mut read: impl FnMut() -> Vec<u64>) -> Vec<f64> {
    let (start, before) = stamped(&mut read);
    thread::sleep(time);
    let (end, after) = stamped(&mut read);
    let elapsed = (end - start).as_nanos() as f64;
    let risen = after.iter().zip(&before).map(|(now, then)| now - then);
    risen.map(|ns| 100.0 * ns as f64 / elapsed).collect()
}

/// What groups use over some time, each in percent of one CPU.
pub fn rates_of(groups: &[&CpuGroup], time: Duration) -> Vec<f64> {
    rates(time, || {
        let all = groups.iter().map(|group| group.usage_ns().unwrap());
        all.collect()
    })
}

/// What tasks use over some time, each in percent of one CPU.
pub fn rates_of_tasks(tids: &[i32], time: Duration) -> Vec<f64> {
    rates(time, || tids.iter().copied().map(ran_ns).collect())
}

/// Waits until a process has all of its threads.
pub fn wait_for_threads(pid: i32, count: usize) -> Vec<i32> {
    wait_until("all threads are there", SHORT, || {
        threads_of(pid).len() >= count
    });
    threads_of(pid)
}

/// The binary under test, as a word.
pub fn binary_word() -> String {
    binary().to_string_lossy().into_owned()
}
