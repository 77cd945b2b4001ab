//! Priority inversion: a batch task holds a lock that a normal task waits for, and normal work fills
//! every CPU. Server slices alone, of 100 us on each CPU every 20 ms, would end its section after as
//! many of them as it needs.

use std::fs;

use crate::clock::{ended, sleep_ms};
use crate::common::{Running, nr_cpus, wait_until};
use crate::figure::{ANY, SPEC_2};
use crate::lab::{lab, lab_load};
use crate::scheduler_rig::{binary_word, rig};

/// Bound of a wait, as aimed at by SPEC 2.
const BOUND_MS: f64 = 20.0;

/// Measures the waits of a fair task that takes a lock every 10 ms. `sections`: what a batch task
/// does with it again and again; `beside`: batch burners that share the server's slices with it.
fn wait_for_a_lock(title: &str, sections: &str, beside: usize, how: &str) {
    let rig = rig();
    let (fair, waiter) = (rig.group("fair"), rig.group("waiter"));
    let lock = rig.host.runtime().join("inversion");
    let path = lock.display();
    let hold = format!(r#"exec "$1" load hold {path} {sections}"#);
    let script = if beside > 0 {
        format!(r#""$0" load burn --threads {beside} --duration 80000s & {hold}"#)
    } else {
        hold
    };
    let holder = rig.batch("holder", "", &["sh", "-c", &script, &binary_word(), &lab()]);
    wait_until("the lock is used", || {
        fs::metadata(&lock).is_ok_and(|file| file.len() > 0)
    });
    sleep_ms(500);
    // Bound to CPUs, so that no CPU is without one while the fair class balances them.
    let rivals = (0..nr_cpus()).map(|cpu| rig.fair_burners(&fair, 1 << cpu, 1));
    let rivals: Vec<Running> = rivals.collect();
    sleep_ms(500);
    let load = lab_load(&format!("wait {path} {how} --every 10ms --duration 4s"));
    let report = ended(rig.host.start_in(&waiter, load)).json();
    // The kernel's locks do not say whether they were held.
    if let Some(contended) = report["contended"].as_f64() {
        let what = format!("times that it was held: a lock {title}");
        SPEC_2.figure(&what, contended, "", 1.0..=ANY);
    }
    let longest = report["wait"]["max_us"].as_f64().unwrap() / 1000.0;
    let what = format!("longest wait for a lock {title}");
    SPEC_2.figure(&what, longest, "ms", 0.0..=BOUND_MS);
    rig.assert_never_ejected();
    rivals.into_iter().for_each(Running::kill_hard);
    rig.end("holder", holder);
    let _ = fs::remove_file(&lock);
}

/// A section takes three server slices, of 100 us each. Sections and slices have no common measure,
/// so that a slice ends in every part of a section.
#[test]
fn wait_for_a_futex_of_a_batch_task() {
    let title = "that a batch task holds for 250 us of CPU";
    wait_for_a_lock(title, "--section 250us --pause 37us", 0, "");
}

/// Five tasks share the slices of all CPUs.
#[test]
fn wait_for_a_futex_of_a_batch_task_that_shares_server_slices() {
    let title = "that one of five batch tasks holds for 100 us of CPU";
    wait_for_a_lock(title, "--section 100us --pause 37us", 4, "");
}

/// The critical section is a write of 1 MiB.
#[test]
fn wait_for_a_lock_of_a_file_of_a_batch_task() {
    let title = "of a file that a batch task holds for a write of 1 MiB";
    wait_for_a_lock(title, "--write-mib 1", 0, "--by write");
}

/// A limit, not other work, keeps the task from its CPU; nobody knows who has locked a page.
#[test]
fn wait_for_a_page_of_a_limited_task() {
    let rig = rig();
    let waiter = rig.group("waiter");
    let pages = rig.host.runtime().join("pages");
    let path = pages.display().to_string();
    let words = [&lab(), "load", "hold", &path, "--write-mib", "1"];
    let holder = rig.batch("holder", "--quota 2ms/100ms", &words);
    wait_until("the pages are written", || {
        fs::metadata(&pages).is_ok_and(|file| file.len() > 1 << 20)
    });
    let load = lab_load(&format!("wait {path} --by read --every 10ms --duration 4s"));
    let report = ended(rig.host.start_in(&waiter, load)).json();
    let longest = report["wait"]["max_us"].as_f64().unwrap() / 1000.0;
    let what = "longest read of 1 MiB that a task over its quota writes";
    SPEC_2.figure(what, longest, "ms", 0.0..=BOUND_MS);
    rig.assert_never_ejected();
    rig.end("holder", holder);
    let _ = fs::remove_file(&pages);
}
