//! No combination of knobs lets a task wait until the kernel ejects the scheduler.

use crate::common::nr_cpus;
use crate::rig::{all_cpus, burners};
use crate::shared::with_command;

#[test]
#[ignore = "one task in some runs has turns that interrupts use up: 0 ns in 60 s"]
fn every_task_runs_under_tiny_caps_full_headroom_and_saturating_normal_load() {
    let rig = with_command();
    let fair = rig.group("fair");
    // All but one have normal work that never sleeps, so that both are seen: waiting for normal
    // work, and for limits.
    let busy = (1u64 << (nr_cpus() - 1)) - 1;
    assert!(busy > 0, "this takes two CPUs");
    let groups = [
        ("tiny", "--cap 0.1%", 2, all_cpus()),
        ("crowd", "--cap 5%", 40, all_cpus()),
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
    let all = groups
        .iter()
        .map(|(name, ..)| burners(&rig.host.batch(name)));
    let tids: Vec<i32> = all.flatten().collect();
    rig.wait_until_all_run(&tids);
    rig.assert_never_ejected();
    rivals.kill_hard();
    // To end on a signal of its own takes CPU time, too.
    for ((name, ..), command) in groups.iter().zip(running) {
        rig.end(name, command);
    }
    rig.assert_nothing_left();
}
