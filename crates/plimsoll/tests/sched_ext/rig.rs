//! Common parts of these tests: a host with sched_ext, and counters that are read together with
//! the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks::{self, Policy};
use serde_json::Value;

use crate::common::{
    Finished, Host, Running, binary, in_vm, load_words, ms, nr_cpus, task_ns, tasks_below, text,
    threads_of, wait_until,
};
use crate::daemon_rig::{kill_all, shown};

pub const SHORT: Duration = Duration::from_secs(20);
/// Measured time of a rate: 20 periods of a quota.
pub const MEASURED: Duration = Duration::from_secs(2);

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const EXT_SERVER: &str = "/sys/kernel/debug/sched/ext_server";
const BPFFS: &str = "/sys/fs/bpf";

/// A host, with the kernel's state before the test.
pub struct Rig {
    pub host: Host,
    before: Kernel,
}

/// Creates a host. Panics outside of a virtual machine with sched_ext, because these tests use the
/// whole machine.
pub fn rig() -> Rig {
    assert!(
        in_vm(),
        "this disturbs the whole machine; run it in a virtual one: make sched-ext-test"
    );
    assert!(
        Path::new(SCHED_EXT).exists(),
        "this kernel has no sched_ext"
    );
    let host = Host::alone();
    wait_until_bpf_is_gone();
    let before = Kernel::now();
    assert_eq!(before.state, "disabled", "another scheduler is loaded");
    Rig { host, before }
}

/// Kernel state that could be left behind.
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

/// The kernel frees BPF objects of an earlier test with a delay. Outside of the VM they may belong
/// to other programs.
fn wait_until_bpf_is_gone() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Kernel::now().bpf != [0, 0, 0] && Instant::now() < deadline {
        thread::sleep(ms(50));
    }
}

/// Returns whether this kernel has ext servers.
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

    /// The same with burners; returns when all of them run.
    pub fn batch_burners(&self, name: &str, knobs: &str, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 600s");
        let mut running = self.batch_load(name, knobs, cpus, &load);
        wait_for_burners(&mut running, &self.host.batch(name), burners);
        running
    }

    /// Starts a workload outside of Plimsoll's groups on some CPUs (a mask).
    pub fn fair_load(&self, group: &CpuGroup, cpus: u64, load: &str) -> Running {
        self.host.start_in(group, bound_load(cpus, load))
    }

    /// The same with burners; returns when all of them run.
    pub fn fair_burners(&self, group: &CpuGroup, cpus: u64, burners: usize) -> Running {
        let load = format!("burn --threads {burners} --duration 600s");
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

    /// Resets that.
    pub fn reset(&self, group: &CpuGroup) {
        self.host.run(["set", &shown(group), "--reset"]).good();
    }

    /// Ends all processes of a batch group, and so the command that started them.
    pub fn end(&self, name: &str, command: Running) -> Finished {
        kill_all(&self.host.batch(name).all_processes().unwrap());
        command.finish(SHORT)
    }

    /// Messages of an owner that a command has started.
    pub fn owner_log(&self) -> String {
        text(&self.host.runtime().join("owner.log"))
    }

    /// The scheduler's own state, in all detail.
    pub fn debug(&self) -> Value {
        self.host.run(["debug", "--json"]).good().json()
    }

    /// Panics if the scheduler was reloaded or had an error.
    pub fn assert_never_ejected(&self, name: &str) {
        let shown = self.host.show(name);
        let scheduler = &shown["statistics"]["scheduler"];
        assert_eq!(scheduler["state"], "running", "{scheduler}");
        assert_eq!(scheduler["nr_reloads"], 0, "{scheduler}");
        assert_eq!(scheduler["last_exit"], Value::Null, "{scheduler}");
        assert_eq!(text(&Path::new(SCHED_EXT).join("state")), "enabled");
    }

    /// Panics unless the scheduler is removed completely and everything is restored. The kernel
    /// frees BPF objects with a delay.
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
    /// A failed test must not affect the next.
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
    }
}

