//! Whatever its knobs, no task waits until the kernel throws the scheduler out.

use std::thread;
use std::time::Duration;

use crate::common::nr_cpus;
use crate::rig::{all_cpus, burners, ran_ns, rig};

/// The kernel's watchdog bites after 30 s.
const LONGER: Duration = Duration::from_secs(36);

#[test]
fn tiny_caps_full_headroom_and_saturating_normal_load_never_get_the_scheduler_ejected() {
    let Some(mut rig) = rig() else { return };
    let fair = rig.host.group("fair");
    let groups = [
        ("tiny", "--cap 0.1%", 2),
        ("crowd", "--cap 5%", 200),
        ("each", "--cap 0.1% --per-task", 20),
        ("side", "--headroom 100% --tolerance 0", 2),
        ("work", "", 2),
    ];
    // Limited once they are there: to start a program takes 0.2 s of CPU time here, which is
    // minutes under such a cap.
    let running: Vec<_> = groups
        .iter()
        .map(|(name, _, count)| rig.batch_burners(name, "--tolerance 0", all_cpus(), *count))
        .collect();
    for (name, knobs, _) in groups.iter().filter(|(_, knobs, _)| !knobs.is_empty()) {
        let words = ["set", *name].into_iter().chain(knobs.split_whitespace());
        rig.host.run(words).good();
    }
    // On all CPUs but one, so that both are seen: waiting for normal work, and for limits.
    let busy = nr_cpus() - 1;
    let rivals = (busy > 0).then(|| rig.fair_burners(&fair, (1 << busy) - 1, 2 * busy));
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
    if let Some(rivals) = rivals {
        rivals.kill_hard();
    }
    // To end on a signal of its own takes CPU time, too.
    for ((name, ..), keeper) in groups.iter().zip(running) {
        rig.end(name, keeper);
    }
    rig.assert_nothing_left();
}
