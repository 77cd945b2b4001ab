//! Priority inversion: a batch task holds what a fair task waits for, and fair work fills every
//! CPU.
//!
//! With an ext server the holder gets a turn of 100 us on each CPU every 20 ms, and its section
//! ends after as many turns as it needs. Without one the kernel lets it starve; what bounds the
//! wait then is that it is lent to the fair class before the watchdog bites.

use std::thread;
use std::time::Duration;

use plimsoll_engine::cgroup::CpuGroup;
use plimsoll_engine::tasks::{self, Policy};
use serde_json::Value;

use crate::common::{Running, ms, native_or_vm, nr_cpus, wait_until};
use crate::rig::{Rig, SHORT, all_cpus, binary_word, burners, has_ext_server, rig};

/// How long waits are measured. Without an ext server one may take half of it.
fn measured() -> Duration {
    Duration::from_secs(if has_ext_server() { 15 } else { 45 })
}

/// What the longest wait may be where there is no ext server: the watchdog's time.
const WITHOUT_SERVER_MAX_MS: f64 = 30_000.0;

/// A batch task that holds a lock again and again, and fair work on all CPUs.
struct Crowd {
    lock: String,
    holder: Running,
    rivals: Vec<Running>,
    waiter: CpuGroup,
}

impl Crowd {
    /// `beside`: so many batch burners share the holder's turns.
    fn gather(rig: &mut Rig, sections: &str, beside: usize) -> Self {
        let (fair, waiter) = (rig.host.group("fair"), rig.host.group("waiter"));
        let folder = rig.host.runtime().to_str().unwrap().to_owned();
        let lock = format!("{folder}/inversion");
        let hold = format!(r#"exec "$0" load hold {lock} {sections} --duration 600s"#);
        let script = if beside > 0 {
            format!(r#""$0" load burn --threads {beside} --duration 600s & {hold}"#)
        } else {
            hold
        };
        let holder = rig.batch("holder", "", &["sh", "-c", &script, &binary_word()]);
        wait_until("the lock is used", SHORT, || {
            std::fs::metadata(&lock).is_ok_and(|file| file.len() > 0)
        });
        thread::sleep(ms(500));
        // Bound, so that no CPU is without while the fair class balances them.
        let rivals = (0..nr_cpus()).map(|cpu| rig.fair_burners(&fair, 1 << cpu, 1));
        let rivals = rivals.collect();
        thread::sleep(ms(500));
        Self {
            lock,
            holder,
            rivals,
            waiter,
        }
    }

    /// What a fair task that wants the lock every 10 ms sees.
    fn wait(&self, rig: &Rig, how: &str) -> Value {
        let seconds = measured().as_secs();
        let load = format!(
            "wait {} {how} --every 10ms --duration {seconds}s --json",
            self.lock
        );
        let waiter = rig.fair_load(&self.waiter, all_cpus(), &load);
        waiter.finish(measured()).good().json()
    }

    fn leave(self, rig: &Rig) {
        let statistics = &rig.host.show("holder")["statistics"];
        println!(
            "{} rescues, {} promotions, batch {}",
            statistics["scheduler"]["nr_rescues"],
            statistics["scheduler"]["nr_promotions"],
            statistics["batch"]
        );
        rig.assert_never_ejected("holder");
        self.rivals.into_iter().for_each(Running::kill_hard);
        rig.end("holder", self.holder);
        let _ = std::fs::remove_file(&self.lock);
        rig.assert_nothing_left();
    }
}

/// Prints what was seen, and returns the 99th percentile and the longest wait in ms.
fn told(title: &str, report: &Value) -> (f64, f64) {
    let of = |what: &str| {
        ["p50_us", "p90_us", "p99_us", "max_us"]
            .map(|quantile| report[what][quantile].as_f64().unwrap() / 1000.0)
    };
    let (wait, late) = (of("wait"), of("late"));
    println!(
        "{title}: {} rounds, {} found the lock held; wait p50, p90, p99, max {wait:.2?} ms; \
         for a CPU alone {late:.2?} ms",
        report["rounds"], report["contended"]
    );
    (wait[2], wait[3])
}

/// A fair task waits for a lock whose holder needs `section` of CPU. `with_server`: what the 99th
/// percentile and the longest wait may be, in ms, where the kernel has an ext server.
fn waits_are_bounded(title: &str, hold: (&str, usize), wait: &str, with_server: (f64, f64)) {
    let Some(mut rig) = rig() else { return };
    let crowd = Crowd::gather(&mut rig, hold.0, hold.1);
    let report = crowd.wait(&rig, wait);
    let (p99, most) = told(title, &report);
    crowd.leave(&rig);
    if has_ext_server() {
        assert!(p99 <= with_server.0, "p99 {p99:.1} ms");
        assert!(most <= with_server.1, "longest {most:.1} ms");
    } else {
        assert!(most <= WITHOUT_SERVER_MAX_MS, "longest {most:.1} ms");
    }
}

/// SPEC aims at 20 ms, which is the time between two turns. A section that is longer than what is
/// left of a turn takes two. In the emulated machine a turn lasts five times its length, and turns
/// come a fifth as often, so that batch work has no more than its tolerance.
#[test]
fn a_fair_task_gets_a_lock_that_a_batch_task_holds_in_bounded_time() {
    waits_are_bounded(
        "held for 100 us of CPU",
        ("--section 100us --pause 100us", 0),
        "",
        native_or_vm((40.0, 60.0), (400.0, 2_000.0)),
    );
}

/// Five tasks share the turns of all CPUs.
#[test]
fn a_lock_whose_holder_shares_its_turns_is_waited_for_longer_and_not_for_ever() {
    waits_are_bounded(
        "the same beside 4 batch burners",
        ("--section 100us --pause 100us", 4),
        "",
        native_or_vm((100.0, 200.0), (2_000.0, 6_000.0)),
    );
}

/// The section is a write of 1 MiB. The kernel shows who holds that lock, so it runs at once, on
/// every kernel; emulated, a write takes 20 ms and not one, and the holder has used up what it may
/// run so after a few.
#[test]
fn who_holds_the_kernels_lock_of_a_file_that_a_fair_task_waits_for_runs_at_once() {
    let Some(mut rig) = rig() else { return };
    let crowd = Crowd::gather(&mut rig, "--write-mib 1", 0);
    let report = crowd.wait(&rig, "--write");
    let (p99, most) = told("lock of a file, held for a write of 1 MiB", &report);
    let promotions = rig.host.show("holder")["statistics"]["scheduler"]["nr_promotions"].as_u64();
    crowd.leave(&rig);
    assert!(promotions > Some(0), "{promotions:?}");
    assert!(p99 <= native_or_vm(40.0, 1_000.0), "p99 {p99:.1} ms");
    assert!(most <= native_or_vm(100.0, 4_000.0), "longest {most:.1} ms");
}

/// As a leader leaves it that was killed just then.
#[test]
fn a_promoted_task_that_nobody_looks_after_is_taken_back() {
    let Some(rig) = rig() else { return };
    let work = rig.batch_burners("work", "", all_cpus(), 1);
    let tid = burners(&rig.host.batch("work"))[0];
    tasks::promote(tid).unwrap();
    assert_eq!(tasks::policy_number(tid), Some(tasks::PROMOTED));
    wait_until("it is the scheduler's again", SHORT, || {
        tasks::policy(tid) == Some(Policy::Ext)
    });
    work.stop();
    rig.assert_nothing_left();
}
