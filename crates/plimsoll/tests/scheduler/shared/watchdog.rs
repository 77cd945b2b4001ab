//! No combination of knobs lets a task wait until the kernel ejects the scheduler.

use std::env;
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use crate::common::wait::Looks;
use crate::common::{Running, nr_cpus, on_cpus};
use crate::rig::{Rig, all_cpus, words_of_part};
use crate::shared::with_command;

/// File of the counts, eight bytes for each thread.
const COUNTS: &str = "PLIMSOLL_TEST_COUNTS";

/// Threads that never sleep nor call the kernel, and count how far they are.
///
/// The kernel's own figures do not tell whether a task has run: Linux 7.3 sets a run queue's clock
/// to skip its next update while a task comes to it from another CPU, and charges a run that ends
/// before the next tick to the task that follows.
#[test]
#[ignore = "run by the test of the watchdog"]
fn threads_count() {
    let path = env::var(COUNTS).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let length = NonZeroUsize::new(bytes).unwrap();
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
    let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) }.unwrap();
    // SAFETY: it has that many counters, whose every value is valid, and stays mapped until the
    // process ends. Others only read the file.
    let counters: &[AtomicU64] =
        unsafe { slice::from_raw_parts(start.as_ptr().cast(), bytes / size_of::<u64>()) };
    thread::scope(|scope| {
        for counter in counters {
            scope.spawn(|| {
                loop {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

/// A batch group with threads that count.
struct Counters {
    name: &'static str,
    file: PathBuf,
    command: Running,
}

impl Counters {
    fn start(rig: &Rig, name: &'static str, cpus: u64, threads: usize) -> Self {
        let file = rig.host.runtime().join(name);
        fs::write(&file, vec![0; threads * size_of::<u64>()]).unwrap();
        let part = "shared::watchdog::threads_count";
        let words = words_of_part(part, &[(COUNTS, file.to_str().unwrap())]);
        let command = on_cpus(cpus, || rig.batch(name, "--tolerance 0", &words));
        Self {
            name,
            file,
            command,
        }
    }

    fn counts(&self) -> Vec<u64> {
        let bytes = fs::read(&self.file).unwrap();
        let counts = bytes.chunks_exact(size_of::<u64>());
        counts
            .map(|count| u64::from_ne_bytes(count.try_into().unwrap()))
            .collect()
    }

    fn end(self, rig: &Rig) {
        rig.end(self.name, self.command);
        fs::remove_file(&self.file).unwrap();
    }
}

/// Waits until each thread has counted on.
fn wait_until_all_count(groups: &[Counters]) {
    let counts = || groups.iter().map(Counters::counts).collect::<Vec<_>>();
    let before = counts();
    let mut looks = Looks::begin();
    loop {
        let now = counts();
        let mut pairs = before.concat().into_iter().zip(now.concat());
        if pairs.all(|(before, now)| now > before) {
            return;
        }
        assert!(looks.again(), "from {before:?} to {now:?}");
    }
}

#[test]
fn every_task_runs_under_tiny_caps_full_headroom_and_saturating_normal_load() {
    let rig = with_command();
    let fair = rig.group("fair");
    // All but one have normal work that never sleeps, so that both are seen: waiting for normal
    // work, and for limits.
    let busy = (1u64 << (nr_cpus() - 1)) - 1;
    assert!(busy > 0, "this takes two CPUs");
    let knobs = [
        ("tiny", "--cap 0.1%", 2, all_cpus()),
        ("crowd", "--cap 5%", 40, all_cpus()),
        ("each", "--cap 0.1% --per-task", 20, all_cpus()),
        ("side", "--headroom 100% --tolerance 0", 2, all_cpus()),
        ("behind", "", 2, busy),
    ];
    let groups = knobs.map(|(name, _, threads, cpus)| Counters::start(&rig, name, cpus, threads));
    wait_until_all_count(&groups);
    // Limited after their start, which would take minutes under such a cap.
    for (name, knobs, ..) in knobs.iter().filter(|(_, knobs, ..)| !knobs.is_empty()) {
        let words = ["set", *name].into_iter().chain(knobs.split_whitespace());
        rig.host.run(words).good();
    }
    let rivals = rig.fair_burners(&fair, busy, 2 * (nr_cpus() - 1));
    wait_until_all_count(&groups);
    rivals.kill_hard();
    // To end on a signal of its own takes CPU time, too.
    for group in groups {
        group.end(&rig);
    }
}
