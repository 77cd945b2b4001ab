//! Priority inversion: a batch task holds a lock that a fair task waits for, and fair work fills
//! every CPU.
//!
//! With an ext server the holder gets a turn of 100 us on each CPU every 20 ms, and its section
//! ends after as many turns as it needs. Without one the kernel lets it starve; what bounds the
//! wait then is that it is lent to the fair class before the watchdog bites.

use std::thread;
use std::time::Duration;

use plimsoll_cgroupfs::CpuGroup;
use plimsoll_engine::tasks::{self, Policy};
use serde_json::Value;

use crate::common::{Running, known_defect, ms, nr_cpus, wait_until};
use crate::rig::{Rig, SHORT, all_cpus, binary_word, burners, has_ext_server, is_within, rig};

/// Time for which the waiter runs.
const ASKED: Duration = Duration::from_secs(4);
/// Bound of a wait, as aimed at by SPEC 2.
const BOUND_MS: f64 = 20.0;
/// Without an ext server the waiter has its lock when the watchdog's time is over at the latest.
const WITHOUT_SERVER_MAX: Duration = Duration::from_secs(30);

/// A batch task that holds a lock again and again, and fair work on all CPUs.
struct Crowd {
    lock: String,
    holder: Running,
    rivals: Vec<Running>,
    waiter: CpuGroup,
}

impl Crowd {
    /// `beside`: number of batch burners that share the server's slices with the holder.
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
        // Bound to CPUs, so that no CPU is without one while the fair class balances them.
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

    /// Waits of a fair task that takes the lock every 10 ms.
    fn wait(&self, rig: &Rig, how: &str) -> Value {
        let seconds = ASKED.as_secs();
        let load = format!(
            "wait {} {how} --every 10ms --duration {seconds}s --json",
            self.lock
        );
        let waiter = rig.fair_load(&self.waiter, all_cpus(), &load);
        waiter.finish(ASKED + WITHOUT_SERVER_MAX).good().json()
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

/// Prints the waits, and returns the longest in ms.
fn longest_ms(title: &str, report: &Value) -> f64 {
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
    wait[3]
}

/// Returns whether the wait for a lock of a batch task is within the aim of SPEC 2.
fn is_wait_bounded(title: &str, hold: (&str, usize), wait: &str) -> bool {
    let mut rig = rig();
    let crowd = Crowd::gather(&mut rig, hold.0, hold.1);
    let report = crowd.wait(&rig, wait);
    let longest = longest_ms(title, &report);
    crowd.leave(&rig);
    let contended = report["contended"].as_u64();
    assert!(contended > Some(0), "the lock was never held");
    is_within("longest wait, ms", longest, 0.0..=BOUND_MS)
}

/// Reason for a longer wait.
fn beyond_one_turn() -> String {
    if has_ext_server() {
        "issue 17: a section that outlasts turns waits for many others, up to 1.1 s instead of 20 ms"
            .into()
    } else {
        "issue 17: without an ext server a holder is helped after 10 s, and not within 20 ms".into()
    }
}

/// A section takes three turns of the ext server, of 100 us each. Sections and turns have no common
/// measure, so that a turn ends in every part of a section. Without a server there is one turn,
/// which must end in a section.
#[test]
fn a_fair_task_gets_a_lock_that_a_batch_task_holds_in_bounded_time() {
    let sections = if has_ext_server() {
        "--section 250us --pause 37us"
    } else {
        "--section 250us --pause 1us"
    };
    let hold = (sections, 0);
    let holds = is_wait_bounded("held for 250 us of CPU", hold, "");
    known_defect(&beyond_one_turn(), holds);
}

/// Five tasks share the slices of all CPUs.
#[test]
fn wait_for_a_lock_is_bounded_when_its_holder_shares_server_slices() {
    let hold = ("--section 100us --pause 37us", 4);
    let holds = is_wait_bounded("the same beside 4 batch burners", hold, "");
    known_defect(&beyond_one_turn(), holds);
}

/// The critical section is a write of 1 MiB. The kernel records the holder of that lock, so it is
/// boosted at once, on every kernel.
#[test]
fn holder_of_a_file_lock_runs_at_once_when_a_fair_task_waits() {
    let mut rig = rig();
    let crowd = Crowd::gather(&mut rig, "--write-mib 1", 0);
    let report = crowd.wait(&rig, "--write");
    let longest = longest_ms("lock of a file, held for a write of 1 MiB", &report);
    let promotions = rig.host.show("holder")["statistics"]["scheduler"]["nr_promotions"].as_u64();
    crowd.leave(&rig);
    assert!(promotions > Some(0), "{promotions:?}");
    let holds = is_within("longest wait, ms", longest, 0.0..=BOUND_MS);
    known_defect(
        "issue 17: the holder of a file's lock is boosted late, 95 ms instead of 20",
        holds,
    );
}

/// As left by an owner that was killed during the boost.
#[test]
fn boost_without_an_owner_is_ended() {
    let rig = rig();
    let work = rig.batch_burners("work", "", all_cpus(), 1);
    let tid = burners(&rig.host.batch("work"))[0];
    tasks::boost(tid).unwrap();
    assert_eq!(tasks::policy_number(tid), Some(tasks::BOOSTED));
    wait_until("it is the scheduler's again", SHORT, || {
        tasks::policy(tid) == Some(Policy::Ext)
    });
    work.stop();
    rig.assert_nothing_left();
}