/// Makes khugepaged scan all memory continuously. It waits behind every burner, and blocks each
/// process whose memory it has begun to scan.
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

/// Policies of tasks, with their commands.
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
    (1 << nr_cpus()) - 1
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

/// Returns whether all of these tasks are scheduled.
pub fn are_scheduled(tids: &[i32]) -> bool {
    let mut policies = tids.iter().filter_map(|tid| tasks::policy(*tid));
    policies.all(|policy| policy == Policy::Ext)
}

/// Returns whether none of them is.
pub fn are_fair(tids: &[i32]) -> bool {
    let mut policies = tids.iter().filter_map(|tid| tasks::policy(*tid));
    policies.all(|policy| policy == Policy::Fair)
}

/// Run time of a task, 0 if it has ended.
pub fn ran_ns(tid: i32) -> u64 {
    task_ns(tid).unwrap_or(0)
}

/// Prints a figure with its bounds, and returns whether it is within them.
pub fn is_within(what: &str, value: f64, bounds: RangeInclusive<f64>) -> bool {
    let (least, most) = (bounds.start(), bounds.end());
    println!("{what}: {value:.3}, promised {least:.3} to {most:.3}");
    bounds.contains(&value)
}

/// Panics unless a figure is within its bounds. One measurement is enough: in virtual time it
/// is equal in every run.
pub fn assert_within(what: &str, value: f64, bounds: RangeInclusive<f64>) {
    let (least, most) = (*bounds.start(), *bounds.end());
    assert!(
        is_within(what, value, bounds),
        "{what}: {value:.3}, promised {least:.3} to {most:.3}"
    );
}

/// Bounds of a figure with a tolerance in percent.
pub fn about(value: f64, percent: f64) -> RangeInclusive<f64> {
    let most_off = value * percent / 100.0;
    value - most_off..=value + most_off
}

/// Bounds on the CPU time of a group over [`MEASURED`], in percent of one CPU like its quota. The
/// time of twenty periods has twenty refills; at each of its edges a CPU may hold a slice of 5 ms
/// (SPEC 1, the bound of a window).
pub fn quota_bounds(quota: f64) -> RangeInclusive<f64> {
    let slices = 2.0 * 100.0 * 5e6 * nr_cpus() as f64 / MEASURED.as_nanos() as f64;
    quota - slices..=quota + slices
}

/// Panics unless each group uses its quota, once it has used up that of a whole period.
pub fn assert_quotas(what: &str, groups: &[&CpuGroup], quotas: &[f64]) {
    thread::sleep(ms(200));
    let rates = rates_of(groups, MEASURED);
    for (rate, quota) in rates.into_iter().zip(quotas) {
        let what = format!("{what}, percent of a CPU");
        assert_within(&what, rate, quota_bounds(*quota));
    }
}

/// Increase of counters over some time, in percent of it: of one CPU, for nanoseconds.
pub fn rates(time: Duration, mut read: impl FnMut() -> Vec<u64>) -> Vec<f64> {
    let (start, before) = (Instant::now(), read());
    thread::sleep(time);
    let (elapsed, after) = (start.elapsed().as_nanos() as f64, read());
    let risen = after.iter().zip(&before).map(|(now, then)| now - then);
    risen.map(|ns| 100.0 * ns as f64 / elapsed).collect()
}

/// Usage of groups over some time, each in percent of one CPU.
pub fn rates_of(groups: &[&CpuGroup], time: Duration) -> Vec<f64> {
    rates(time, || {
        let all = groups.iter().map(|group| group.usage_ns().unwrap());
        all.collect()
    })
}

/// Usage of tasks over some time, each in percent of one CPU.
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

/// The binary under test, as a string.
pub fn binary_word() -> String {
    binary().to_string_lossy().into_owned()
}
