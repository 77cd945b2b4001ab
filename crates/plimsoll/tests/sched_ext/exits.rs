//! Exits of the scheduler by the kernel.

use std::time::{Duration, Instant};

use crate::common::{knob, wait_until};
use crate::rig::{SHORT, are_scheduled, assert_quotas, burners, rig};

#[test]
fn sysrq_s_is_reported_within_a_second_and_the_group_is_limited_again() {
    let rig = rig();
    let work = rig.batch_burners("work", "--quota 30ms/100ms", 1, 1);
    let group = rig.host.batch("work");
    let limited = |when: &str| assert_quotas(when, &[&group], &[30.0]);
    limited("before");
    let mut reported = Vec::new();
    for round in 1..=2 {
        let start = Instant::now();
        println!("round {round}: {}", rig.owner_log());
        std::fs::write("/proc/sysrq-trigger", "S").unwrap();
        wait_until("it is reported", SHORT, || {
            rig.owner_log().matches("thrown out").count() == round
        });
        reported.push(start.elapsed());
        // Events during the reload do no harm.
        assert_eq!(knob(&group.parent().unwrap(), "cpu.idle"), "1");
        wait_until("it is loaded again", SHORT, || {
            let shown = rig.host.show("work");
            let scheduler = &shown["statistics"]["scheduler"];
            scheduler["state"] == "running" && scheduler["nr_reloads"] == round
        });
        assert!(
            rig.owner_log().to_lowercase().contains("sysrq"),
            "{}",
            rig.owner_log()
        );
        wait_until("its tasks are the scheduler's", SHORT, || {
            are_scheduled(&burners(&group))
        });
    }
    println!("reported after {reported:.0?}; {}", rig.owner_log());
    assert!(
        reported.iter().all(|took| *took < Duration::from_secs(1)),
        "{reported:.0?}"
    );
    limited("afterwards");
    work.stop();
    rig.assert_nothing_left();
}
