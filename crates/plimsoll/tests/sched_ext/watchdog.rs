//! No combination of knobs lets a task wait until the kernel ejects the scheduler.

use std::thread;
use std::time::Duration;

use crate::common::nr_cpus;
use crate::rig::{all_cpus, burners, ran_ns, rig};

/// The kernel's watchdog expires after 30 s.
const LONGER: Duration = Duration::from_secs(32);

#[test]
fn tiny_caps_full_headroom_and_saturating_normal_load_never_get_the_scheduler_ejected() {
    let mut rig = rig();
    let fair = rig.host.group("fair");
    // All but one have normal work that never sleeps, so that both are seen: waiting for normal
    // work, and for limits.
    let busy = (1u64 << (nr_cpus() - 1)) - 1;
    assert!(busy > 0, "this takes two CPUs");
    let groups = [
        ("tiny", "--cap 0.1%", 2, all_cpus()),
        ("crowd", "--cap 5%", 200, all_cpus()),
        ("each", "--cap 0.1% --per-task", 20, all_cpus()),
        ("side", "--headroom 100% --tolerance 0", 2, all_cpus()),
        ("behind", "", 2, busy),
    ];
    // Limited after their start, which would take minutes under such a cap.
    let running: Vec<_> = groups
        .iter()
        .map(|(name, _, count, cpus)| rig.batch_burners(name, "--tolerance 0", *cpus, *count))
        .collect();
    for (name, knobs, ..) in groups.iter().filter(|(_, knobs, ..)| !knobs.is_empty()) {
        let words = ["set", *name].into_iter().chain(knobs.split_whitespace());
        rig.host.run(words).good();
    }
    let rivals = rig.fair_burners(&fair, busy, 2 * (nr_cpus() - 1));
    let tids: Vec<(&str, i32)> = groups
        .iter()
        .flat_map(|(name, ..)| {
            let all = burners(&rig.host.batch(name));
            all.into_iter().map(|tid| (*name, tid))
        })
        .collect();
    let before: Vec<u64> = tids.iter().map(|(_, tid)| ran_ns(*tid)).collect();
    thread::sleep(LONGER);
    let waited: Vec<&(&str, i32)> = tids
        .iter()
        .zip(before)
        .filter(|((_, tid), before)| ran_ns(*tid) == *before)
        .map(|(task, _)| task)
        .collect();
    let debug = rig.debug();
    println!("{}", debug["status"]);
    let odd = debug["events"].as_object().unwrap();
    let odd: Vec<_> = odd
        .iter()
        .filter(|(_, count)| count.as_i64() != Some(0))
        .collect();
    println!("{odd:?}");
    for (name, ..) in groups {
        rig.assert_never_ejected(name);
    }
    assert!(waited.is_empty(), "did not run in {LONGER:?}: {waited:?}");
    rivals.kill_hard();
    // To end on a signal of its own takes CPU time, too.
    for ((name, ..), command) in groups.iter().zip(running) {
        rig.end(name, command);
    }
    rig.assert_nothing_left();
}
