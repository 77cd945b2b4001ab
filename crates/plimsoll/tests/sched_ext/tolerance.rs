//! What batch work gets behind normal work that never sleeps, second by second.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Running, native_or_vm, nr_cpus};
use crate::rig::{Rig, all_cpus, has_ext_server, rig, stamped};

const SECONDS: usize = 60;

/// What a batch group gets in each second, in ms of CPU time for a second of the clock.
fn each_second(rig: &mut Rig, knobs: &str) -> Vec<f64> {
    let fair = rig.host.group("fair");
    let cpus = nr_cpus();
    let work = rig.batch_burners("work", knobs, all_cpus(), cpus);
    let rivals: Vec<_> = (0..cpus)
        .map(|cpu| rig.fair_burners(&fair, 1 << cpu, 1))
        .collect();
    let group = rig.host.batch("work");
    // The leader sets the servers within 50 ms; what was running until now ends.
    thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let mut marks = vec![stamped(|| group.usage_ns().unwrap())];
    for second in 1..=SECONDS {
        let due = begun + Duration::from_secs(second as u64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        marks.push(stamped(|| group.usage_ns().unwrap()));
    }
    rivals.into_iter().for_each(Running::kill_hard);
    rig.assert_never_ejected("work");
    println!("{}", rig.host.show("work")["statistics"]["scheduler"]);
    work.stop();
    rig.assert_nothing_left();
    let pairs = marks.windows(2).map(|pair| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        (after - before) as f64 / 1e6 / (to - from).as_secs_f64()
    });
    pairs.collect()
}

/// Prints the table, and returns the mean and the most.
fn told(knobs: &str, seconds: &[f64]) -> (f64, f64) {
    println!("{knobs}: ms of CPU in each second behind saturating normal work");
    for ten in seconds.chunks(10) {
        let row: String = ten.iter().map(|ms| format!("{ms:8.2}")).collect();
        println!("{row}");
    }
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    let most = seconds.iter().copied().fold(0.0, f64::max);
    println!("mean {mean:.2}, most {most:.2}");
    (mean, most)
}

/// 1 ms in 100 ms, in a second.
const TOLERANCE_MS: f64 = 10.0;
/// It comes in turns of 100 us; this is how many there are in a second.
const TURNS: f64 = 100.0;

/// The grain: by how much a turn may last too long, in ms, in the worst second and on average.
/// The timer that ends it has to be heard, and the switches to the task and back count, too.
/// Where it comes to more, turns come less often: what a second has then varies by a turn or two.
fn late_ms() -> (f64, f64) {
    native_or_vm((0.1, 0.025), (0.2, 0.025))
}

#[test]
fn a_tolerance_of_1_ms_in_100_ms_is_what_batch_gets_and_no_more() {
    let Some(mut rig) = rig() else { return };
    let knobs = "--tolerance 1ms/100ms";
    let seconds = each_second(&mut rig, knobs);
    let (mean, most) = told(knobs, &seconds);
    let (late_max, late_mean) = late_ms();
    assert!(most <= TOLERANCE_MS + TURNS * late_max, "{most:.2} ms");
    assert!(mean <= TOLERANCE_MS + TURNS * late_mean, "{mean:.2} ms");
    // Without a server the kernel gives nothing.
    if has_ext_server() {
        assert!(mean >= TOLERANCE_MS / 2.0, "{mean:.2} ms");
    }
}

/// Only so much that the watchdog never bites: `each_second` asserts that.
#[test]
fn a_tolerance_of_0_gives_next_to_nothing_and_the_scheduler_is_never_ejected() {
    let Some(mut rig) = rig() else { return };
    let knobs = "--tolerance 0";
    let seconds = each_second(&mut rig, knobs);
    let (mean, _) = told(knobs, &seconds);
    // Without a server the fair class has to help out, which gives an idle cgroup 3 of 1,027 parts.
    let most = if has_ext_server() { 1.0 } else { 5.0 };
    assert!(mean <= most, "{mean:.2} ms");
    assert!(mean > 0.0, "nothing in {SECONDS} s");
}
