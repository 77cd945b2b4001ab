//! Holders of locks: what normal work waits for runs.

use std::cell::UnsafeCell;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll_engine::tasks;

use crate::common::{nr_cpus, wait_until};
use crate::daemon_rig::shown;
use crate::rig::{Rig, all_cpus, words_of_part};
use crate::shared::with_command;

/// Runs of a group's tasks because others may wait for their lock.
fn nr_holders(rig: &Rig, target: &str) -> u64 {
    let batch = rig.statistics(target).batch.expect("it is scheduled");
    batch.total.nr_holders
}

#[test]
fn a_holder_of_a_kernel_lock_runs_until_it_lets_go_although_its_quota_is_used_up() {
    let rig = with_command();
    let path = rig.host.runtime().join("locked");
    let output = format!("of={}", path.display());
    let command = ["dd", "if=/dev/zero", &output, "bs=128M", "count=1"];
    let writer = rig.batch("writer", "--quota 5ms/100ms", &command);
    // The file grows page by page, with its lock held.
    wait_until("the write has begun", || {
        fs::metadata(&path).is_ok_and(|file| file.len() > 0)
    });
    // The write would take minutes.
    rig.host.run(["set", "writer", "--quota", "1ms/1s"]).good();
    rig.wait_until_throttled("writer");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let begun = file.metadata().unwrap().len();
    assert!(begun < 128 << 20, "the write has ended before");
    file.write_at(b"x", 0).unwrap();
    // That came after the write of the other one.
    assert_eq!(file.metadata().unwrap().len(), 128 << 20);
    assert!(nr_holders(&rig, "writer") > 0);
    rig.end("writer", writer);
    fs::remove_file(&path).unwrap();
}

const FILES: &str = "PLIMSOLL_TEST_FILES";
const NR_FILES: usize = 4;

/// Threads that write a file each, again and again, with its page locked.
#[test]
#[ignore = "run by the test of page locks"]
fn threads_write() {
    let folder = PathBuf::from(env::var(FILES).unwrap());
    thread::scope(|scope| {
        for name in 0..NR_FILES {
            let file = File::create(folder.join(name.to_string())).unwrap();
            scope.spawn(move || {
                loop {
                    file.write_all_at(&[1; 4096], 0).unwrap();
                    (0..500).for_each(|i| {
                        black_box(i);
                    });
                }
            });
        }
    });
}

/// The kernel does not know who has locked a page.
#[test]
fn a_limited_task_leaves_the_kernel_before_it_is_stopped() {
    let rig = with_command();
    let folder = rig.host.runtime().join("files");
    fs::create_dir(&folder).unwrap();
    let part = "shared::locks::threads_write";
    let words = words_of_part(part, &[(FILES, folder.to_str().unwrap())]);
    let writers = rig.batch("writers", "--cap 2%", &words);
    let files: Vec<_> = (0..NR_FILES)
        .map(|name| folder.join(name.to_string()))
        .collect();
    wait_until("all write", || {
        let written = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.len() > 0);
        files.iter().all(written)
    });
    // Their start has some of these runs, too.
    let before = nr_holders(&rig, "writers");
    wait_until("one runs to leave the kernel", || {
        files.iter().for_each(|file| drop(fs::read(file).unwrap()));
        nr_holders(&rig, "writers") > before
    });
    rig.end("writers", writers);
    fs::remove_dir_all(&folder).unwrap();
}

/// A mutex of the C library, whose memory shows who holds it.
struct CMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the library's functions may be called by several threads at once.
unsafe impl Sync for CMutex {}

impl CMutex {
    fn locked(&self, act: impl FnOnce()) {
        // SAFETY: an initialised mutex, which is never moved.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
        act();
        // SAFETY: as above; this thread has locked it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

static C_MUTEX: CMutex = CMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
/// Mutex whose memory does not show who holds it.
static MUTEX: Mutex<()> = Mutex::new(());

fn locked(is_of_c: bool, act: impl FnOnce()) {
    if is_of_c {
        C_MUTEX.locked(act);
    } else {
        let _guard = MUTEX.lock().unwrap();
        act();
    }
}

/// A section that takes CPU time, some milliseconds.
fn work() {
    for i in 0..3_000_000 {
        black_box(i);
    }
}

const KIND: &str = "PLIMSOLL_TEST_MUTEX";
const BEGIN: &str = "PLIMSOLL_TEST_BEGIN";

/// A thread of the policy SCHED_IDLE holds a mutex twice, for which this one waits.
#[test]
#[ignore = "run by tests of mutexes"]
fn waits_for_a_mutex_of_an_idle_thread() {
    let is_of_c = env::var(KIND).unwrap() == "c";
    let begin = env::var(BEGIN).unwrap();
    let (held, asked) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Zero: the calling thread.
            tasks::set_policy(0, libc::SCHED_IDLE).unwrap();
            for round in 0..2 {
                locked(is_of_c, || {
                    held.store(true, Ordering::SeqCst);
                    if round == 0 {
                        println!("held");
                    }
                    while !asked.swap(false, Ordering::SeqCst) {
                        std::hint::spin_loop();
                    }
                    work();
                });
                while held.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            }
        });
        wait_until("all CPUs are busy", || Path::new(&begin).exists());
        for _ in 0..2 {
            wait_until("it is held", || held.load(Ordering::SeqCst));
            asked.store(true, Ordering::SeqCst);
            locked(is_of_c, || held.store(false, Ordering::SeqCst));
        }
    });
}

/// Runs [`waits_for_a_mutex_of_an_idle_thread`] as a process in a normal group, beside normal work
/// on all CPUs. Returns how many times a thread of the group ran because normal work waited for its
/// lock.
fn runs_for_a_mutex(kind: &str) -> u64 {
    let rig = with_command();
    let (waiter, busy) = (rig.group("waiter"), rig.group("busy"));
    let begin = rig.host.runtime().join("begin");
    let part = "shared::locks::waits_for_a_mutex_of_an_idle_thread";
    let variables = [(KIND, kind), (BEGIN, begin.to_str().unwrap())];
    let words = words_of_part(part, &variables);
    let process = rig.host.start_in(&waiter, words);
    let target = shown(&waiter);
    let normal = ["set", &target, "--enforcer", "sched-ext", "--weight", "100"];
    rig.host.run(normal).good();
    wait_until("it is held", || process.stdout().contains("held"));
    let rivals = rig.fair_burners(&busy, all_cpus(), nr_cpus());
    fs::write(&begin, "").unwrap();
    process.finish().good();
    let runs = nr_holders(&rig, &target);
    rivals.kill_hard();
    rig.reset(&waiter);
    fs::remove_file(&begin).unwrap();
    runs
}

#[test]
fn a_holder_of_a_mutex_runs_although_normal_work_fills_all_cpus() {
    assert!(runs_for_a_mutex("c") > 0);
}

#[test]
fn the_last_user_of_a_futex_runs_although_normal_work_fills_all_cpus() {
    assert!(runs_for_a_mutex("rust") > 0);
}
